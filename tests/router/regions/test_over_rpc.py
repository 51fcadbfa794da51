"""Tensors in shared memory over gRPC, on both servers, as tritonclient asks for them."""

import os
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc.aio as triton
import tritonclient.utils.shared_memory as shm
from grpc.aio import AioRpcError
from tritonclient.utils import InferenceServerException, serialize_byte_tensor

from router.regions.region import FOLDER
from router.settings.client_shm import ClientShm
from serving.worker.shared import PORTION_BYTES
from tests.router.regions.clients import (
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
