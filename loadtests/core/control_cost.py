"""What an event of control costs, by the number of slices: calls of Python functions, and interpreter steps.

    python -m loadtests.core.control_cost [--slices 8 64 448] [--models 1]

Counts do not depend on what else the machine does, so they can be compared between two versions anywhere.
Rehearsed slices of one model start, load, lose their workers one by one (as when their host is killed),
start again and load again, in virtual time. `control` is each event's call of `serving.control`; `plane` is
what its commands cost the scheduler. Both are of the last events of their kind, when all slices are there.
"""

import argparse
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

os.environ["PENSTOCK_INTERPRETED"] = "1"  # machine code has no steps to count

from serving.control.commands import (
    Command,
    Expect,
    LoadReplica,
    Route,
    ServeModel,
    StartWorker,
    Withdraw,
)
from serving.control.control import Control
from serving.profile.curve import Point, Profile
from serving.profile.derived.latency import Latency
from serving.scheduler.commands import RunBatch
from serving.scheduler.scheduler import Scheduler
from serving.scheduler.slices.replicas import Replica
from serving.scheduler.waiting.requests import Request
from serving.values.slice_specs import Share, SliceSpec
from serving.values.specs import Limits, ModelSpec, ServedModel, TensorSpec, VariantSpec
from serving.values.vocabulary import NEVER_US

SLICES, PER_DEVICE = (8, 64, 448), 7
KIND, SHARE = "gpu-nvidia-h200", "mig:1g.18gb"
SLO_US, BATCH_US, BATCH_MAX = 1_000_000, 100_000, 16
COUNTED = 4
"""The last so many events of a kind are counted."""


class Steps:
    """Calls and steps of what runs inside `count`."""

    def __init__(self) -> None:
        self.calls = self.steps = 0

    def count(self, call: Callable[[], Any]) -> Any:
        """Return what `call` returns."""
        self.calls = self.steps = 0
        sys.settrace(self._trace)
        try:
            return call()
        finally:
            sys.settrace(None)

    def _trace(self, frame: FrameType, event: str, _argument: object) -> "Any":
        if event == "call":
            self.calls += 1
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
        elif event == "opcode":
            self.steps += 1
        return self._trace


