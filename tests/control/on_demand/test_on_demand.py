"""What control promises of a slice that cannot hold all of its models: what is asked for is loaded, within
its memory, and the scheduler always knows what is there, what comes, and what does not."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.control.commands import (
    Cold,
    Command,
    Expect,
    LoadReplica,
    Measure,
    Route,
    UnloadReplica,
    Unroute,
)
from serving.control.on_demand.on_demand_model import SLOW_US
from serving.control.rollouts.rollout import RolloutState
from serving.control.state.desired import DesiredState
from serving.profile.curve import Profile
from serving.profile.sweeping.sweep import REFINED_COUNT
from serving.values.slice_specs import SliceSpec
from serving.values.vocabulary import NEVER_US
from tests.builders import profile
from tests.control.test_control import only
from tests.control.test_moves import World, kinds, model

SIZE = 16 << 20
NAMES = "mnopq"


def sized(name: str) -> Profile:
    return replace(profile(name, count=REFINED_COUNT), memory_bytes=SIZE, load_us=1000)


class Small(World):
    """One slice "a" for two of the models m to q; every load takes SIZE bytes."""

    def __init__(self, room: int = 2, names: str = NAMES) -> None:
        self.cold: dict[str, bool] = {}
        self.held = Counter[str]()
        spec = SliceSpec("a", (0,), memory_bytes=room * SIZE)
        super().__init__([spec], *(model(name, "a") for name in names))

    def known(self) -> dict[tuple[str, str, str], Profile]:
        return {("a", name, "a"): sized(name) for name in NAMES}

    def answer(self, command: Command):  # type: ignore[no-untyped-def]
        match command:
            case LoadReplica(replica=replica) if not self.fails(command):
                self.held[str(replica)] = SIZE
                assert self.held.total() <= self.control.slices["a"].spec.memory_bytes
                return self.control.replica_loaded("a", replica, (1000, SIZE), self.now, ())
            case UnloadReplica(replica=replica):
                self.held.pop(str(replica), None)
            case Cold(model=name, load_us=load_us):
                self.cold[name] = load_us < NEVER_US
            case Expect(model=name):
                self.cold[name] = True
            case Route(model=name):
                self.cold.pop(name, None)
            case Unroute(model=name):
                assert self.cold.get(name) is not None, "who waits for it would be told that it is lost"
        return super().answer(command)

    def miss(self, name: str, busy: tuple[str, ...] = (), **rates: float) -> list[Command]:
        self.done = []
        self.waiting += self.control.missed(name, "a", rates, {"a": busy}, self.now)
        self.run()
        return self.done


def test_what_fits_is_loaded_at_the_start_and_the_rest_is_cold() -> None:
    world = Small()
    assert world.routed == {"a": ["m", "n"]}
    assert world.cold == {"o": True, "p": True, "q": True}
    assert world.control.progress.state is RolloutState.STEADY


def test_what_is_asked_for_is_loaded_in_the_place_of_another_which_is_cold_before_it_goes() -> None:
    world = Small()
    world.now += 60_000_000
    done = world.miss("o", n=5.0, o=1.0)
    assert kinds(done) == ["Cold", "Unroute", "UnloadReplica", "Expect", "LoadReplica", "Expect", "Route"]
    assert world.routed == {"a": ["n", "o"]}
    assert world.cold == {"m": True, "p": True, "q": True}


def test_what_is_asked_for_while_all_others_are_in_use_is_refused_and_may_be_asked_for_again() -> None:
    world = Small()
    world.now += 60_000_000
    done = world.miss("o", busy=("m", "n"), o=1.0)
    assert done == [Cold("o", "a", 1000)]
    assert world.routed == {"a": ["m", "n"]}
    assert only(world.miss("o", o=1.0), Route)


def test_a_load_that_takes_long_delays_no_other() -> None:
    class Stuck(Small):
        begun: list[tuple[str, int]]

        def answer(self, command: Command):  # type: ignore[no-untyped-def]
            if isinstance(command, LoadReplica):
                self.begun = [*getattr(self, "begun", ()), (command.model, self.now)]
                if command.model == "m":
                    return ()
            return super().answer(command)

    world = Stuck(room=3)
    assert world.begun == [("m", 0), ("n", SLOW_US), ("o", SLOW_US)]
    assert sorted(world.routed["a"]) == ["n", "o"]
    asked_us = world.now
    world.miss("p", o=1.0)  # n goes for it, at once: m is slow
    assert world.begun[3:] == [("p", asked_us)]
    assert sorted(world.routed["a"]) == ["o", "p"]


def test_what_cannot_be_loaded_is_said_to_those_who_wait_and_nothing_else_is_harmed() -> None:
    world = Small()
    world.now += 60_000_000
    world.fails = lambda load: load.model == "o"
    done = world.miss("o", o=1.0, n=9.0)
    assert only(done, Cold)[-1].load_us > 1_000_000, "it is not tried again for a while"
    assert "n" in world.routed["a"]
    assert world.control.progress.state is RolloutState.STEADY


def test_what_fails_when_it_is_measured_gives_its_memory_back_and_may_be_tried_again() -> None:
    class Unmeasured(Small):
        broken = True

        def known(self) -> dict[tuple[str, str, str], Profile]:
            return {}

        def answer(self, command: Command):  # type: ignore[no-untyped-def]
            if isinstance(command, Measure) and self.broken:
                self.held.pop(str(command.replica))
                return self.control.replica_failed("a", command.replica, "it fails on its sample", self.now)
            return super().answer(command)

    world = Unmeasured(room=1, names="m")
    assert world.routed == {"a": []}
    world.broken = False
    world.now += 100_000_000
    assert only(world.miss("m", m=1.0), Route)
    assert world.held.total() == SIZE


def test_a_model_whose_files_changed_goes_and_comes_and_is_cold_in_between() -> None:
    world = Small(names="mn")
    spec = SliceSpec("a", (0,), memory_bytes=2 * SIZE)
    done = world.want(DesiredState.of([spec], [model("m", "a", revision="2"), model("n", "a")]))
    assert kinds(done)[:3] == ["Cold", "Unroute", "UnloadReplica"]
    assert only(done, LoadReplica) == [] or only(done, LoadReplica)[0].revision == "2"
    load = only(done or [], LoadReplica) or only(world.miss("m", m=1.0), LoadReplica)
    assert load[0].revision == "2"
    assert world.routed == {"a": ["m", "n"]}


def test_when_its_worker_dies_nothing_is_cold_and_when_it_is_back_what_fits_is_loaded() -> None:
    world = Small()
    world.waiting += world.control.worker_lost("a", "died", world.now)
    world.held.clear()
    while world.waiting:
        world.answer(world.waiting.pop(0))
    assert world.cold == {"o": False, "p": False, "q": False}
    world.run()
    assert len(world.routed["a"]) == 2
    assert sum(world.cold.values()) == 3


def test_a_model_that_is_gone_is_not_cold_but_unknown() -> None:
    world = Small()
    spec = SliceSpec("a", (0,), memory_bytes=2 * SIZE)
    world.want(DesiredState.of([spec], [model(name, "a") for name in "op"]))
    assert world.control.progress.state is RolloutState.STEADY
    assert set(world.control._observed.models) == {"o", "p"}
    assert world.routed["a"] == [] or set(world.routed["a"]) <= {"o", "p"}
    assert only(world.miss("o", o=1.0), Route) or "o" in world.routed["a"]


@pytest.mark.slow
@given(
    asks=st.lists(
        st.tuples(st.sampled_from(NAMES), st.sets(st.sampled_from(NAMES)), st.integers(0, 3_000_000)),
        max_size=25,
    ),
    room=st.integers(1, 4),
)
def test_whatever_is_asked_for_memory_is_never_overrun_and_the_scheduler_knows_what_is_there(
    asks: list[tuple[str, set[str], int]], room: int
) -> None:
    world = Small(room)
    for name, busy, pause_us in asks:
        world.now += pause_us
        routed = set(world.routed["a"])
        if name not in routed:
            world.miss(name, tuple(busy), **dict.fromkeys(NAMES, 0.5))
            assert busy & routed <= set(world.routed["a"]), "what is in use stays"
        now_routed = set(world.routed["a"])
        assert set(world.cold) == set(NAMES) - now_routed
        assert all(world.cold.values())
        assert world.held.total() == SIZE * len(now_routed)


@pytest.mark.parametrize("steps", range(6))
def test_a_request_that_waits_for_a_load_is_answered_though_its_model_is_unloaded_meanwhile(
    steps: int,
) -> None:
    world = Small()
    world.now += 60_000_000
    world.open = {"o"}
    spec = SliceSpec("a", (0,), memory_bytes=2 * SIZE)
    world.done = []
    world.waiting += world.control.missed("o", "a", {"o": 1.0, "n": 5.0}, {"a": ()}, world.now)
    world.run(steps)
    world.waiting += world.control.want(
        DesiredState.of([spec], [model(name, "a") for name in "mn"]), world.now
    )
    world.run()
    assert "o" in world.routed["a"]
    assert Cold("o", "a", NEVER_US) not in world.done
    world.waiting += world.control.model_retired("o", world.now)
    world.run()
    assert "o" not in world.routed["a"]
    assert world.control.progress.state is RolloutState.STEADY
    assert world.control.progress.waiting == ()
