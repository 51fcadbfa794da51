"""Scaling in any history: of wishes, deaths, failing loads, lost slices, misses and changes of mind, in any
order and at any time, replicas are where they may be, and in the end as many as are wished."""

from collections import Counter
from math import inf
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.control.commands import (
    Cold,
    Command,
    EndWorker,
    LoadReplica,
    Look,
    Route,
    StartWorker,
    StopWorker,
    UnloadReplica,
    Unroute,
    Withdraw,
)
from serving.control.control import Control
from serving.control.rollouts.rollout import RolloutState
from serving.control.state.desired import DesiredState
from serving.control.state.observed import plain
from serving.control.state.rules import Rules
from serving.policy.scaling.interface import LoadReport, Wish
from serving.profile.sweeping.sweep import REFINED_COUNT
from serving.values.objectives import ScalingSpec
from serving.values.slice_specs import SliceSpec
from serving.values.specs import Limits, ServedModel
from serving.values.vocabulary import NEVER_US
from tests.builders import KIND, model_spec, profile, served
from tests.control.scaling_house import Told, scaled
from tests.seeds import drawn

NAMES = ("a", "b", "c", "d")
SLICES = tuple(SliceSpec(name, (), price=1.0, spot=name in "cd") for name in NAMES)
MODELS = (scaled("m", NAMES, least=1), scaled("n", ("b", "c", "d"), least=0), served(model_spec("f"), ("a",)))
OTHERS = (scaled("m", ("a", "b"), least=1), scaled("n", NAMES, least=0), served(model_spec("f"), ("b",)))
KNOWN = {
    (name, model, "a"): profile(model, "a", count=REFINED_COUNT)
    for name in NAMES
    for model in ("m", "n", "f")
}
CALM_STEPS = 60


class World:
    """Workers of which any may be slow, dead or unlucky. What control may never do is asserted at once."""

    def __init__(self, ceiling: float) -> None:
        self.policies: list[Told] = []
        rules = Rules(False, ScalingSpec(cost_max=ceiling), self._create)
        self.control = Control(SLICES, MODELS, KNOWN, Limits(), lambda _: KIND, rules)
        self.models: tuple[ServedModel, ...] = MODELS
        self.now_us = 0
        self.workers: dict[str, bool] = {}  # slice -> whether it answers
        self.loaded: dict[tuple[str, int], bool] = {}  # -> whether it has been loaded
        self.routed: dict[str, Counter[str]] = {}
        self.cold: set[str] = set()
        self.off: set[str] = set()  # said to be on no slice, and not routed since
        self.waiting: list[Command] = []
        self.do(self.control.start(0))

    def _create(self, spec: ScalingSpec) -> Told:
        self.policies.append(Told())
        return self.policies[-1]

    def do(self, commands: Any, fault: bool = False) -> None:
        """`fault`: something was lost: then replicas may be fewer than they were."""
        before = self._having()
        for command in commands:
            if isinstance(command, Route):
                self.routed.setdefault(command.slice, Counter())[command.model] += 1
                self.cold.discard(command.model)
                self.off.discard(command.model)
            elif isinstance(command, Unroute):
                self.routed[command.slice][command.model] -= 1
            elif isinstance(command, Withdraw):
                self.routed.pop(command.slice, None)
            elif isinstance(command, Cold):
                (self.cold.discard if command.load_us == NEVER_US else self.cold.add)(command.model)
                self.off.add(command.model)
            elif isinstance(command, StartWorker):
                assert command.slice not in self.workers, "it has a worker"
                self.workers[command.slice] = False
                self.waiting.append(command)
            elif isinstance(command, LoadReplica | UnloadReplica | StopWorker | EndWorker):
                assert command.slice in self.workers, "nobody lives there"
                self.waiting.append(command)
            elif isinstance(command, Look):
                self.waiting.append(command)
        after = self._having()
        for name in before - after:
            assert fault or name in self.off or name not in {each.name for each in self.models}, (
                f"{name} answers no more"
            )

    def _having(self) -> set[str]:
        return {name for here in self.routed.values() for name, count in here.items() if count > 0}

    def answer(self, place: int, lucky: bool = True) -> None:
        """A worker does one of the things that it was told."""
        if not self.waiting:
            return
        command = self.waiting.pop(place % len(self.waiting))
        control, now_us = self.control, self.now_us
        name = getattr(command, "slice", "")
        if isinstance(command, Look):
            self.do(control.seen([LoadReport("m"), LoadReport("n")], now_us))
        elif isinstance(command, StartWorker) and lucky and name in self.workers:
            self.workers[name] = True
            self.do(control.worker_ready(name, now_us))
        elif isinstance(command, StartWorker | StopWorker | EndWorker):
            self.die(name)
        elif isinstance(command, LoadReplica) and self.workers.get(name):
            if lucky:
                self.loaded[name, command.replica] = True
                self.do(control.replica_loaded(name, command.replica, (400_000, 1), now_us))
            else:
                self.do(control.replica_failed(name, command.replica, "out of luck", now_us), fault=True)
        elif isinstance(command, UnloadReplica) and self.workers.get(name):
            self.do(control.replica_unloaded(name, command.replica, now_us))

    def die(self, name: str) -> None:
        """The worker of a slice is gone."""
        if self.workers.pop(name, None) is not None:
            self.waiting = [each for each in self.waiting if getattr(each, "slice", "") != name]
            self.do(self.control.worker_lost(name, "died", self.now_us), fault=True)

    def lose(self, name: str, after_notice: bool) -> None:
        """A slice that may be taken away is."""
        domain = next(each.domain for each in SLICES if each.name == name)
        if after_notice:
            self.do(self.control.device_leaving(domain, "notice", self.now_us))
        else:
            self.do(self.control.device_lost(domain, "gone", self.now_us), fault=True)
            self.die(name)

    def back(self, name: str) -> None:
        """It may be had again."""
        domain = next(each.domain for each in SLICES if each.name == name)
        self.do(self.control.device_back(domain, self.now_us))

    def pass_time(self, us: int) -> None:
        """And what is due meanwhile."""
        until_us = self.now_us + us
        while self.control.wake_us <= until_us:
            self.now_us = max(self.now_us, self.control.wake_us)
            self.do(self.control.tick(self.now_us, ()))
        self.now_us = until_us

    def calm_down(self) -> None:
        """From now on all goes well."""
        for name in "cd":
            self.back(name)
        for _ in range(CALM_STEPS):
            for _ in range(len(self.waiting)):
                self.answer(0)
            self.pass_time(2_000_000)

    def on(self, model: str) -> set[str]:
        """Where a model gets batches."""
        return {plain(name) for name, here in self.routed.items() if here[model] > 0}


