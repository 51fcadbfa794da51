"""Tensors in shared memory over REST, on the fast path and as an ASGI route, as tritonclient has them."""

import asyncio
import json
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tritonclient.http as triton
import tritonclient.http.aio as triton_aio
import tritonclient.utils.shared_memory as shm
from tritonclient.utils import InferenceServerException, serialize_byte_tensor

from router.settings.values.client_shm import ClientShm
from router.tensors.parts.places import CopyFirst, Memory
from serving.values.specs import Limits
from serving.values.vocabulary import CLIENT_GONE
from serving.worker.frames.shared import PORTION_BYTES
from tests.router.http.fastpath.wire import PATIENCE_S, Running
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
from tests.router.payloads.regions.conftest import Make

INFER = "/v2/models/{}/infer"


@pytest.fixture(params=[True, False], ids=["fast path", "ASGI"])
def running(request: pytest.FixtureRequest) -> Iterator[Running]:
    running = Running(Limits(), direct=request.param, shm=ClientShm())
    yield running
    running.stop()


@pytest.fixture
def client(running: Running) -> Iterator[Any]:
    with triton.InferenceServerClient(f"127.0.0.1:{running.port}") as client:
        yield client


def post(running: Running, path: str, body: object) -> tuple[int, Any]:
    """Status and JSON of an answer."""
    text = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(text)}\r\n\r\n".encode()
    answer = running.ask(head + text)
    return answer.status, json.loads(answer.body) if answer.body else None


def test_tritonclient_registers_infers_and_reads_the_outputs(running: Running, client: Any) -> None:
    assert "system_shared_memory" in client.get_server_metadata()["extensions"]
    with region(4 * ROW_BYTES) as (handle, key):
        shm.set_shared_memory_region(handle, [A, B])
        client.register_system_shared_memory("r", key, 4 * ROW_BYTES)
        expected = {"name": "r", "key": key, "offset": 0, "byte_size": 4 * ROW_BYTES}
        assert client.get_system_shared_memory_status() == [expected]
        assert client.get_system_shared_memory_status("r") == [expected]
        for _ in range(2):  # the second by its plan
            result = client.infer("simple", simple_inputs(triton), outputs=simple_outputs(triton))
            check_simple(handle)
            place = {"shared_memory_region": "r", "shared_memory_byte_size": ROW_BYTES}
            assert result.get_output("OUTPUT0") == {
                "name": "OUTPUT0",
                "datatype": "INT32",
                "shape": [1, 16],
                "parameters": place | {"shared_memory_offset": 2 * ROW_BYTES, "binary_data_size": 0},
            }
            shm.set_shared_memory_region(handle, [A, B])
        inputs = simple_inputs(triton)
        assert np.array_equal(client.infer("simple", inputs).as_numpy("OUTPUT0"), A + B)
        inputs[1] = triton.InferInput("INPUT1", [1, 16], "INT32")
        inputs[1].set_data_from_numpy(A)
        assert np.array_equal(client.infer("simple", inputs).as_numpy("OUTPUT0"), A + A)
        client.unregister_system_shared_memory("r")
        assert client.get_system_shared_memory_status() == []
        with pytest.raises(InferenceServerException, match="Unable to find shared memory region: 'r'"):
            client.infer("simple", simple_inputs(triton))


async def test_the_client_for_asyncio_does_so_too(running: Running) -> None:
    async with triton_aio.InferenceServerClient(f"127.0.0.1:{running.port}") as client:
        with region(4 * ROW_BYTES) as (handle, key):
            shm.set_shared_memory_region(handle, [A, B])
            await client.register_system_shared_memory("r", key, 4 * ROW_BYTES)
            await client.infer("simple", simple_inputs(triton_aio), outputs=simple_outputs(triton_aio))
            check_simple(handle)
            await client.unregister_system_shared_memory()


