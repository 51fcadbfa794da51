"""gRPC asks for keys before it reads a message; tritonclient brings them as metadata."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any  # grpc's clients carry no types

import grpc
import pytest
import tritonclient.grpc.aio as triton
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tritonclient.grpc import service_pb2
from tritonclient.grpc.service_pb2_grpc import GRPCInferenceServiceStub
from tritonclient.utils import InferenceServerException

from serving.values.vocabulary import FORBIDDEN, UNAUTHENTICATED
from tests.router.grpc.test_rpc_streams import open_stream
from tests.router.rpc_edge import INFER, Edge, error_of, fields_of, serve, simple_inputs, simple_request
from tests.router.security.auth.callers import Callers

pytestmark = pytest.mark.usefixtures("both_servers")

CODE = grpc.StatusCode


@pytest.fixture
def callers() -> Callers:
    return Callers()


@pytest.fixture
async def edge(callers: Callers) -> AsyncIterator[Edge]:
    async with serve(guard=callers.guard, access=True) as edge:
        yield edge


def metadata(callers: Callers, name: str, **more: str) -> tuple[tuple[str, str], ...]:
    return (
        ("x-api-key", callers.key(name)),
        *((key.replace("_", "-"), value) for key, value in more.items()),
    )


async def test_a_key_lets_in_by_either_entry(edge: Edge, callers: Callers) -> None:
    key = callers.key("app")
    async with triton.InferenceServerClient(edge.address) as client:
        for headers in ({"x-api-key": key}, {"authorization": f"Bearer {key}"}):
            result = await client.infer("simple", simple_inputs(triton), headers=headers)
            assert result.as_numpy("OUTPUT0")[0, 1] == 2
            assert (await client.get_model_metadata("simple", headers=headers)).name == "simple"
    assert [call.tenant for call in edge.core.calls] == ["gold", "gold"]


async def test_without_a_key_that_counts_it_is_unauthenticated_and_counted(
    edge: Edge, callers: Callers
) -> None:
    for given in (None, metadata(callers, "nobody"), metadata(callers, "late"), (("x-tenant", "gold"),)):
        code, sentence = await error_of(edge.infer(simple_request(), metadata=given))
        assert code is CODE.UNAUTHENTICATED
        assert "API key" in sentence
        assert "pk_" not in sentence
    assert (await fields_of(edge.infer(simple_request())))["x-penstock-reason"] == "unauthenticated"
    assert edge.core.turned_away == [("", UNAUTHENTICATED, "default")] * 5
    assert edge.core.calls == []
    async with triton.InferenceServerClient(edge.address) as client:
        with pytest.raises(InferenceServerException, match="an API key is needed"):
            await client.infer("simple", simple_inputs(triton))


async def test_a_key_for_something_else_is_denied_and_counted(edge: Edge, callers: Callers) -> None:
    code, _ = await error_of(edge.infer(simple_request(), metadata=metadata(callers, "eyes")))
    assert code is CODE.PERMISSION_DENIED
    other = simple_request(model_name="identity")
    code, sentence = await error_of(edge.infer(other, metadata=metadata(callers, "narrow")))
    assert code is CODE.PERMISSION_DENIED
    assert sentence == "the API key 'narrow' may not use model 'identity'; its models are 'simple'"
    assert edge.core.turned_away == [("", FORBIDDEN, "default"), ("identity", FORBIDDEN, "default")]
    tier = metadata(callers, "narrow", x_tier="gold")
    assert (await error_of(edge.infer(simple_request(), metadata=tier)))[0] is CODE.PERMISSION_DENIED
    await edge.infer(simple_request(), metadata=metadata(callers, "narrow", x_tier="cheap"))


async def test_what_a_client_says_of_its_tenant_counts_for_nothing(edge: Edge, callers: Callers) -> None:
    await edge.infer(simple_request(), metadata=metadata(callers, "app", x_tenant="batch.jobs"))
    assert edge.core.calls[0].tenant == "gold"
    bad = simple_request(model_name="absent")
    given = metadata(callers, "app", x_tenant="batch.jobs")
    assert (await error_of(edge.infer(bad, metadata=given)))[0] is CODE.NOT_FOUND
    assert [tenant for *_, tenant in edge.core.turned_away] == ["gold"]


async def test_it_is_refused_before_its_message_is_there(edge: Edge) -> None:
    async with grpc.aio.insecure_channel(edge.address) as channel:
        call = channel.stream_unary(INFER)()  # that sends no message
        async with asyncio.timeout(60):
            assert (await error_of(call))[0] is CODE.UNAUTHENTICATED


async def test_probes_need_no_key_and_all_else_does(edge: Edge, callers: Callers) -> None:
    async with grpc.aio.insecure_channel(edge.address) as channel:
        stub = GRPCInferenceServiceStub(channel)
        assert (await stub.ServerLive(service_pb2.ServerLiveRequest())).live
        assert (await stub.ServerReady(service_pb2.ServerReadyRequest())).ready
        health = health_pb2_grpc.HealthStub(channel)
        assert (await health.Check(health_pb2.HealthCheckRequest())).status == 1
        watching = health.Watch(health_pb2.HealthCheckRequest())
        assert (await watching.read()).status == 1
        watching.cancel()
        for call, roles in (
            (_named(stub.ServerMetadata, service_pb2.ServerMetadataRequest()), ("app", "eyes", "boss")),
            (_named(stub.ModelReady, service_pb2.ModelReadyRequest(name="simple")), ("narrow", "eyes")),
            (_named(stub.ModelStatistics, service_pb2.ModelStatisticsRequest()), ("eyes", "boss")),
        ):
            assert (await error_of(call(None)))[0] is CODE.UNAUTHENTICATED
            for name in roles:
                await call(metadata(callers, name))
        given = metadata(callers, "app")
        denied = stub.ModelStatistics(service_pb2.ModelStatisticsRequest(), metadata=given)
        assert (await error_of(denied))[0] is CODE.PERMISSION_DENIED


def _named(method: Any, message: Any) -> Any:
    return lambda given: method(message, metadata=given)


async def test_a_key_sees_its_models_only(edge: Edge, callers: Callers) -> None:
    async with grpc.aio.insecure_channel(edge.address) as channel:
        stub = GRPCInferenceServiceStub(channel)
        statistics, given = service_pb2.ModelStatisticsRequest(), metadata(callers, "eyes")
        found = await stub.ModelStatistics(statistics, metadata=given)
        assert [each.name for each in found.model_stats] == ["simple"]
        every = await stub.ModelStatistics(statistics, metadata=metadata(callers, "boss"))
        assert [each.name for each in every.model_stats] == ["identity", "simple"]
        for method, message in (
            (stub.ModelMetadata, service_pb2.ModelMetadataRequest(name="identity")),
            (stub.ModelReady, service_pb2.ModelReadyRequest(name="absent")),
            (stub.ModelStatistics, service_pb2.ModelStatisticsRequest(name="identity")),
        ):
            assert (await error_of(method(message, metadata=given)))[0] is CODE.PERMISSION_DENIED


async def test_one_callers_rights_are_no_others(edge: Edge, callers: Callers) -> None:
    async with grpc.aio.insecure_channel(edge.address) as channel:
        infer = channel.unary_unary(INFER)
        message = simple_request().SerializeToString()
        names = ["app", "narrow", "boss"] * 20
        await asyncio.gather(*(infer(message, metadata=metadata(callers, name)) for name in names))
    tenants = [call.tenant for call in edge.core.calls]
    assert (tenants.count("gold"), tenants.count("default")) == (20, 40)
    assert (await error_of(edge.infer(simple_request())))[0] is CODE.UNAUTHENTICATED


async def test_a_stream_asks_for_a_key_once_and_holds_each_request_to_its_models(
    edge: Edge, callers: Callers
) -> None:
    async with grpc.aio.insecure_channel(edge.address) as channel:
        assert (await error_of(open_stream(channel).read()))[0] is CODE.UNAUTHENTICATED
        assert edge.core.turned_away.pop() == ("", UNAUTHENTICATED, "default")
        stream = open_stream(channel, metadata=metadata(callers, "narrow"))
        await stream.write(simple_request(id="mine").SerializeToString())
        await stream.write(simple_request(id="others", model_name="identity").SerializeToString())
        await stream.done_writing()
        mine, others = [await stream.read() for _ in range(2)]
        assert (await stream.read(), await stream.code()) == (grpc.aio.EOF, CODE.OK)
    assert (mine.infer_response.id, mine.error_message) == ("mine", "")
    assert others.infer_response.id == "others"
    assert "identity" in others.error_message
    assert edge.core.turned_away == [("identity", FORBIDDEN, "default")]
