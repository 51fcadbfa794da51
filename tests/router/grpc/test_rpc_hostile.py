"""The gRPC edge against what no client library sends, and against too much of what they do."""

import asyncio
import contextlib
import logging
from typing import Any  # grpc's clients and messages carry no types

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

from loadtests.hostile import h2wire
from router.grpc.rpc import SERVICE, RpcServer
from router.grpc.rpc.calls import MESSAGE_BYTES_MAX
from router.protocol.account import Account
from serving.values.specs import Limits
from serving.values.vocabulary import BAD_INPUT, DRAINING, MEMORY_FULL, QUEUE_FULL
from tests.router.rpc_edge import Core, Edge, completed, error_of, raw_infer, serve, simple_request
from tests.router.rpc_wire import PATH, identity_request, said, wire

pytestmark = pytest.mark.usefixtures("both_servers")

CODES = grpc.StatusCode


async def test_a_path_that_is_no_text_is_no_method_and_ends_nothing() -> None:
    """Neither a call that is under way, nor one on the same connection, nor the server."""
    async with serve(Core(lambda call: None)) as edge, wire(edge) as raw:
        ended: list[bool] = []
        if isinstance(edge.server, RpcServer):
            edge.server.port.on_end = lambda: ended.append(True)
        answer = asyncio.create_task(edge.infer(simple_request()))
        await edge.core.change()
        edge.core.answer = completed
        body = simple_request().SerializeToString()
        for stream in range(1, 201, 2):
            odd = h2wire.call(stream, b"/\xff", end=True) if stream % 4 == 1 else b""
            raw.send(odd or h2wire.call(stream, PATH) + h2wire.message(stream, body))
        for stream in range(1, 201, 2):
            wanted = CODES.UNIMPLEMENTED if stream % 4 == 1 else CODES.OK
            assert await raw.status(stream) == wanted.value[0]
        edge.core.open[1](completed(edge.core.calls[0]))
        assert (await answer).model_name == "simple"
        assert edge.server.listening
        assert ended == []


@pytest.mark.parametrize("tail", [b"", h2wire.message(1, b"part", stated=100)], ids=["none", "a part"])
@pytest.mark.parametrize("method", [PATH, PATH.replace(b"ModelInfer", b"ServerReady")])
async def test_a_call_without_a_whole_message_is_bad_input(method: bytes, tail: bytes) -> None:
    async with serve() as edge, wire(edge) as raw:
        raw.send(h2wire.call(1, method, end=not tail) + tail)
        assert await raw.status(1) == CODES.INVALID_ARGUMENT.value[0]
        counted = [("", BAD_INPUT, "default")] if method == PATH else []
        assert edge.core.turned_away == counted
        assert await edge.infer(simple_request())


async def test_a_message_that_does_not_come_ends_its_call_in_time() -> None:
    async with serve(limits=Limits(slow_client_s=0.05)) as edge, wire(edge) as raw:
        raw.send(h2wire.call(1, PATH))
        assert await raw.status(1) == CODES.DEADLINE_EXCEEDED.value[0]


async def test_calls_that_wait_for_their_message_do_not_delay_the_stop() -> None:
    async with serve() as edge, wire(edge) as raw:
        for stream in (1, 3, 5):
            raw.send(h2wire.call(stream, PATH))
        raw.send(h2wire.call(7, PATH, end=True))
        assert await raw.status(7) == CODES.INVALID_ARGUMENT.value[0]  # those before it are there too
        async with asyncio.timeout(15):  # slow_client_s is 30
            await asyncio.gather(edge.server.stop(60), raw.closed())
        waited = [each for each in edge.core.turned_away if each[1] is not BAD_INPUT]
        assert waited == [("", DRAINING, "default")] * 3  # their models are in the messages that never came


async def test_what_is_over_the_count_of_calls_is_refused_counted_and_told_when_to_come_back() -> None:
    async with serve(Core(lambda call: None), Limits(grpc_call_count=2)) as edge:
        async with grpc.aio.insecure_channel(edge.address) as channel:
            raw = simple_request().SerializeToString()
            held = [raw_infer(channel)(raw) for _ in range(2)]
            while len(edge.core.calls) < 2:
                await edge.core.change()
            with pytest.raises(grpc.aio.AioRpcError, match=r"limits\.grpc_call_count") as caught:
                await raw_infer(channel)(raw)
            assert caught.value.code() == CODES.RESOURCE_EXHAUSTED
            fields = dict(caught.value.trailing_metadata())
            assert fields["grpc-retry-pushback-ms"] == fields["retry-pushback-ms"] == "1000"
            assert edge.core.turned_away == [("", QUEUE_FULL, "default")]
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            assert (await stub.ServerReady(service_pb2.ServerReadyRequest())).ready  # probes have room left
            with pytest.raises(grpc.aio.AioRpcError, match="RESOURCE_EXHAUSTED"):
                await stub.ServerMetadata(service_pb2.ServerMetadataRequest())
            for number in (1, 2):
                edge.core.open[number](completed(edge.core.calls[0]))
            await asyncio.gather(*held)
            edge.core.answer = completed
            assert await raw_infer(channel)(raw)
        assert len(edge.core.turned_away) == 1


@pytest.mark.slow  # 2,000 calls
async def test_2000_calls_at_once_are_all_answered() -> None:
    async with serve() as edge, grpc.aio.insecure_channel(edge.address) as channel:
        raw = simple_request().SerializeToString()
        calls = [raw_infer(channel)(raw, timeout=100) for _ in range(2000)]
        assert {await call.code() for call in calls} == {CODES.OK}
    assert edge.core.turned_away == []