class Fleet:
    """Control and the scheduler of one gateway, without workers: what they would say is said at once."""

    def __init__(self, slices: int, models: int) -> None:
        specs = [_slice(number) for number in range(slices)]
        names = tuple(spec.name for spec in specs)
        share = max(slices // models, 1)
        served = [
            _served(f"m{number}", names[number * share : (number + 1) * share]) for number in range(models)
        ]
        known = {(name, model.name, "a"): _profile(model.name) for model in served for name in model.slices}
        self.devices = {spec.name: spec.device for spec in specs}
        self.control = Control(specs, served, known, Limits(), lambda spec: spec.kind)
        self.scheduler = Scheduler(served, Limits(), devices=self.devices)
        self.models = {model.name: model for model in served}
        self.now_us = 1_000_000
        self.left: list[Command] = []
        self.costs: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        self.requests = 0

    def play(self) -> None:
        """Start all slices, lose them and let them come back."""
        self._event("start", self.control.start)
        self._bring_up("")
        self._answer_requests()
        for name in [*self.control.slices]:
            self._event("worker lost", partial(self.control.worker_lost, name, "was killed"))
        while self.control.wake_us < self.now_us + 60_000_000 and not self._started():
            self.now_us = max(self.now_us + 1, self.control.wake_us)
            self._event("tick", lambda now_us: self.control.tick(now_us, ()))
        self._bring_up(" again")

    def _bring_up(self, again: str) -> None:
        for command in self._started():
            self._event(f"worker ready{again}", partial(self.control.worker_ready, command.slice))
        self.left = [each for each in self.left if not isinstance(each, StartWorker)]
        for load in [each for each in self.left if isinstance(each, LoadReplica)]:
            self._event(f"replica loaded{again}", partial(self._loaded, load))
        self.left = []

    def _loaded(self, load: LoadReplica, now_us: int) -> Sequence[Command]:
        return self.control.replica_loaded(load.slice, load.replica, (100_000, 1 << 28), now_us, ())

    def _started(self) -> list[StartWorker]:
        return [each for each in self.left if isinstance(each, StartWorker)]

    def _event(self, kind: str, call: Callable[[int], Sequence[Command]]) -> None:
        self.now_us += 10
        commands = self._count(f"control: {kind}", partial(call, self.now_us))
        self.left += commands
        for command in commands:
            self._count(f"plane: {type(command).__name__}", partial(self._plane, command))

    def _plane(self, command: Command) -> None:
        scheduler, now_us = self.scheduler, self.now_us
        if isinstance(command, Route):
            replica = Replica(
                command.replica, command.variant, Latency(command.profile), self.models[command.model]
            )
            scheduler.replica_up(command.slice, command.model, replica, now_us)
        elif isinstance(command, Withdraw):
            scheduler.slice_down(command.slice, command.reason, now_us)
        elif isinstance(command, Expect):
            scheduler.expect(command.model, command.variant, command.ready_us, now_us)
        elif isinstance(command, ServeModel):
            scheduler.serve(command.model, now_us)

    def _answer_requests(self) -> None:
        """Ask each model for rows on idle slices; what a review costs is counted apart."""
        batches: list[Any] = []
        for number in range(min(3 * COUNTED, len(self.devices) // len(self.models))):
            for name in self.models:
                self.requests += 1
                self.now_us += 1000
                request = Request(self.requests, name, 1, self.now_us, self.now_us + SLO_US)
                request.variants = ("a",)
                kind = "request: arrive" if number else "request: arrive first"
                self._count(kind, partial(self.scheduler.arrive, request, self.now_us))
                found: list[Any] = []
                while not found and self.scheduler.wake_us < NEVER_US:
                    self.now_us = max(self.now_us, self.scheduler.wake_us)
                    due = self.scheduler._admission.is_due  # noqa: SLF001  # reviews are counted apart
                    kind = "request: review" if due else "request: wake"
                    said = self._count(kind, partial(self.scheduler.wake, self.now_us))
                    found = [each for each in said if isinstance(each, RunBatch)]
                batches += found
        for batch in batches:
            self.now_us += 100
            done = partial(self.scheduler.batch_done, batch.id, BATCH_US, self.now_us)
            self._count("request: batch done", done)

    def _count(self, kind: str, call: Callable[[], Any]) -> Any:
        steps = Steps()
        found = steps.count(call)
        self.costs[kind] = [*self.costs[kind][1 - COUNTED :], (steps.calls, steps.steps)]
        return found


def _slice(number: int) -> SliceSpec:
    device, place = divmod(number, PER_DEVICE)
    return SliceSpec(
        f"g-{device}-{place}", (), device=f"h-{device}", part=Share.parse(SHARE), kind=KIND, rehearsed=True
    )


def _served(name: str, slices: tuple[str, ...]) -> ServedModel:
    tensor = TensorSpec("X", "FP32", (-1, 4))
    spec = ModelSpec(name, Path(), (tensor,), (tensor,), (VariantSpec("a", None),), "a", SLO_US, BATCH_MAX)
    return ServedModel(spec, SLO_US, ("a",), slices)


def _profile(model: str) -> Profile:
    points = tuple(Point(0, rows, BATCH_US, BATCH_US, 9) for rows in (1, 4, BATCH_MAX))
    return Profile(model, "a", KIND, points, 100_000, 1 << 28, share=Share.parse(SHARE))


def _rows(counts: Sequence[int], models: int) -> Iterator[str]:
    fleets = []
    for count in counts:
        fleets.append(Fleet(count, models))
        fleets[-1].play()
    yield f"{'event':32}" + "".join(f"{f'{count} slices':>22}" for count in counts)
    yield " " * 32 + f"{'calls':>12}{'steps':>10}" * len(counts)
    for kind in fleets[-1].costs:
        cells = ""
        for fleet in fleets:
            costs = fleet.costs.get(kind, [(0, 0)])
            mean = [sum(each) / len(costs) for each in zip(*costs, strict=True)]
            cells += f"{mean[0]:12.0f}{mean[1]:10.0f}"
        yield f"{kind:32}" + cells


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--slices", type=int, nargs="+", default=SLICES)
    parser.add_argument("--models", type=int, default=1, help="that share the slices out among them")
    asked = parser.parse_args()
    for line in _rows(asked.slices, asked.models):
        print(line)


if __name__ == "__main__":
    main()
