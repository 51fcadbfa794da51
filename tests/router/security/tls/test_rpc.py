"""gRPC over TLS, by both servers: Triton's clients, certificates of clients in place of keys."""

import asyncio
from pathlib import Path

import grpc
import pytest
import tritonclient.grpc as triton_sync
import tritonclient.grpc.aio as triton
from tritonclient.utils import InferenceServerException

from router.security.tls import Certificates, Gate
from serving.values.specs import Limits
from tests.certificates import Authority
from tests.router.rpc_edge import GRPCIO, Chosen, serve, simple_inputs
from tests.router.security.tls.test_rest import guard

pytestmark = pytest.mark.usefixtures("both_servers")


def gate(signed: Authority, *, asks: bool = False, requires: bool = False) -> Gate:
    tls = signed.tls(client_ca=signed.ca if asks else None, requires=requires)
    return Gate(Certificates(tls), Limits())


def address(edge_address: str) -> str:
    return f"localhost:{edge_address.rpartition(':')[2]}"


async def test_tritonclient_speaks_tls_by_its_own_options(signed: Authority) -> None:
    async with serve(gate=gate(signed)) as edge:
        options = {"ssl": True, "root_certificates": str(signed.ca)}
        async with triton.InferenceServerClient(address(edge.address), **options) as client:
            assert await client.is_server_live()
            result = await client.infer("simple", simple_inputs(triton))
            assert result.as_numpy("OUTPUT0")[0, 1] == 2
        await asyncio.to_thread(ask, address(edge.address), options)


def ask(url: str, options: dict[str, object]) -> None:
    """Ask by the client that blocks."""
    with triton_sync.InferenceServerClient(url, **options) as client:
        result = client.infer("simple", simple_inputs(triton_sync))
        assert result.as_numpy("OUTPUT0")[0, 1] == 2


async def test_the_names_of_a_certificate_stand_for_a_key(signed: Authority) -> None:
    requires = Chosen.server == GRPCIO  # which asks for no certificate that it does not need
    async with serve(gate=gate(signed, asks=True, requires=requires), guard=guard()) as edge:
        options = {"ssl": True, "root_certificates": str(signed.ca)}
        if not requires:
            await refuse_without(address(edge.address), options)
        shown = {
            "private_key": str(signed.folder / "app1.key"),
            "certificate_chain": str(signed.folder / "app1.pem"),
        }
        async with triton.InferenceServerClient(address(edge.address), **options, **shown) as client:
            assert (await client.get_model_metadata("simple")).name == "simple"
            await client.infer("simple", simple_inputs(triton))
        assert [call.tenant for call in edge.core.calls] == ["gold"]


async def refuse_without(url: str, options: dict[str, object]) -> None:
    """Ask without a certificate and without a key."""
    async with triton.InferenceServerClient(url, **options) as client:
        assert await client.is_server_live()
        with pytest.raises(InferenceServerException, match="API key"):
            await client.infer("simple", simple_inputs(triton))


async def test_where_a_certificate_is_required_none_gets_no_answer(signed: Authority) -> None:
    async with serve(gate=gate(signed, asks=True, requires=True)) as edge:
        trusted = grpc.ssl_channel_credentials(signed.ca.read_bytes())
        async with grpc.aio.secure_channel(address(edge.address), trusted) as channel:
            live = channel.unary_unary("/inference.GRPCInferenceService/ServerLive")
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await live(b"", timeout=60)
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_renewed_certificate_serves_new_connections(signed: Authority, tmp_path: Path) -> None:
    mine = Authority(tmp_path)
    mine.sign("server")
    certificates = Certificates(mine.tls())
    async with serve(gate=Gate(certificates, Limits())) as edge:
        url = address(edge.address)
        async with triton.InferenceServerClient(url, ssl=True, root_certificates=str(mine.ca)) as client:
            assert await client.is_server_live()
            for suffix in ("pem", "key"):
                (tmp_path / f"server.{suffix}").write_bytes((signed.folder / f"server.{suffix}").read_bytes())
            assert certificates.renew()
            assert await client.is_server_live()
        async with triton.InferenceServerClient(url, ssl=True, root_certificates=str(signed.ca)) as client:
            assert await client.is_server_live()
