"""What a batch costs to a worker and back: over the socket, through shared memory, or over TCP, by payload.

    python -m loadtests.core.ipc [--seconds 0.8]

One batch in flight, gateway on core 0, worker on core 1. Two kinds of traffic: "in" (the payload goes to a
model that reads all of it, 4 bytes a row come back) and "out" (the reverse). The ways alternate, so that a
disturbance of the machine meets all; every figure is the best of its rounds, the least disturbed one.
Microseconds a batch: round trip, and CPU of gateway and worker. `wire.INLINE_BYTES_MAX` comes from here.
TCP is as to a worker on a node, whose agent is in this process.
"""

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import uvloop

from serving.profile.device import device_kind
from serving.runtime.nodes.dialing import Gateway
from serving.runtime.nodes.door import Door
from serving.runtime.nodes.far import FarWorkers
from serving.runtime.nodes.node import Node, NodeSettings
from serving.runtime.nodes.notes import Join
from serving.runtime.slicing.opening import PreparedShares
from serving.runtime.workers.contract import Workers
from serving.runtime.workers.link import Link
from serving.runtime.workers.model_log import ModelLog
from serving.runtime.workers.supervisor import Supervisor
from serving.values.nodes import NodesSpec
from serving.values.slice_specs import SliceSpec, WorkersSpec
from serving.values.specs import ModelSpec, TensorSpec, VariantSpec
from serving.worker.frames.batches import BatchInput, BatchResult
from serving.worker.frames.orders import Loaded, MeasuredBatches

ROWS = 32
PAYLOADS = (*(1 << exponent for exponent in range(12, 23)), 8 * 3 * 224 * 224 * 4)  # the last: 8 pictures
ROUNDS = 8
ALWAYS_INLINE = 1 << 31
WAYS = ("socket", "shared", "TCP")
TOKEN: Final = "of this run alone"  # noqa: S105

MODEL = """
import numpy as np
class Model:
    def __init__(self): self.kept = {}
    def predict(self, inputs, parameters):
        columns = parameters.get("columns")
        if columns is None:
            return {"Y": inputs["X"].sum(axis=1, keepdims=True)}
        if columns not in self.kept:
            self.kept[columns] = np.ones((len(inputs["X"]), columns), np.float32)
        return {"Y": self.kept[columns]}
    def sample(self, rows, size):
        return {"X": np.ones((rows, 1), np.float32)}
def load(artifact, options):
    return Model()
"""


class Traffic:
    """Sends the same batch over and over, the next one as soon as one is back. A `LinkEvents`."""

    def __init__(self) -> None:
        self.ready: asyncio.Future[Link] = asyncio.get_running_loop().create_future()
        self.loaded: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._done: asyncio.Future[None] | None = None
        self._inputs: list[BatchInput] = []
        self._columns = 0
        self._until = 0.0
        self._count = 0

    async def drive(self, inputs: list[BatchInput], columns: int, seconds: float) -> int:
        """Count the batches that went through within `seconds`; `columns` > 0 asks for an answer that
        wide."""
        self._inputs, self._columns, self._count = inputs, columns, 0
        self._done = asyncio.get_running_loop().create_future()
        self._until = time.perf_counter() + seconds
        self._send(await self.ready)
        await self._done
        return self._count

    def _send(self, link: Link) -> None:
        parameters = (("columns", self._columns),) if self._columns else ()
        link.run(self._count, 1, ROWS, self._inputs, parameters)

    def batch_done(self, link: Link, _result: BatchResult) -> None:
        self._count += 1
        if time.perf_counter() < self._until:
            self._send(link)
        elif self._done is not None:
            self._done.set_result(None)

    def worker_ready(self, link: Link) -> None:
        self.ready.set_result(link)

    def replica_loaded(self, _link: Link, _loaded: Loaded) -> None:
        self.loaded.set_result(None)

    def replica_failed(self, _link: Link, _replica: int, message: str) -> None:
        self.loaded.set_exception(RuntimeError(message))

    def replica_unloaded(self, link: Link, replica: int) -> None: ...

    def batch_failed(self, _link: Link, _batch_id: int, message: str, _bad_input: bool = False) -> None:
        raise RuntimeError(message)

    def measured(self, link: Link, found: MeasuredBatches) -> None: ...

    def device_leaving(self, domain: str, reason: str) -> None: ...

    def device_lost(self, domain: str, reason: str) -> None: ...

    def device_back(self, domain: str) -> None: ...

    def worker_lost(self, _link: Link, reason: str) -> None:
        if not self.ready.done():
            self.ready.set_exception(RuntimeError(reason))


