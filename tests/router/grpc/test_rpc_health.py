"""grpc.health.v1 beside the inference service, against the stubs of grpc_health."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any  # grpc's clients and messages carry no types

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from router.grpc.rpc import SERVICE
from tests.router.rpc_edge import Edge, serve

pytestmark = pytest.mark.usefixtures("both_servers")

STATUSES = health_pb2.HealthCheckResponse


@contextlib.asynccontextmanager
async def health() -> AsyncIterator[tuple[Edge, Any]]:
    async with serve() as edge, grpc.aio.insecure_channel(edge.address) as channel:
        yield edge, health_pb2_grpc.HealthStub(channel)


def of(service: str) -> Any:
    return health_pb2.HealthCheckRequest(service=service)


@pytest.mark.parametrize("service", ["", SERVICE])
async def test_the_server_is_serving_while_it_is_ready(service: str) -> None:
    async with health() as (edge, stub):
        assert (await stub.Check(of(service))).status == STATUSES.SERVING
        edge.core.ready = False
        assert (await stub.Check(of(service))).status == STATUSES.NOT_SERVING


async def test_a_model_is_a_service_that_serves_while_the_model_is_ready() -> None:
    async with health() as (edge, stub):
        edge.core.down.add("simple")
        assert (await stub.Check(of("simple"))).status == STATUSES.NOT_SERVING
        assert (await stub.Check(of("identity"))).status == STATUSES.SERVING


async def test_an_unknown_service_is_not_found() -> None:
    async with health() as (_, stub):
        with pytest.raises(grpc.aio.AioRpcError, match="no service 'absent'") as caught:
            await stub.Check(of("absent"))
        assert caught.value.code() == grpc.StatusCode.NOT_FOUND
        watch = stub.Watch(of("absent"))
        assert (await watch.read()).status == STATUSES.SERVICE_UNKNOWN
        watch.cancel()


async def test_every_watcher_is_told_of_every_change_also_after_another_has_left() -> None:
    async with health() as (edge, stub):
        first, second = stub.Watch(of("")), stub.Watch(of(""))
        for watch in (first, second):
            assert (await watch.read()).status == STATUSES.SERVING
        first.cancel()
        edge.core.ready = False
        edge.server.health.look()
        assert (await second.read()).status == STATUSES.NOT_SERVING
        edge.core.ready = True
        edge.server.health.look()
        assert (await second.read()).status == STATUSES.SERVING


async def test_stopping_tells_watchers_and_does_not_wait_for_them() -> None:
    async with health() as (edge, stub):
        watch = stub.Watch(of(SERVICE))
        assert (await watch.read()).status == STATUSES.SERVING
        async with asyncio.timeout(30):
            await edge.server.stop(60)
        assert (await watch.read()).status == STATUSES.NOT_SERVING
        assert await watch.read() == grpc.aio.EOF
