"""What a request of another cell's model costs, beside one of the gateway's own.

python -m loadtests.scaling.cells_cost [--rounds 20]

The gateway's REST edge runs in this process, under uvloop, with a core that answers at once. The other cell
is another process with such a core behind a door for cells. A figure is the CPU time of either process, all
its threads, by request. The cases take turns, so that a noisy machine changes ratios little.
"""

import argparse
import asyncio
import time
from multiprocessing import get_context
from multiprocessing.connection import Connection
from statistics import median

import uvloop

from loadtests.edge.cpu_rounds import measured_us
from loadtests.edge.key_cost import Core
from loadtests.edge.rpc_cost import HOST, REST, ROUND, Case, ask_calls
from router.http.fastpath import RestServer, create_server
from serving.cache.spec import RedisSpec
from serving.compiled import is_compiled
from serving.runtime.cells.caller import CellCaller
from serving.runtime.cells.door import CellDoor
from serving.runtime.cells.serving import CellsServing
from serving.runtime.cells.spec import CellsSpec
from serving.runtime.nodes.dialing import Gateway
from serving.values.specs import Limits

TOKEN = "0123456789abcdef"  # noqa: S105  of this run alone
OWN, OTHER = "own model, 32 x 1", "another cell's, 32 x 1"
SPEC = CellsSpec("b", RedisSpec("redis://nowhere"), TOKEN, port=0)


def serve_cell(told: Connection) -> None:
    """Answer calls of other cells until the pipe ends; the first thing told is the port."""

    async def run() -> None:
        door = CellDoor(SPEC, Core())
        told.send(await door.start(None))
        await asyncio.to_thread(told.poll, None)
        await door.close()

    uvloop.run(run())


def cpu_ns(pid: int) -> int:
    """Return the CPU time of another process (clock_getcpuclockid(3))."""
    return time.clock_gettime_ns((~pid << 3) | 2)


async def _nothing(scope: object, receive: object, send: object) -> None:
    """Stand in for an ASGI application that gets no requests."""


def _edge(serving: object) -> RestServer:
    return create_server(serving, _nothing, HOST, 0, Limits())  # type: ignore[arg-type]  # a Core is enough


async def measure(rounds: int) -> tuple[dict[str, list[float]], float]:
    """Return the us of CPU by request here, by case and round, and the mean in the other cell."""
    ours, theirs = get_context("spawn").Pipe()
    other = get_context("spawn").Process(target=serve_cell, args=(theirs,))
    other.start()
    theirs.close()
    port = await asyncio.to_thread(ours.recv)
    caller = CellCaller("b", Gateway(HOST, port), "a", TOKEN)
    calling = asyncio.create_task(caller.run())
    core = Core()
    passing = CellsServing(core)
    passing.route({"simple": [(caller, 1.0)]}, {"simple"})
    edges = {OWN: _edge(core), OTHER: _edge(passing)}
    cases: dict[str, Case] = {name: (REST, await edge.start(), 32, 1) for name, edge in edges.items()}
    while not caller.connected:  # noqa: ASYNC110  a moment
        await asyncio.sleep(0.01)
    begin_ns = cpu_ns(other.pid or 0)
    try:
        taken = await measured_us(cases, ask_calls, ROUND, rounds)
        other_us = (cpu_ns(other.pid or 0) - begin_ns) / 1e3 / ROUND / (rounds + 1)
    finally:
        for edge in edges.values():
            await edge.drain(0)
        calling.cancel()
        ours.close()
        other.join()
    return taken, other_us


def main() -> None:
    """Print a line for each case."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=20)
    taken, other_us = uvloop.run(measure(parser.parse_args().rounds))
    print(f"us of CPU a request, median of the rounds ({'compiled' if is_compiled() else 'interpreted'}):")
    for name, each in taken.items():
        print(f"  {name:36}{median(each):8.1f}")
    print(f"  {'in the other cell, mean':36}{other_us:8.1f}")


if __name__ == "__main__":
    main()
