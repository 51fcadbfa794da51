"""With API keys, each key has regions of its own, over REST and gRPC: no other key reaches them."""

import json
from collections.abc import Iterator

import grpc
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from router.settings.values.client_shm import ClientShm
from tests.router.http.fastpath.wire import LIMITS, Running
from tests.router.payloads.regions.conftest import Make
from tests.router.rpc_edge import error_of, serve
from tests.router.security.auth.callers import Callers

BASE = "/v2/systemsharedmemory"
PLACES = [(f"INPUT{index}", {"shared_memory_region": "r", "shared_memory_byte_size": 64}) for index in (0, 1)]


@pytest.fixture
def callers() -> Callers:
    return Callers()


@pytest.fixture(params=[True, False], ids=["fast path", "ASGI"])
def running(request: pytest.FixtureRequest, callers: Callers) -> Iterator[Running]:
    running = Running(LIMITS, direct=request.param, guard=callers.guard, shm=ClientShm())
    yield running
    running.stop()


def test_over_rest(running: Running, callers: Callers, made: Make) -> None:
    file = made(64)

    def ask(name: str, method: str, path: str, body: object = None) -> tuple[int, str]:
        text = b"" if body is None else json.dumps(body).encode()
        head = f"{method} {path} HTTP/1.1\r\nhost: x\r\nx-api-key: {callers.key(name)}\r\n"
        answer = running.ask(f"{head}content-length: {len(text)}\r\n\r\n".encode() + text)
        return answer.status, answer.body.decode()

    registration = {"key": file.key, "byte_size": 64}
    tensors = [{"name": name, "datatype": "INT32", "shape": [1, 16], "parameters": p} for name, p in PLACES]
    infer = "POST", "/v2/models/simple/infer", {"inputs": tensors}
    assert ask("app", "POST", f"{BASE}/region/r/register", registration)[0] == 200
    assert ask("app", *infer)[0] == 200
    for name in ("narrow", "boss"):
        assert ask(name, "GET", f"{BASE}/status") == (200, "[]")
        status, body = ask(name, *infer)
        assert (status, "Unable to find shared memory region: 'r'" in body) == (400, True)
        status, body = ask(name, "POST", f"{BASE}/region/mine/register", registration)
        assert (status, "in use by another caller" in body) == (400, True)
        assert ask(name, "POST", f"{BASE}/unregister")[0] == 200
    assert ask("eyes", "GET", f"{BASE}/status") == (200, "[]")
    for path in (f"{BASE}/region/r/register", f"{BASE}/unregister", f"{BASE}/region/r/unregister"):
        assert ask("eyes", "POST", path, registration)[0] == 403
        assert ask("nobody", "POST", path, registration)[0] == 401
    assert ask("app", *infer)[0] == 200


@pytest.mark.usefixtures("both_servers")
async def test_over_grpc(callers: Callers, made: Make) -> None:
    file = made(64)
    async with (
        serve(guard=callers.guard, shm=ClientShm()) as edge,
        grpc.aio.insecure_channel(edge.address) as channel,
    ):
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        app, boss, eyes = ((("x-api-key", callers.key(name)),) for name in ("app", "boss", "eyes"))
        registration = service_pb2.SystemSharedMemoryRegisterRequest(name="r", key=file.key, byte_size=64)
        request = service_pb2.ModelInferRequest(model_name="simple")
        for name, place in PLACES:
            tensor = request.inputs.add(name=name, datatype="INT32", shape=[1, 16])
            tensor.parameters["shared_memory_region"].string_param = str(place["shared_memory_region"])
            tensor.parameters["shared_memory_byte_size"].int64_param = 64
        await stub.SystemSharedMemoryRegister(registration, metadata=app)
        await stub.ModelInfer(request, metadata=app)
        everything = service_pb2.SystemSharedMemoryStatusRequest()
        assert not (await stub.SystemSharedMemoryStatus(everything, metadata=boss)).regions
        code, sentence = await error_of(stub.ModelInfer(request, metadata=boss))
        assert (code, "Unable to find" in sentence) == (grpc.StatusCode.INVALID_ARGUMENT, True)
        code, sentence = await error_of(stub.SystemSharedMemoryRegister(registration, metadata=boss))
        assert (code, "in use by another" in sentence) == (grpc.StatusCode.INVALID_ARGUMENT, True)
        code, _ = await error_of(stub.SystemSharedMemoryRegister(registration, metadata=eyes))
        assert code is grpc.StatusCode.PERMISSION_DENIED
        await stub.SystemSharedMemoryUnregister(
            service_pb2.SystemSharedMemoryUnregisterRequest(), metadata=boss
        )
        await stub.ModelInfer(request, metadata=app)