def cpu_us(pid: int) -> float:
    """Return the CPU time of a process's main thread so far, finer than the 10 ms ticks of
    `loadtests.harness.processes`."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1000


async def measure(traffic: Traffic, link: Link, payload: int, way: str, seconds: float) -> tuple[float, ...]:
    """Return round trip, gateway CPU and worker CPU, in us a batch."""
    columns = payload // (4 * ROWS)
    wide = columns if way == "in" else 1
    inputs = [BatchInput("FP32", (wide,), [bytes(4 * wide) for _ in range(ROWS)])]
    await traffic.drive(inputs, columns if way == "out" else 0, seconds / 10)
    started, ours, theirs = time.perf_counter(), cpu_us(os.getpid()), cpu_us(link.pid)
    count = await traffic.drive(inputs, columns if way == "out" else 0, seconds)
    trip_us = (time.perf_counter() - started) * 1e6
    return trip_us / count, (cpu_us(os.getpid()) - ours) / count, (cpu_us(link.pid) - theirs) / count


async def loaded(workers: Workers, traffic: Traffic, spec: SliceSpec, folder: Path) -> Link:
    """Return the link of a worker that has the model."""
    await workers.start(spec)
    link = await traffic.ready
    inputs, outputs = (TensorSpec("X", "FP32", (-1, -1)),), (TensorSpec("Y", "FP32", (-1, -1)),)
    variants = (VariantSpec("only", None),)
    link.load(1, ModelSpec("ipc", folder, inputs, outputs, variants, "only", 0, ROWS), "only")
    await traffic.loaded
    return link


@asynccontextmanager
async def far_workers(traffic: Traffic, folder: Path) -> AsyncIterator[FarWorkers]:
    """Yield the workers of a node that has joined. Its agent is in this process."""
    log, spec = ModelLog(), NodesSpec(port=0, token=TOKEN)
    far = FarWorkers(traffic, traffic, log)
    door = Door(spec, far, WorkersSpec(), log, TOKEN)
    join = Join(device_kind(SliceSpec("", ())), 2, 0, {}, TOKEN)
    settings = NodeSettings("ipc", TOKEN, join, (0, 1), folder / "cache", 1 << 30, 0.0)
    node = Node([Gateway(spec.host, await door.start())], settings, PreparedShares)
    running = asyncio.create_task(node.run())
    while "ipc" not in far.sessions:  # noqa: ASYNC110  once
        await asyncio.sleep(0.01)
    try:
        yield far
    finally:
        await far.stop()
        await node.stop()
        await running
        await door.close()


async def sweep(folder: Path, seconds: float) -> None:
    """Print the table; the model's code is in `folder`."""
    near, distant = Traffic(), Traffic()
    supervisor = Supervisor(near)
    async with far_workers(distant, folder.parent) as far:
        link = await loaded(supervisor, near, SliceSpec("ipc", (1,)), folder)
        tcp = await loaded(far, distant, SliceSpec("far", (1,), node="ipc"), folder)
        heads = (f"{each}: trip | gateway + worker" for each in WAYS)
        print(f"| way | KiB | {' | '.join(heads)} |\n" + "|---" * (2 + 2 * len(WAYS)) + "|")
        for way in ("in", "out"):
            for payload in PAYLOADS:
                rounds: dict[str, list[tuple[float, ...]]] = {each: [] for each in WAYS}
                for _ in range(ROUNDS):
                    for name, found in rounds.items():
                        link.inline_bytes_max = 0 if name == "shared" else ALWAYS_INLINE
                        asked = (distant, tcp) if name == "TCP" else (near, link)
                        found.append(await measure(*asked, payload, way, seconds / ROUNDS))
                cells = [[min(column) for column in zip(*found, strict=True)] for found in rounds.values()]
                shown = " | ".join(f"{trip:.0f} | {ours:.0f} + {theirs:.0f}" for trip, ours, theirs in cells)
                print(f"| {way} | {payload >> 10} | {shown} |", flush=True)
        await supervisor.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0.8, help="a cell")
    asked = parser.parse_args()
    os.sched_setaffinity(0, {0})
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made, "model")
        folder.mkdir()
        (folder / "model.py").write_text(MODEL)
        uvloop.run(sweep(folder, asked.seconds))
