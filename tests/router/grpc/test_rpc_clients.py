"""A client of gRPC that shares no line with grpc's own: grpclib, whose HTTP/2 is Python's h2."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any  # the generated messages carry no types

import pytest
from grpc_health.v1 import health_pb2
from grpclib.client import Channel, UnaryStreamMethod, UnaryUnaryMethod
from grpclib.const import Status
from grpclib.exceptions import GRPCError
from tritonclient.grpc import service_pb2

from router.grpc.rpc import SERVICE
from serving.ports import Call, Reply
from serving.values.vocabulary import QUEUE_FULL
from tests.router.rpc_edge import INFER, Core, Edge, completed, refused, serve, simple_request

pytestmark = pytest.mark.usefixtures("both_servers")


@contextlib.asynccontextmanager
async def channel_to(edge: Edge) -> AsyncIterator[Channel]:
    host, port = edge.address.split(":")
    channel = Channel(host, int(port))
    try:
        yield channel
    finally:
        channel.close()


def infer(channel: Channel) -> Any:
    return UnaryUnaryMethod(channel, INFER, service_pb2.ModelInferRequest, service_pb2.ModelInferResponse)


async def test_grpclib_is_answered_with_trailing_metadata() -> None:
    async with serve() as edge, channel_to(edge) as channel:
        async with infer(channel).open(timeout=60) as stream:
            await stream.send_message(simple_request(id="7"), end=True)
            answer = await stream.recv_message()
            await stream.recv_trailing_metadata()
        assert (answer.id, answer.raw_output_contents[0]) == ("7", bytes(64))
        assert stream.trailing_metadata["x-penstock-variant"] == "exact"
        (call,) = edge.core.calls
        assert call.timeout_us is not None  # its deadline came in grpc-timeout


async def test_grpclib_reads_why_a_call_is_refused() -> None:
    def full(_call: Call) -> Reply:
        return refused(QUEUE_FULL, retry_us=5_000)

    async with serve(Core(full)) as edge, channel_to(edge) as channel:
        with pytest.raises(GRPCError) as caught:
            await infer(channel)(simple_request(), timeout=60)
        assert caught.value.status == Status.RESOURCE_EXHAUSTED
        edge.core.answer = completed
        with pytest.raises(GRPCError, match="'absent' is not found") as caught:
            await infer(channel)(simple_request(model_name="absent"), timeout=60)
        assert caught.value.status == Status.NOT_FOUND
        assert (await infer(channel)(simple_request(), timeout=60)).model_name == "simple"


async def test_grpclib_watches_and_calls_on_one_connection() -> None:
    path = "/grpc.health.v1.Health/Watch"
    async with serve() as edge, channel_to(edge) as channel:
        watch = UnaryStreamMethod(
            channel, path, health_pb2.HealthCheckRequest, health_pb2.HealthCheckResponse
        )
        async with watch.open(timeout=60) as stream:
            await stream.send_message(health_pb2.HealthCheckRequest(service=SERVICE), end=True)
            statuses = []
            for _ in range(3):
                told = await stream.recv_message()
                assert told is not None
                statuses.append(told.status)
                assert (await infer(channel)(simple_request(), timeout=60)).model_name == "simple"
                edge.core.ready = not edge.core.ready
                edge.server.health.look()
            assert statuses == [1, 2, 1]
            await stream.cancel()
