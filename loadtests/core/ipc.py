"""What a batch costs on its way to a worker and back: over the socket or through shared memory, by payload.

    python -m loadtests.core.ipc [--seconds 0.8]

One batch in flight, gateway on core 0, worker on core 1. Two kinds of traffic: "in" (the payload goes to a
model that reads all of it, 4 bytes a row come back) and "out" (the reverse). The two ways alternate, so that
a disturbance of the machine meets both; every figure is the best of its rounds, the least disturbed one.
Microseconds a batch: round trip, and CPU of gateway and worker. `wire.INLINE_BYTES_MAX` comes from here.
"""

import argparse
import asyncio
import os
import tempfile
import time
from pathlib import Path

import uvloop

from serving.runtime.workers.link import Link
from serving.runtime.workers.supervisor import Supervisor
from serving.values.slice_specs import SliceSpec
from serving.values.specs import ModelSpec, TensorSpec, VariantSpec
from serving.worker.frames.batches import BatchInput, BatchResult
from serving.worker.frames.orders import Loaded, MeasuredBatches

ROWS = 32
PAYLOADS = tuple(1 << exponent for exponent in range(12, 24))
ROUNDS = 8
ALWAYS_INLINE = 1 << 31

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

    def batch_failed(self, _link: Link, _batch_id: int, message: str) -> None:
        raise RuntimeError(message)

    def measured(self, link: Link, found: MeasuredBatches) -> None: ...

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


async def sweep(folder: Path, seconds: float) -> None:
    """Print the table; the model's code is in `folder`."""
    traffic = Traffic()
    supervisor = Supervisor(traffic)
    await supervisor.start(SliceSpec("ipc", (1,)))
    link = await traffic.ready
    inputs, outputs = (TensorSpec("X", "FP32", (-1, -1)),), (TensorSpec("Y", "FP32", (-1, -1)),)
    variants = (VariantSpec("only", None),)
    link.load(1, ModelSpec("ipc", folder, inputs, outputs, variants, "only", 0, ROWS), "only")
    await traffic.loaded
    print("| way | KiB | socket: trip | gateway + worker | shared: trip | gateway + worker |")
    print("|---|---|---|---|---|---|")
    for way in ("in", "out"):
        for payload in PAYLOADS:
            rounds: dict[int, list[tuple[float, ...]]] = {ALWAYS_INLINE: [], 0: []}
            for _ in range(ROUNDS):
                for inline_bytes_max, found in rounds.items():
                    link.inline_bytes_max = inline_bytes_max
                    found.append(await measure(traffic, link, payload, way, seconds / ROUNDS))
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
        Path(made, "model.py").write_text(MODEL)
        uvloop.run(sweep(Path(made), asked.seconds))