async def test_while_clients_hold_much_large_messages_are_refused_and_small_ones_answered() -> None:
    limits = Limits(held_bytes=1_000_000)
    async with serve(limits=limits) as edge, grpc.aio.insecure_channel(edge.address) as channel:
        account = Account(limits)
        account.count("others", lambda: 900_000)
        edge.server.count(account)
        infer = raw_infer(channel)
        with pytest.raises(
            grpc.aio.AioRpcError, match=r"90% of the 1000000 bytes .*limits\.held_mb"
        ) as caught:
            await infer(identity_request(100_000))
        assert caught.value.code() == CODES.RESOURCE_EXHAUSTED
        fields = dict(caught.value.trailing_metadata())
        assert (fields["x-penstock-reason"], fields["grpc-retry-pushback-ms"]) == ("memory_full", "1000")
        assert edge.core.turned_away == [("identity", MEMORY_FULL, "default")]
        assert await infer(identity_request(1_000))


async def test_connections_over_the_count_are_closed() -> None:
    async with serve(limits=Limits(connection_count=1)) as edge, wire(edge) as first:
        first.send(h2wire.call(1, PATH, end=True))
        await first.status(1)
        async with wire(edge) as second:
            await second.closed()
        first.send(h2wire.call(3, PATH, end=True))
        assert await first.status(3) == CODES.INVALID_ARGUMENT.value[0]


async def test_watch_streams_over_the_count_are_refused() -> None:
    request, limits = health_pb2.HealthCheckRequest(), Limits(grpc_watch_count=1)
    async with serve(limits=limits) as edge, grpc.aio.insecure_channel(edge.address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        first = stub.Watch(request)
        await first.read()
        with pytest.raises(grpc.aio.AioRpcError, match=r"limits\.grpc_watch_count") as caught:
            await stub.Watch(request).read()
        assert caught.value.code() == CODES.RESOURCE_EXHAUSTED
        first.cancel()
        while True:  # until the edge has heard that it left
            with contextlib.suppress(grpc.aio.AioRpcError):
                assert (await stub.Watch(request).read()).status == health_pb2.HealthCheckResponse.SERVING
                break


@pytest.mark.parametrize(
    ("method", "name"),
    [
        ("/inference.GRPCInferenceService/ModelReady", "ModelReadyRequest"),
        ("/grpc.health.v1.Health/Check", "HealthCheckRequest"),
        ("/grpc.health.v1.Health/Watch", "HealthCheckRequest"),
    ],
)
async def test_a_damaged_message_of_a_small_method_is_bad_input(
    method: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve() as edge, grpc.aio.insecure_channel(edge.address) as channel:
        told = await error_of(channel.unary_unary(method)(b"\xff\xff\xff"))
    assert told == (CODES.INVALID_ARGUMENT, f"the message is no {name}")
    assert said(caplog) == []


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize(
    ("method", "message"),
    [
        (f"/{SERVICE}/ModelReady", service_pb2.ModelReadyRequest(name="x" * (MESSAGE_BYTES_MAX + 1))),
        (
            f"/{SERVICE}/ModelStatistics",
            service_pb2.ModelStatisticsRequest(name="x" * (MESSAGE_BYTES_MAX + 1)),
        ),
        (
            "/grpc.health.v1.Health/Check",
            health_pb2.HealthCheckRequest(service="x" * (MESSAGE_BYTES_MAX + 1)),
        ),
        (
            "/grpc.health.v1.Health/Watch",
            health_pb2.HealthCheckRequest(service="x" * (MESSAGE_BYTES_MAX + 1)),
        ),
    ],
    ids=["ModelReady", "ModelStatistics", "Check", "Watch"],
)
async def test_a_large_message_of_a_small_method_is_refused_unparsed(
    method: str, message: Any, packed: bool
) -> None:
    compression = grpc.Compression.Gzip if packed else None
    async with serve() as edge, grpc.aio.insecure_channel(edge.address) as channel:
        call = channel.unary_unary(method)(message.SerializeToString(), compression=compression)
        code, sentence = await error_of(call)
    assert code == CODES.RESOURCE_EXHAUSTED
    assert str(MESSAGE_BYTES_MAX) in sentence


@pytest.mark.parametrize("refused", [False, True])
async def test_a_client_whose_deadline_passes_or_that_leaves_is_no_error(
    refused: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """As a refusal, or an answer, is on its way."""
    caplog.set_level(logging.INFO)
    async with serve() as edge, grpc.aio.insecure_channel(edge.address) as channel:
        raw = b"\xff" if refused else simple_request().SerializeToString()
        calls = [raw_infer(channel)(raw, timeout=n / 50_000) for n in range(500)]
        codes = [await call.code() for call in calls]
        gone = [raw_infer(channel)(raw) for _ in range(200)]
        for n, call in enumerate(gone):
            if n % 2:
                await asyncio.sleep(0)
            call.cancel()
        assert CODES.DEADLINE_EXCEEDED in codes
        assert await raw_infer(channel)(simple_request().SerializeToString())
    assert said(caplog) == []


async def test_a_call_that_is_refused_as_its_client_leaves_says_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def leave(request: Any, context: Any) -> Any:
        left.set()
        while not gone.is_set():
            try:
                await gone.wait()
            except asyncio.CancelledError:
                gone.set()
        await context.abort(CODES.NOT_FOUND, "too late")

    left, gone = asyncio.Event(), asyncio.Event()
    edge = Edge(Core(), Limits())
    edge.server.offer({"ServerMetadata": leave})
    edge.address = f"127.0.0.1:{await edge.server.start(0)}"
    async with grpc.aio.insecure_channel(edge.address) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        call = stub.ServerMetadata(service_pb2.ServerMetadataRequest())
        await left.wait()
        call.cancel()
        async with asyncio.timeout(60):
            await edge.server.calls.answered.wait()
    await edge.server.stop(0)
    assert said(caplog) == []
