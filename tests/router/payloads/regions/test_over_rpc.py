"""Tensors in shared memory over gRPC, on both servers, as tritonclient asks for them."""

import os
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc.aio as triton
import tritonclient.utils.shared_memory as shm
from grpc.aio import AioRpcError
from tritonclient.utils import InferenceServerException, serialize_byte_tensor

from router.payloads.regions.region import FOLDER
from router.settings.values.client_shm import ClientShm
from serving.worker.frames.shared import PORTION_BYTES
from tests.router.decoupled import StreamingCore
from tests.router.payloads.regions.clients import (
    ROW_BYTES,
    TEXTS,
    A,
    B,
    check_simple,
    region,
    simple_inputs,
    simple_outputs,
)
from tests.router.rpc_edge import Core, Edge, serve

pytestmark = pytest.mark.usefixtures("both_servers")


async def infer(
    edge: Edge, inputs: list[Any], outputs: list[Any] | None = None, model: str = "simple"
) -> Any:
    async with triton.InferenceServerClient(edge.address) as client:
        return await client.infer(model, inputs, outputs=outputs)


async def refused(edge: Edge, *given: Any) -> tuple[str, str]:
    """Code and sentence of an inference that fails."""
    with pytest.raises((InferenceServerException, AioRpcError)) as caught:
        await infer(edge, *given)
    return caught.value.status(), caught.value.message()


async def test_tritonclient_registers_infers_and_reads_the_outputs() -> None:
    async with serve(shm=ClientShm()) as edge, triton.InferenceServerClient(edge.address) as client:
        assert "system_shared_memory" in (await client.get_server_metadata()).extensions
        with region(4 * ROW_BYTES) as (handle, key):
            shm.set_shared_memory_region(handle, [A, B])
            await client.register_system_shared_memory("r", key, 4 * ROW_BYTES)
            for name in ("", "r"):
                status = (await client.get_system_shared_memory_status(name)).regions["r"]
                assert (status.name, status.key, status.offset, status.byte_size) == ("r", key, 0, 256)
            for _ in range(2):  # the second by its plan
                result = await infer(edge, simple_inputs(triton), simple_outputs(triton))
                check_simple(handle)
                response = result.get_response()
                assert response.raw_output_contents == [b"", b""]
                said = dict(response.outputs[0].parameters.items())
                assert said["shared_memory_region"].string_param == "r"
                assert said["shared_memory_byte_size"].int64_param == ROW_BYTES
                assert said["shared_memory_offset"].int64_param == 3 * ROW_BYTES
                shm.set_shared_memory_region(handle, [A, B])
            inputs = simple_inputs(triton)
            for _ in range(2):
                outputs = [simple_outputs(triton)[0], triton.InferRequestedOutput("OUTPUT0")]
                outputs = [simple_outputs(triton)[0], triton.InferRequestedOutput("OUTPUT0")]
                found = await infer(edge, inputs, outputs)
                assert np.array_equal(found.as_numpy("OUTPUT0"), A + B)
                inputs[0] = triton.InferInput("INPUT0", [1, 16], "INT32")
                inputs[0].set_data_from_numpy(A)
            with pytest.raises(InferenceServerException, match="already in manager") as caught:
                await client.register_system_shared_memory("r", key, 64)
            assert caught.value.status() == "StatusCode.ALREADY_EXISTS"
            await client.unregister_system_shared_memory("r")
            assert not (await client.get_system_shared_memory_status()).regions
            code, sentence = await refused(edge, simple_inputs(triton))
            assert code == "StatusCode.INVALID_ARGUMENT"
            assert sentence == "Unable to find shared memory region: 'r'; register it first"