EVENTS = st.one_of(
    st.tuples(st.just("wish"), st.integers(0, 1), st.integers(0, 5)),
    st.tuples(st.just("answer"), st.integers(0, 5), st.booleans()),
    st.tuples(st.just("answer"), st.integers(0, 5), st.just(True)),
    st.tuples(st.just("die"), st.sampled_from(NAMES), st.none()),
    st.tuples(st.just("lose"), st.sampled_from("cd"), st.booleans()),
    st.tuples(st.just("back"), st.sampled_from("cd"), st.none()),
    st.tuples(st.just("miss"), st.sampled_from("mn"), st.none()),
    st.tuples(st.just("want"), st.booleans(), st.none()),
    st.tuples(st.just("roll back"), st.none(), st.none()),
    st.tuples(st.just("time"), st.sampled_from([1_000, 300_000, 1_000_000, 9_000_000]), st.none()),
)


def play(world: World, event: tuple[str, Any, Any]) -> None:
    """One event."""
    what, one, other = event
    if what == "wish" and len(world.policies) > one:
        world.policies[one].wish = Wish(other, standby=other % 2, pressure=other)
    elif what == "answer":
        world.answer(one, other)
    elif what == "die":
        world.die(one)
    elif what == "lose":
        world.lose(one, other)
    elif what == "back":
        world.back(one)
    elif what == "miss":
        if one in world.cold:
            world.do(world.control.missed(one, "a", {}, {}, world.now_us))
    elif what == "want":
        world.models = OTHERS if one else MODELS
        world.do(world.control.want(DesiredState.of(SLICES, world.models), world.now_us))
    elif what == "roll back":
        world.do(world.control.roll_back(world.now_us))
    elif what == "time":
        world.pass_time(one)


@pytest.mark.slow
@settings(max_examples=drawn(150), deadline=None)
@given(st.lists(EVENTS, max_size=60), st.sampled_from([inf, 3.0, 2.0]))
def test_in_any_history(events: list[tuple[str, Any, Any]], ceiling: float) -> None:
    world = World(ceiling)
    for event in events:
        play(world, event)
    world.calm_down()
    control = world.control
    assert control.progress.state is RolloutState.STEADY
    assert not [each for each in world.waiting if not isinstance(each, Look)]
    models = {each.name: each for each in control.desired.models}
    fixed = set(models["f"].slices)
    assert world.on("f") == fixed
    m, n = world.on("m"), world.on("n")
    standings = control.scaling.standings()
    for name, there in (("m", m), ("n", n)):
        standing = standings[name]
        own = {plain(each) for each in standing.slices}
        assert own <= set(models[name].slices)
        bridge = standing.standing > 0 and not standing.slices and standing.desired > 0
        assert there == own or (bridge and there <= set(models[name].slices))
        spec = models[name].replicas
        assert spec is not None
        assert standing.count <= max(standing.desired, spec.least)
        assert standing.count >= spec.least
        if not standing.held:
            assert standing.count == max(standing.desired, spec.least)
        assert there or name in world.off
    assert not set(standings["m"].slices) & set(standings["n"].slices)
    if len(m) > 1 or n:
        assert control.scaling.cost_per_hour <= max(ceiling, len(fixed | set(sorted(m)[:1])))
    assert {plain(each) for each in world.workers} == fixed | m | n
