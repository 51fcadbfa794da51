"""`python -m tests.router.ended_edge`: a fault that ends grpc's server ends no edge, and no other call."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any  # grpc carries no types

import grpc

from loadtests.hostile import h2wire
from router.grpc.rpc import RpcServer, accepting
from router.startup.edges import Edges
from tests.router.rpc_edge import Core, Edge, completed, raw_infer, serve, simple_request


@contextlib.asynccontextmanager
async def watched(edge: Edge) -> AsyncIterator[tuple[Edges, asyncio.Event]]:
    """With its watch, and an event that is set as it ends."""
    edges, ended = Edges({"grpc": edge.server}), asyncio.Event()

    def on_end() -> None:
        ended.set()
        edges.look()

    assert isinstance(edge.server, RpcServer)
    edge.server.port.on_end = on_end
    task = asyncio.create_task(edges.run())
    try:
        yield edges, ended
    finally:
        task.cancel()
        await asyncio.wait((task,))


async def _ask_anew(edge: Edge) -> object:
    """On a connection of its own: a call that a client sends on the old server's connection, before it reads
    that server's goodbye, is lost with it."""
    alone = [("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(edge.address, options=alone) as channel:
        return await raw_infer(channel)(simple_request().SerializeToString(), wait_for_ready=True)


class _Faulty(accepting._Core):
    """A call of no method ends it, as faults of grpc's own once did."""

    def _begin(self, name: str, state: Any) -> None:
        if name == accepting.UNKNOWN:
            raise RuntimeError("a fault")
        super()._begin(name, state)


async def main() -> None:
    accepting._Core = _Faulty  # type: ignore[misc]
    async with serve(Core(lambda call: None)) as edge, watched(edge) as (edges, ended), asyncio.timeout(60):
        answer = asyncio.create_task(edge.infer(simple_request()))
        await edge.core.change()
        edge.core.answer = completed
        host, port = edge.address.split(":")
        for count in (1, 2):
            _, writer = await asyncio.open_connection(host, int(port))
            writer.write(h2wire.start() + h2wire.call(1, b"/none", end=True))
            await ended.wait()
            ended.clear()
            writer.close()
            assert await _ask_anew(edge)
            assert edges.states() == {"grpc": (True, count)}
        edge.core.open[1](completed(edge.core.calls[0]))
        assert (await answer).model_name == "simple"  # it was under way all the time


if __name__ == "__main__":
    asyncio.run(main())
