"""Where no shared memory is served, clients that look after it find none, and a registration is refused by
name. Regions that are served have tests in tests/router/payloads/regions."""

from typing import Any  # tritonclient's modules carry no types

import httpx
import pytest
import tritonclient.grpc.aio as triton_grpc
from fastapi import FastAPI
from tritonclient.utils import InferenceServerException

from router.management.sharedmemory import KINDS, add_shared_memory
from serving.values.specs import Limits
from tests.router.rpc_edge import Core, Edge

REFUSED = {
    "system": "Client shared memory is disabled: the region 'r' cannot be registered",
    "cuda": "failed to register CUDA shared memory region: 'r', GPUs not supported",
}


@pytest.fixture
def app() -> FastAPI:
    made = FastAPI()
    add_shared_memory(made, None)
    return made


def rest(app: FastAPI) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test")


@pytest.mark.parametrize("kind", KINDS)
async def test_over_rest_nothing_is_registered_and_nothing_can_be(app: FastAPI, kind: str) -> None:
    base = f"/v2/{kind}sharedmemory"
    async with rest(app) as client:
        status = await client.get(f"{base}/status")
        assert (status.status_code, status.json()) == (200, [])
        one = await client.get(f"{base}/region/r/status")
        assert (one.status_code, one.json()) == (
            404,
            {"error": f"Unable to find {kind} shared memory region: 'r'"},
        )
        for path in ("unregister", "region/r/unregister"):
            gone = await client.post(f"{base}/{path}")
            assert (gone.status_code, gone.content) == (200, b"")
        refused = await client.post(f"{base}/region/r/register", json={"key": "/k", "byte_size": 64})
        assert refused.status_code == 501
        assert refused.json()["error"].startswith(REFUSED[kind])


@pytest.mark.usefixtures("both_servers")
async def test_over_grpc_tritonclient_finds_nothing_and_can_register_nothing() -> None:
    edge = Edge(Core(), Limits())
    edge.address = f"127.0.0.1:{await edge.server.start(0)}"
    try:
        async with triton_grpc.InferenceServerClient(edge.address) as client:
            await look_after(client)
            with pytest.raises(InferenceServerException, match=REFUSED["system"]):
                await client.register_system_shared_memory("r", "/k", 64)
            with pytest.raises(InferenceServerException, match=REFUSED["cuda"]):
                await client.register_cuda_shared_memory("r", b"aGFuZGxl", 0, 64)
    finally:
        await edge.server.stop(0)


async def look_after(client: Any) -> None:
    """What Triton's clients do before and after."""
    assert not (await client.get_system_shared_memory_status()).regions
    assert not (await client.get_cuda_shared_memory_status()).regions
    for name in ("", "r"):
        await client.unregister_system_shared_memory(name)
        await client.unregister_cuda_shared_memory(name)
    for kind in KINDS:
        with pytest.raises(
            InferenceServerException, match=f"Unable to find {kind} shared memory region: 'r'"
        ):
            await getattr(client, f"get_{kind}_shared_memory_status")("r")
