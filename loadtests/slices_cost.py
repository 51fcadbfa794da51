"""What the scheduler costs, by the number of slices: microseconds of one core per request of one row.

    python -m loadtests.slices_cost [--slices 1 8 32 100 300] [--load 0.5] [--rounds 5] [--calls]

One model is on all slices, and its requests come by chance (Poisson), at a share of what the slices carry. A
discrete clock plays arrivals, batches and timers; only the scheduler's own calls are timed. So no socket, no
tensor and no other process is in the figures, except for what others take of this core. With `--calls`
Python calls are counted instead: they are the same on any machine.
"""

import argparse
import gc
import heapq
import os
import statistics
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random
from time import perf_counter_ns
from types import FrameType

if "--calls" in sys.argv:
    os.environ["PENSTOCK_INTERPRETED"] = "1"  # machine code has no calls to count

from serving.profile.curve import Point, Profile
from serving.profile.latency import Latency
from serving.scheduler.commands import Command, RunBatch
from serving.scheduler.replicas import Replica
from serving.scheduler.requests import Request
from serving.scheduler.scheduler import Scheduler
from serving.specs import Limits, ModelSpec, ServedModel, VariantSpec
from serving.vocabulary import NEVER_US

SLICES = (1, 8, 32, 100, 300)
MODEL, VARIANTS = "m", ("a",)
BATCH_MAX, BATCH_US, ROW_US, SLO_US = 32, 5_000, 1_000, 200_000
REQUESTS = 20_000
"""Of a round; the first tenth of them is not timed."""


class Fleet:
    """A scheduler with one model on `slices` slices, and its requests to come."""

    def __init__(self, slices: int, load: float, seed: int, counts_calls: bool = False) -> None:
        names = tuple(f"slice-{number}" for number in range(slices))
        spec = ModelSpec(MODEL, Path(), (), (), (VariantSpec("a", None),), "a", SLO_US, BATCH_MAX)
        model = ServedModel(spec, SLO_US, VARIANTS, names)
        self.scheduler = Scheduler([model], Limits(), devices={name: name for name in names})
        points = tuple(Point(0, rows, took_us(rows), took_us(rows), 30) for rows in (1, 8, BATCH_MAX))
        latency = Latency(Profile(MODEL, "a", "none", points))
        for number, name in enumerate(names):
            self.scheduler.replica_up(name, MODEL, Replica(number, "a", latency, model), 0)
        self._gap_us = took_us(BATCH_MAX) / BATCH_MAX / slices / load
        self._random = Random(seed)
        self._running: list[tuple[int, int, int]] = []  # (when a batch is back, its number, its rows)
        self._timed_ns = self._calls = self.rows = self.batches = 0
        self._counts_calls = counts_calls

    def play(self, requests: int) -> float:
        """Return the scheduler's microseconds per request, or its calls."""
        at_us = 1.0
        for number in range(1, requests + 1):
            if number == requests // 10:
                self._timed_ns = self._calls = self.rows = self.batches = 0
            at_us += self._random.expovariate(1 / self._gap_us)
            self._until(int(at_us))
            request = Request(number, MODEL, 1, int(at_us), int(at_us) + SLO_US)
            request.variants = VARIANTS
            self._call(partial(self.scheduler.arrive, request), int(at_us))
        self._until(NEVER_US - 1)
        return (self._calls if self._counts_calls else self._timed_ns / 1e3) / max(self.rows, 1)

    def _until(self, end_us: int) -> None:
        """Play what is due until then: batches that are back, and the scheduler's timers."""
        while True:
            back_us = self._running[0][0] if self._running else NEVER_US
            at_us = min(back_us, self.scheduler.wake_us)
            if at_us > end_us:
                return
            if back_us > at_us:
                if not self.scheduler.open_requests and end_us >= NEVER_US - 1:
                    return  # only reviews are left
                self._call(self.scheduler.wake, at_us)
                continue
            _, batch, rows = heapq.heappop(self._running)
            self.rows += rows
            self.batches += 1
            self._call(partial(self.scheduler.batch_done, batch, took_us(rows)), at_us)

    def _call(self, call: Callable[[int], Sequence[Command]], now_us: int) -> None:
        """Time a call, and send its batches."""
        if self._counts_calls:
            sys.setprofile(self._count)
        begin_ns = perf_counter_ns()
        commands = call(now_us)
        self._timed_ns += perf_counter_ns() - begin_ns
        sys.setprofile(None)
        for each in commands:
            if isinstance(each, RunBatch):
                rows = len(each.pieces)
                heapq.heappush(self._running, (now_us + took_us(rows), each.id, rows))

    def _count(self, _frame: FrameType, event: str, _argument: object) -> None:
        self._calls += event == "call"


def took_us(rows: int) -> int:
    """Return what a batch takes."""
    return BATCH_US + ROW_US * rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--slices", type=int, nargs="+", default=SLICES)
    parser.add_argument("--load", type=float, default=0.5, help="share of what full batches carry")
    parser.add_argument("--rounds", type=int, default=5, help="rounds whose median is printed")
    parser.add_argument("--calls", action="store_true", help="count calls of Python functions instead")
    asked = parser.parse_args()
    unit = "calls" if asked.calls else "us"
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    print(f"one model at {asked.load:g} of its capacity, medians of {asked.rounds} x {REQUESTS} requests")
    print(f"{'slices':>7}{f'{unit} a request':>17}{f'{unit} a batch':>15}{'rows a batch':>14}{'times':>8}")
    first = 0.0
    for count in asked.slices:
        costs, rows = [], 0.0
        for seed in range(asked.rounds):
            gc.collect()
            fleet = Fleet(count, asked.load, seed, asked.calls)
            costs.append(fleet.play(REQUESTS))
            rows = fleet.rows / max(fleet.batches, 1)
        cost = statistics.median(costs)
        first = first or cost
        print(f"{count:7}{cost:17.1f}{cost * rows:15.1f}{rows:14.1f}{cost / first:8.2f}", flush=True)


if __name__ == "__main__":
    main()