async def test_texts_and_large_tensors_pass_and_what_does_not_fit_is_refused() -> None:
    raw = serialize_byte_tensor(TEXTS).item()
    size = 3 * PORTION_BYTES
    values = np.arange(size // 4, dtype=np.float32).reshape(1, -1)
    async with serve(shm=ClientShm()) as edge, triton.InferenceServerClient(edge.address) as client:
        with region(2 * size) as (handle, key):
            await client.register_system_shared_memory("r", key, 2 * size)
            shm.set_shared_memory_region(handle, [np.array(raw, dtype=object)])
            text = triton.InferInput("IN", [1, 3], "BYTES")
            text.set_shared_memory("r", len(raw))
            output = triton.InferRequestedOutput("OUT")
            output.set_shared_memory("r", len(raw), size)
            await infer(edge, [text], [output], "identity")
            assert shm.get_contents_as_numpy(handle, np.object_, [1, 3], size).tolist() == TEXTS.tolist()
            output.set_shared_memory("r", len(raw) - 1, size)
            code, sentence = await refused(edge, [text], [output], "identity")
            assert code == "StatusCode.INVALID_ARGUMENT"
            assert f"should be at least {len(raw)} bytes to hold the results" in sentence
            shm.set_shared_memory_region(handle, [values])
            tensor = triton.InferInput("IN", list(values.shape), "FP32")
            tensor.set_shared_memory("r", size)
            output.set_shared_memory("r", size, size)
            await infer(edge, [tensor], [output], "identity")
            assert np.array_equal(shm.get_contents_as_numpy(handle, np.float32, values.shape, size), values)
            output.set_shared_memory("r", size - 1, size)
            _, sentence = await refused(edge, [tensor], [output], "identity")
            assert "should be at least" in sentence


async def test_a_file_that_is_cut_short_fails_its_own_request_only() -> None:
    core = Core()
    async with serve(core, shm=ClientShm()) as edge, triton.InferenceServerClient(edge.address) as client:
        with region(4 * ROW_BYTES) as (handle, key), region(4 * ROW_BYTES) as (other, other_key):
            for each in (handle, other):
                shm.set_shared_memory_region(each, [A, B])
            await client.register_system_shared_memory("r", key, 4 * ROW_BYTES)
            await client.register_system_shared_memory("s", other_key, 4 * ROW_BYTES)
            os.truncate(FOLDER + key, ROW_BYTES)
            _, sentence = await refused(edge, simple_inputs(triton))
            assert "shorter than when it was registered" in sentence
            assert core.calls == []
            await infer(edge, simple_inputs(triton, "s"), simple_outputs(triton, "s"))
            check_simple(other)
            assert core.turned_away == [("simple", core.turned_away[0][1], "default")]


async def test_without_the_setting_tensors_in_shared_memory_are_refused() -> None:
    async with serve() as edge:
        code, sentence = await refused(edge, simple_inputs(triton))
        assert code == "StatusCode.INVALID_ARGUMENT"
        assert sentence.startswith("Client shared memory is disabled: a tensor names the region 'r'")


async def streamed(client: Any, asked: list[dict[str, Any]]) -> list[Any]:
    """The results, or errors, of requests on one stream."""

    async def requests() -> AsyncIterator[dict[str, Any]]:
        for each in asked:
            yield each

    found = []
    async for result, error in client.stream_infer(requests()):
        found.append(error or result)
        if len(found) == len(asked):
            break
    return found


async def test_requests_of_a_stream_read_and_write_the_region_in_order() -> None:
    size = 3 * PORTION_BYTES
    values = np.arange(size // 4, dtype=np.float32).reshape(1, -1)
    async with serve(shm=ClientShm()) as edge, triton.InferenceServerClient(edge.address) as client:
        with region(2 * size) as (large, large_key), region(4 * ROW_BYTES) as (small, key):
            shm.set_shared_memory_region(large, [values])
            shm.set_shared_memory_region(small, [A, B])
            await client.register_system_shared_memory("large", large_key, 2 * size)
            await client.register_system_shared_memory("r", key, 4 * ROW_BYTES)
            tensor = triton.InferInput("IN", list(values.shape), "FP32")
            tensor.set_shared_memory("large", size)
            output = triton.InferRequestedOutput("OUT")
            output.set_shared_memory("large", size, size)
            short = triton.InferRequestedOutput("OUT")
            short.set_shared_memory("large", size - 1, size)
            asked = [
                {"model_name": "identity", "inputs": [tensor], "outputs": [output]},
                {"model_name": "simple", "inputs": simple_inputs(triton, "nothing")},
                {"model_name": "identity", "inputs": [tensor], "outputs": [short]},
                {"model_name": "simple", "inputs": simple_inputs(triton), "outputs": simple_outputs(triton)},
            ]
            for number, each in enumerate(asked):
                each["request_id"] = str(number)
            found = await streamed(client, asked)
            assert [found[place].get_response().id for place in (0, 3)] == ["0", "3"]
            assert "Unable to find shared memory region: 'nothing'" in str(found[1])
            assert "should be at least" in str(found[2])
            assert np.array_equal(shm.get_contents_as_numpy(large, np.float32, values.shape, size), values)
            check_simple(small)


async def test_a_model_with_any_number_of_answers_writes_none_to_the_region() -> None:
    core = StreamingCore()
    tensor = triton.InferInput("IN", [1, 2], "INT32")
    tensor.set_data_from_numpy(np.ones((1, 2), np.int32))
    output = triton.InferRequestedOutput("OUT")
    output.set_shared_memory("r", 4)
    async with serve(core, shm=ClientShm()) as edge, triton.InferenceServerClient(edge.address) as client:
        with region(4 * ROW_BYTES) as (_, key):
            await client.register_system_shared_memory("r", key, 4 * ROW_BYTES)
            asked = {"model_name": "repeat", "inputs": [tensor], "outputs": [output]}
            (found,) = await streamed(client, [asked])
    assert "each would overwrite the one before" in str(found)
    assert core.calls == []