def test_texts_go_through_shared_memory(client: Any) -> None:
    raw = serialize_byte_tensor(TEXTS).item()
    with region(2 * len(raw)) as (handle, key):
        shm.set_shared_memory_region(handle, [np.array(raw, dtype=object)])
        client.register_system_shared_memory("r", key, 2 * len(raw))
        text = triton.InferInput("IN", [1, 3], "BYTES")
        text.set_shared_memory("r", len(raw))
        output = triton.InferRequestedOutput("OUT")
        output.set_shared_memory("r", len(raw) - 1, len(raw))
        with pytest.raises(InferenceServerException) as caught:
            client.infer("identity", [text], outputs=[output])
        assert caught.value.message() == (
            f"shared memory size specified with the request for output 'OUT' ({len(raw) - 1} bytes) "
            f"should be at least {len(raw)} bytes to hold the results"
        )
        output.set_shared_memory("r", len(raw), len(raw))
        client.infer("identity", [text], outputs=[output])
        found = shm.get_contents_as_numpy(handle, np.object_, [1, 3], len(raw))
        assert found.tolist() == TEXTS.tolist()
        text.set_shared_memory("r", len(raw) - 1)
        with pytest.raises(InferenceServerException, match="element"):
            client.infer("identity", [text])


def test_large_tensors_pass_and_large_faults_are_answered(client: Any) -> None:
    size = 3 * PORTION_BYTES
    values = np.arange(size // 4, dtype=np.float32).reshape(1, -1)
    with region(2 * size) as (handle, key):
        shm.set_shared_memory_region(handle, [values])
        client.register_system_shared_memory("r", key, 2 * size)
        tensor = triton.InferInput("IN", list(values.shape), "FP32")
        tensor.set_shared_memory("r", size)
        output = triton.InferRequestedOutput("OUT")
        output.set_shared_memory("r", size, size)
        client.infer("identity", [tensor], outputs=[output])
        assert np.array_equal(shm.get_contents_as_numpy(handle, np.float32, values.shape, size), values)
        output.set_shared_memory("r", size - 1, size)
        with pytest.raises(InferenceServerException, match="should be at least"):
            client.infer("identity", [tensor], outputs=[output])


def test_an_output_as_json_and_one_in_shared_memory(running: Running, made: Make) -> None:
    file = made(ROW_BYTES)
    register = {"key": file.key, "byte_size": ROW_BYTES}
    assert post(running, "/v2/systemsharedmemory/region/r/register", register) == (200, None)
    names = ("INPUT0", "INPUT1")
    data = [{"name": name, "datatype": "INT32", "shape": [1, 16], "data": [1] * 16} for name in names]
    place = {"shared_memory_region": "r", "shared_memory_byte_size": ROW_BYTES}
    outputs = [{"name": "OUTPUT0", "parameters": place}, {"name": "OUTPUT1"}]
    status, answer = post(running, INFER.format("simple"), {"inputs": data, "outputs": outputs})
    assert (status, answer["outputs"][0]["parameters"]) == (200, place | {"binary_data_size": 0})
    assert (answer["outputs"][1]["data"], "data" in answer["outputs"][0]) == ([0] * 16, False)
    assert file.read(99) == np.full(16, 2, np.int32).tobytes()


def test_hostile_requests_get_a_sentence_and_leave_the_region_alone(running: Running, made: Make) -> None:
    file = made(256)
    register = "/v2/systemsharedmemory/region/r/register"
    assert post(running, register, {"key": file.key, "offset": 0, "byte_size": 256})[0] == 200

    def ask(out: object, size: object = ROW_BYTES, offset: object = 0) -> tuple[int, str]:
        inputs = []
        for name in ("INPUT0", "INPUT1"):
            place = {
                "shared_memory_region": "r",
                "shared_memory_byte_size": size,
                "shared_memory_offset": offset,
            }
            inputs.append({"name": name, "datatype": "INT32", "shape": [1, 16], "parameters": place})
        status, answer = post(running, INFER.format("simple"), {"inputs": inputs, "outputs": out})
        return status, answer["error"]

    status, error = ask([], (1 << 64) - 1)
    assert (status, "at most 67108864 are accepted" in error) == (413, True)
    most = (1 << 64) - 1
    aimed = {"shared_memory_region": "r", "shared_memory_byte_size": 64, "shared_memory_offset": 128}
    for sentence, given in (
        ("Invalid offset for shared memory region: 'r'", ([], ROW_BYTES, most)),
        ("Invalid offset + byte size for shared memory region: 'r'", ([], ROW_BYTES, 193)),
        ("takes 64 bytes, got 65", ([], ROW_BYTES + 1)),
        ("must be a whole number of bytes", ([], ROW_BYTES, 1 << 64)),
        ("can't set both", ([{"name": "OUTPUT0", "parameters": {**aimed, "classification": 1}}],)),
        (
            "outputs overlap",
            ([{"name": f"OUTPUT{index}", "parameters": aimed} for index in (0, 1)],),
        ),
        (
            "Invalid offset + byte size",
            ([{"name": "OUTPUT0", "parameters": {**aimed, "shared_memory_byte_size": 129}}],),
        ),
    ):
        status, error = ask(*given)
        assert (status, sentence in error) == (400, True), error
    file.cut(32)
    status, error = ask([])
    assert (status, "shorter than when it was registered" in error) == (400, True)
    file.path.unlink()
    assert ask([])[0] == 400
    assert running.serving.calls == []
    assert len(running.serving.turned_away) == 10


def test_inputs_and_outputs_may_overlap_and_two_requests_may_share_a_region(client: Any) -> None:
    with region(4 * ROW_BYTES) as (handle, key):
        shm.set_shared_memory_region(handle, [A, B])
        client.register_system_shared_memory("r", key, 4 * ROW_BYTES)
        output = triton.InferRequestedOutput("OUTPUT0")
        output.set_shared_memory("r", ROW_BYTES, ROW_BYTES)  # where INPUT1 lies
        client.infer("simple", simple_inputs(triton), outputs=[output])
        assert np.array_equal(shm.get_contents_as_numpy(handle, np.int32, [1, 16], ROW_BYTES), A + B)
        shm.set_shared_memory_region(handle, [A, B])
        waiting = [
            client.async_infer("simple", simple_inputs(triton), outputs=simple_outputs(triton))
            for _ in range(4)
        ]
        for each in waiting:
            each.get_result()
        check_simple(handle)


@pytest.mark.parametrize(
    ("body", "status", "sentence"),
    [
        ({"key": "/nothing", "byte_size": 8}, 400, "Unable to open shared memory region: '/nothing'"),
        ({"key": "/nothing"}, 400, "'byte_size' must be a whole number of bytes, got null"),
        ({"key": 5, "byte_size": 8}, 400, "'key' must be a string such as '/my_inputs', got 5"),
        ({"key": "/k", "byte_size": 8, "offset": -1}, 400, "'offset' must be a whole number of bytes"),
        ({"key": "/k", "byte_size": "8"}, 400, "'byte_size' must be a whole number of bytes, got '8'"),
        ({"key": "/k", "bytesize": 8}, 400, "unknown key 'bytesize'"),
        ([], 400, "a registration is an object"),
        ({"key": "k" * 20_000, "byte_size": 8}, 413, "at most 16384 bytes"),
    ],
)
def test_a_faulty_registration_says_what_would_be_right(
    running: Running, body: object, status: int, sentence: str
) -> None:
    found, answer = post(running, "/v2/systemsharedmemory/region/r/register", body)
    assert found == status
    assert sentence in answer["error"]


def test_a_client_that_leaves_while_its_inputs_are_copied_is_forgotten() -> None:
    running = Running(Limits(), shm=ClientShm())
    begun, go_on = threading.Event(), asyncio.Event()

    class Slow:
        """Memory of which each copy waits."""

        async def copy(self, beside: int) -> Memory:
            begun.set()
            await go_on.wait()
            return self  # type: ignore[return-value]

        def take(self, places: object) -> Any:
            raise CopyFirst(self.copy)

    assert running.regions is not None
    running.regions.of = lambda _identity: Slow()  # type: ignore[assignment,method-assign,return-value]
    place = {"shared_memory_region": "r", "shared_memory_byte_size": 8}
    tensor = {"name": "IN", "datatype": "UINT8", "shape": [1, 8], "parameters": place}
    text = json.dumps({"inputs": [tensor]}).encode()
    head = f"POST {INFER.format('identity')} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(text)}\r\n\r\n"
    try:
        wire = running.connect()
        wire.send(head.encode() + text)
        assert begun.wait(PATIENCE_S)
        wire.reset()
        running.wait_left()
        running.loop.call_soon_threadsafe(go_on.set)
        running.settle()
        assert running.serving.calls == []
        assert [outcome for _, outcome, _ in running.serving.turned_away] == [CLIENT_GONE]
    finally:
        running.stop()
