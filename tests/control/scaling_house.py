"""Control with models whose replicas follow what a test says, and workers that do what they are told."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from serving.control.commands import (
    Command,
    EndWorker,
    LoadReplica,
    Look,
    Route,
    StartWorker,
    StopWorker,
    UnloadReplica,
    Unroute,
)
from serving.control.control import Control
from serving.control.state.rules import Rules
from serving.policy.scaling.interface import LoadReport, View, Wish
from serving.profile.sweeping.sweep import REFINED_COUNT
from serving.values.objectives import ReplicaSpec, ScalingSpec
from serving.values.slice_specs import SliceSpec
from serving.values.specs import Limits, ServedModel
from tests.builders import KIND, model_spec, profile, served

Asked = TypeVar("Asked", bound=Command)

SECOND_US = 1_000_000
TO_DO = (Look, StartWorker, StopWorker, EndWorker, LoadReplica, UnloadReplica)


@dataclass
class Told:
    """A policy that wishes what a test says; `views`: what it was shown."""

    wish: Wish = field(default_factory=lambda: Wish(1))
    views: list[View] = field(default_factory=list)
    period_us: int = SECOND_US

    def decide(self, view: View) -> Wish:
        self.views.append(view)
        return self.wish


def scaled(
    name: str = "m", slices: Sequence[str] = ("a", "b", "c"), least: int = 1, most: int | None = None
) -> ServedModel:
    """A model that may run on these slices."""
    return replace(served(model_spec(name), tuple(slices)), replicas=ReplicaSpec(least, most))


class House:
    """`hands` off: nothing of what workers are told is done until `work`. `policies` by model, in order."""

    def __init__(
        self, models: Sequence[ServedModel], slices: Sequence[SliceSpec], cost_max: float = float("inf")
    ) -> None:
        known = {
            (spec.name, model.name, variant): profile(model.name, variant, count=REFINED_COUNT)
            for spec in slices
            for model in models
            for variant in model.variants
        }
        self.made: list[Told] = []
        rules = Rules(False, ScalingSpec(cost_max=cost_max), self._create)
        self.control = Control(slices, models, known, Limits(), lambda _: KIND, rules)
        self.now = 0
        self.routed: dict[str, set[str]] = {}  # by slice, the models that get batches there
        self.log: list[Command] = []
        self.waiting: list[Command] = []
        self.do(self.control.start(0))

    def _create(self, spec: ScalingSpec) -> Told:
        self.made.append(Told())
        return self.made[-1]

    def do(self, commands: Sequence[Command]) -> None:
        """Take commands; workers have not heard of them yet."""
        for command in commands:
            self.log.append(command)
            if isinstance(command, Route):
                self.routed.setdefault(command.slice, set()).add(command.model)
            elif isinstance(command, Unroute):
                self.routed[command.slice].discard(command.model)
            elif isinstance(command, TO_DO):
                self.waiting.append(command)

    def work(self, seen: Sequence[LoadReport] = ()) -> None:
        """Workers do what they were told, and what follows from that."""
        control = self.control
        while self.waiting:
            command = self.waiting.pop(0)
            if isinstance(command, StartWorker):
                self.do(control.worker_ready(command.slice, self.now))
            elif isinstance(command, (StopWorker, EndWorker)):
                self.routed.pop(command.slice, None)
                self.do(control.worker_lost(command.slice, "ended", self.now))
            elif isinstance(command, LoadReplica):
                cost = (400_000, 1 << 20)
                self.do(control.replica_loaded(command.slice, command.replica, cost, self.now))
            elif isinstance(command, UnloadReplica):
                self.do(control.replica_unloaded(command.slice, command.replica, self.now))
            elif isinstance(command, Look):
                told = seen or [LoadReport(name) for name in control.scaling.changes]
                self.do(control.seen(told, self.now))

    def wish(self, count: int, which: int = 0, **more: object) -> None:
        """What a policy wishes from its next look on."""
        self.made[which].wish = Wish(count, **more)  # type: ignore[arg-type]

    def second(self, working: bool = True) -> None:
        """A second passes; the looks of it are answered."""
        self.now += SECOND_US
        self.do(self.control.tick(self.now, ()))
        if working:
            self.work()
        else:
            looks = [each for each in self.waiting if isinstance(each, Look)]
            self.waiting = [each for each in self.waiting if not isinstance(each, Look)]
            for _ in looks:
                self.do(
                    self.control.seen([LoadReport(name) for name in self.control.scaling.changes], self.now)
                )

    def on(self, model: str) -> set[str]:
        """The slices on which a model gets batches."""
        return {name for name, models in self.routed.items() if model in models}

    def said(self, kind: type[Asked]) -> list[Asked]:
        """All of one kind that was asked so far; forgotten then."""
        found: list[Asked] = [each for each in self.log if isinstance(each, kind)]
        self.log = []
        return found
