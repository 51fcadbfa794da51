"""A gRPC edge to test with: a real server on a free port, and a core that does what a test says.

The fixture `both_servers` (tests/router/conftest.py) runs a test with each server.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Unpack  # grpc's clients and messages carry no types

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2

from router.grpc.rpc import SERVICE
from router.grpc.servers import RPC_SERVERS
from router.management.sharedmemory import shared_memory_methods
from router.observing.telemetry import Telemetry
from router.payloads.bulk.pool import Bulk
from router.payloads.regions.registry import open_registry
from router.settings.values.client_shm import ClientShm
from serving.ports import Call, Reply
from serving.values.specs import DEFAULT_TENANT, Limits, ServedModel, TenantSpec
from serving.values.vocabulary import CLIENT_GONE, COMPLETED, Outcome
from tests.router.fakes import IDENTITY, SIMPLE, TENANTS, compute
from tests.router.http.fastpath.wire import Doors

INFER = f"/{SERVICE}/ModelInfer"
GRPCIO, NGH2 = "grpcio", "ngh2"


class Chosen:
    """Which server a test's edges have."""

    server = GRPCIO


def completed(call: Call) -> Reply:
    """The right answer of the fakes' models."""
    reply = Reply(COMPLETED)
    reply.outputs = compute(call)
    reply.variant, reply.batch_rows = "exact", call.rows
    return reply


class Core:
    """A `Serving` that answers by `answer` at once, or keeps the call open where that returns None."""

    def __init__(self, answer: Callable[[Call], Reply | None] = completed) -> None:
        self.models: Mapping[str, ServedModel] = {model.name: model for model in (SIMPLE, IDENTITY)}
        self.tenants: Mapping[str, TenantSpec] = TENANTS
        self.telemetry = Telemetry(self.models.values(), self.tenants)
        self.ready = True
        self.down: set[str] = set()
        self.answer = answer
        self.calls: list[Call] = []
        self.open: dict[int, Callable[[Reply], None]] = {}
        self.cancelled: list[int] = []
        self.turned_away: list[tuple[str, Outcome, str]] = []
        self.changed = asyncio.Event()  # a call came, or one was cancelled
        self.clock_us = 5_000_000

    @property
    def open_requests(self) -> int:
        return len(self.open)

    def refused(self, model: str, outcome: Outcome, tenant: str = DEFAULT_TENANT) -> None:
        self.turned_away.append((model, outcome, tenant))

    def answered(self, model: str, reply: Reply, read_us: int, made_us: int) -> None:
        self.telemetry.answered(model, reply, read_us, made_us)

    def model_ready(self, name: str) -> bool:
        return name not in self.down

    def now_us(self) -> int:
        return self.clock_us

    def submit(self, call: Call, deliver: Callable[[Reply], None]) -> int:
        self.calls.append(call)
        self.changed.set()
        reply = self.answer(call)
        if reply is not None:
            deliver(reply)
            return 0
        self.open[len(self.calls)] = deliver
        return len(self.calls)

    def cancel(self, request_id: int) -> None:
        self.cancelled.append(request_id)
        self.changed.set()
        self.open.pop(request_id)(Reply(CLIENT_GONE))

    def invalidate(self, model: str = "") -> int:
        return 0

    async def change(self) -> None:
        async with asyncio.timeout(60):
            await self.changed.wait()
        self.changed.clear()


class Edge:
    """A running server with its core."""

    def __init__(self, core: Core, limits: Limits, shm: ClientShm | None = None) -> None:
        self.core = core
        statistics = core.telemetry.statistics
        self.server = RPC_SERVERS[Chosen.server](core, "penstock", "1.2.3", limits, "127.0.0.1", statistics)
        self.bulk = Bulk(limits)
        self.regions = open_registry(shm, limits, self.bulk, lambda: self.server.calls.account.refusal())
        self.server.offer(shared_memory_methods(self.regions))
        if self.regions is not None:
            self.server.share(self.regions)
        self.address = ""

    async def infer(self, request: Any, **options: Any) -> Any:
        async with grpc.aio.insecure_channel(self.address) as channel:
            return await raw_infer(channel)(request.SerializeToString(), **options)


def refused(outcome: Outcome, retry_us: int = 0, queue_us: int = 0) -> Reply:
    """The reply to a call that is not completed."""
    reply = Reply(outcome)
    reply.retry_us, reply.queue_us = retry_us, queue_us
    return reply


def raw_infer(channel: Any) -> Any:
    """The method with requests as bytes, which lets a test send damaged ones."""
    return channel.unary_unary(INFER, None, service_pb2.ModelInferResponse.FromString)


@contextlib.asynccontextmanager
async def serve(
    core: Core | None = None,
    limits: Limits | None = None,
    access: bool = False,
    bulk: Bulk | None = None,
    **doors: Unpack[Doors],
) -> AsyncIterator[Edge]:
    edge = Edge(core or Core(), limits or Limits(), doors.get("shm"))
    if bulk is not None:
        edge.server.use(bulk)
    if (guard := doors.get("guard")) is not None:
        edge.server.ask_for_keys(guard)
    if (gate := doors.get("gate")) is not None:
        edge.server.encrypt(gate)
    if access:
        edge.server.log_access()
    edge.address = f"127.0.0.1:{await edge.server.start(0)}"
    try:
        yield edge
    finally:
        await edge.server.stop(0)


def simple_request(**fields: Any) -> Any:
    request = service_pb2.ModelInferRequest(**{"model_name": "simple", **fields})
    for name in ("INPUT0", "INPUT1"):
        request.inputs.add(name=name, datatype="INT32", shape=[1, 16])
        request.raw_input_contents.append(bytes(64))
    return request


def simple_inputs(module: Any, rows: int = 1) -> list[Any]:
    """A tritonclient module's inputs for `simple`: 0, 1, 2... and all ones."""
    a = np.arange(16 * rows, dtype=np.int32).reshape(rows, 16)
    inputs = [module.InferInput(f"INPUT{i}", [rows, 16], "INT32") for i in (0, 1)]
    inputs[0].set_data_from_numpy(a)
    inputs[1].set_data_from_numpy(np.ones_like(a))
    return inputs


async def error_of(answer: Any) -> tuple[grpc.StatusCode, str]:
    """Code and sentence of a call that fails."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await answer
    return caught.value.code(), caught.value.details()


async def fields_of(answer: Any) -> dict[str, str]:
    """The trailing metadata of a call that fails."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await answer
    return dict(caught.value.trailing_metadata())
