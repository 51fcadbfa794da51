"""How fast the simulator is, and what decisions cost in it: the real scheduler, one core, no process beside.

  python -m loadtests.virtual.simulation_cost [--policy slo] [--calls]

Both are of CPU time, so that other work on the machine shows little. Decisions: each event of the scheduler,
its median and 99th percentile in microseconds. With `--calls` only these, in Python calls: they are the same
on any machine.
"""

import argparse
import gc
import os
import sys
from collections.abc import Callable, Sequence
from time import process_time, thread_time_ns
from types import FrameType

if "--calls" in sys.argv:
    os.environ["PENSTOCK_INTERPRETED"] = "1"  # machine code has no calls to count

import numpy as np

from loadtests.virtual.virtual_world import Run, World, offer
from serving.policy.batching.catalogue import POLICIES
from serving.scheduler.commands import Command
from serving.scheduler.scheduler import Scheduler
from serving.scheduler.waiting.requests import Request
from serving.values.specs import BatchingSpec

SPEEDS = (  # models, slices, SLO in ms, requests/s, seconds
    ("A, 300/s", 1, 1, 25, 300, 60), ("A, 1000/s", 1, 1, 25, 1000, 30), ("D, 5000/s", 1, 8, 25, 5000, 6),
    ("E, 600/s", 4, 1, 100, 600, 30), ("F, 5000/s", 10, 8, 50, 5000, 5),
)  # fmt: skip
DECISIONS = ((1, 8, 5000), (10, 8, 5000), (50, 1, 300), (50, 8, 4000))  # models, slices, requests/s
DECISION_SLO_US = 100_000
REQUESTS = 20_000
Clock = Callable[[], int]
EVENTS = ("arrive", "wake", "batch_done")


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--policy", choices=sorted(POLICIES), default="slo")
    parser.add_argument("--calls", action="store_true", help="count calls of Python functions instead")
    asked = parser.parse_args()
    policy = BatchingSpec(asked.policy, guard_us=0)
    if not asked.calls:
        _print_speeds(policy)
    _print_decisions(policy, asked.calls)


def _print_speeds(policy: BatchingSpec) -> None:
    print(f"{'workload':12}{'requests/s':>12}{'us a batch':>12}{'rows a batch':>14}")
    for name, models, slices, slo_ms, rate, seconds in SPEEDS:
        world = World(policy, slices, models, slo_ms * 1000)
        arrivals = list(offer(world, rate, seconds, 0))
        run = Run(world)
        begin_s = process_time()
        tally = run.play(arrivals)
        took_s = process_time() - begin_s
        batches = max(tally.batches, 1)
        batch_us = took_s / batches * 1e6
        print(f"{name:12}{len(arrivals) / took_s:12.0f}{batch_us:12.0f}{tally.rows / batches:14.1f}")


def _print_decisions(policy: BatchingSpec, is_in_calls: bool) -> None:
    unit = "calls" if is_in_calls else "us"
    print(f"\n{'models':8}{'slices':>8}" + "".join(f"{f'{event} p50, p99 {unit}':>27}" for event in EVENTS))
    for models, slices, rate in DECISIONS:
        world = World(policy, slices, models, DECISION_SLO_US)
        taken = counted(world, rate) if is_in_calls else decisions(world, rate)
        cells = (np.percentile(taken[event], [50, 99]) / (1 if is_in_calls else 1000) for event in EVENTS)
        print(f"{models:<8}{slices:8}" + "".join(f"{p50:17.0f}{p99:10.0f}" for p50, p99 in cells), flush=True)


class Calls:
    """How many Python functions have been called."""

    def __init__(self) -> None:
        self._count = 0

    def now(self) -> int:
        """Return how many so far."""
        return self._count

    def note(self, _frame: FrameType, event: str, _argument: object) -> None:
        """Count a call; for `sys.setprofile`."""
        self._count += event == "call"


class Timed(Scheduler):
    """Takes the time of its events, by a clock."""

    taken: dict[str, list[int]]
    clock: Clock

    def arrive(self, request: Request, now_us: int) -> Sequence[Command]:
        begin = self.clock()
        commands = super().arrive(request, now_us)
        self.taken["arrive"].append(self.clock() - begin)
        return commands

    def wake(self, now_us: int) -> Sequence[Command]:
        begin = self.clock()
        commands = super().wake(now_us)
        self.taken["wake"].append(self.clock() - begin)
        return commands

    def batch_done(self, batch_id: int, compute_us: int, now_us: int) -> Sequence[Command]:
        begin = self.clock()
        commands = super().batch_done(batch_id, compute_us, now_us)
        self.taken["batch_done"].append(self.clock() - begin)
        return commands


class TimedRun(Run):
    def __init__(self, world: World, clock: Clock) -> None:
        self.clock = clock
        super().__init__(world)

    def build(self) -> Timed:
        scheduler = Timed(self.site.served, self.site.limits)
        scheduler.taken, scheduler.clock = {event: [] for event in EVENTS}, self.clock
        return scheduler


def decisions(
    world: World, rate: float, requests: int = REQUESTS, seed: int = 0, clock: Clock = thread_time_ns
) -> dict[str, list[int]]:
    """Return what each event of the scheduler takes, by kind; nanoseconds where no other clock is given."""
    run = TimedRun(world, clock)
    assert isinstance(run.scheduler, Timed)  # noqa: S101
    taken = run.scheduler.taken
    arrivals = list(offer(world, rate, requests / rate, seed))
    gc.disable()
    run.play(arrivals)
    gc.enable()
    return taken


def counted(world: World, rate: float, requests: int = REQUESTS, seed: int = 0) -> dict[str, list[int]]:
    """Return the same in calls of Python functions."""
    calls = Calls()
    sys.setprofile(calls.note)
    try:
        return decisions(world, rate, requests, seed, calls.now)
    finally:
        sys.setprofile(None)


if __name__ == "__main__":
    main()
