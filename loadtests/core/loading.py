"""What batches of one model wait while the same worker loads and unloads another beside them.

    python -m loadtests.core.loading [--rounds 5] [--serve digits:cnn] [--load minilm:fp32-128 resnet50:fp32]

Batches of one row, the next as soon as one is back; gateway on core 0, worker on core 1. First the model
alone, for a second; then the other is loaded and unloaded, again and again. Milliseconds a round trip.
"""

import argparse
import asyncio
import os
import time
from pathlib import Path

import numpy as np
import uvloop

from router.settings import load_model
from serving.runtime.workers.link import Link
from serving.runtime.workers.supervisor import Supervisor
from serving.values.slice_specs import SliceSpec
from serving.values.specs import ModelSpec
from serving.worker.frames.batches import BatchInput, BatchResult
from serving.worker.frames.orders import Loaded, MeasuredBatches

MODELS = Path(__file__).parents[2] / "models"
ROW = {"FP32": 4, "INT32": 4}


class Traffic:
    """Sends the same row over and over. A `LinkEvents`."""

    def __init__(self) -> None:
        self.ready: asyncio.Future[Link] = asyncio.get_running_loop().create_future()
        self.settled: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self.trips_ms: list[float] = []
        self._inputs: list[BatchInput] = []
        self._sent = 0.0

    def drive(self, link: Link, spec: ModelSpec) -> None:
        """Start sending one row of zeros at a time to replica 0."""
        for tensor in spec.inputs:
            dims = tensor.shape[1:]
            data = bytes(ROW[tensor.datatype] * int(np.prod(dims)))
            self._inputs.append(BatchInput(tensor.datatype, dims, [data]))
        self._send(link)

    async def settle(self) -> float:
        """Wait until a replica is loaded or unloaded; return the seconds that its load took, by the worker's
        account."""
        self.settled = asyncio.get_running_loop().create_future()
        return await self.settled

    def _send(self, link: Link) -> None:
        self._sent = time.perf_counter()
        link.run(1, 0, 1, self._inputs, ())

    def batch_done(self, link: Link, _result: BatchResult) -> None:
        self.trips_ms.append((time.perf_counter() - self._sent) * 1000)
        self._send(link)

    def worker_ready(self, link: Link) -> None:
        self.ready.set_result(link)

    def replica_loaded(self, _link: Link, loaded: Loaded) -> None:
        self.settled.set_result(loaded.load_us / 1e6)

    def replica_unloaded(self, _link: Link, _replica: int) -> None:
        self.settled.set_result(0.0)

    def replica_failed(self, _link: Link, _replica: int, message: str) -> None:
        self.settled.set_exception(RuntimeError(message))

    def batch_failed(self, _link: Link, _batch_id: int, message: str, _bad_input: bool = False) -> None:
        raise RuntimeError(message)

    def measured(self, link: Link, found: MeasuredBatches) -> None: ...

    def worker_lost(self, _link: Link, reason: str) -> None:
        if not self.ready.done():
            self.ready.set_exception(RuntimeError(reason))


def show(what: str, trips_ms: list[float], took_s: list[float]) -> None:
    """Print a row of the table."""
    half, most, worst = np.percentile(trips_ms, (50, 99, 100))
    took = f"{np.median(took_s):.2f}" if took_s else ""
    print(f"| {what} | {took} | {len(trips_ms)} | {half:.2f} | {most:.2f} | {worst:.1f} |", flush=True)


async def measure(served: str, loads: list[str], rounds: int) -> None:
    """Print the table of one worker."""
    traffic = Traffic()
    supervisor = Supervisor(traffic)
    await supervisor.start(SliceSpec("loading", (1,)))
    link = await traffic.ready
    model, variant = served.split(":")
    link.load(0, load_model(MODELS / model), variant)
    await traffic.settle()
    traffic.drive(link, load_model(MODELS / model))
    await asyncio.sleep(1)
    print(f"| {served} beside | took s | batches | median | 99 % | longest |\n|---|---|---|---|---|---|")
    show("nothing", traffic.trips_ms, [])
    for number, other in enumerate(loads):
        model, variant = other.split(":")
        spec = load_model(MODELS / model)
        trips: dict[str, list[float]] = {"loading": [], "unloading": []}
        took: dict[str, list[float]] = {"loading": [], "unloading": []}
        for each in range(1, rounds + 1):
            replica = number * rounds + each
            for way in trips:
                traffic.trips_ms, started = [], time.perf_counter()
                if way == "loading":
                    link.load(replica, spec, variant)
                else:
                    link.unload(replica)
                await traffic.settle()
                took[way].append(time.perf_counter() - started)
                trips[way] += traffic.trips_ms
                await asyncio.sleep(0.2)
        for way, found in trips.items():
            show(f"{way} {other}", found, took[way])
    await supervisor.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--serve", default="digits:cnn", metavar="MODEL:VARIANT")
    parser.add_argument("--load", nargs="+", default=["minilm:fp32-128", "resnet50:fp32"])
    asked = parser.parse_args()
    os.sched_setaffinity(0, {0})
    uvloop.run(measure(asked.serve, asked.load, asked.rounds))
