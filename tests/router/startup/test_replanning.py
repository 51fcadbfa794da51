"""Requests for another plan: the latest counts, and a plan for what is no more is made again."""

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from router.management.operations.current import Current
from router.management.operations.placement import PlacementService
from router.observing.status import Status
from router.settings import Settings, load_settings
from router.settings.machine.placement import PlacementSettings
from router.startup.replanning import Replanning
from serving.control.failing import FailingLoads
from serving.control.reconciling import LOAD_TRIES
from serving.control.rollouts.rollout import Progress, RolloutState
from serving.control.state.desired import DesiredState
from serving.control.state.replicas import SliceRecord, WorkerStatus
from serving.profile.curve import Profile
from serving.runtime.fleet import Fleet
from serving.values.objectives import ScalingSpec
from serving.values.slice_specs import SliceSpec
from tests.router.replanning_jobs import pipe, wait_and_advise
from tests.router.settings.samples import write_deployment

pytestmark = [pytest.mark.slow, pytest.mark.in_turn(2)]  # each job is a process

GATEWAY = """\
slices: [{name: cpu-a, cores: 1}, {name: cpu-b, cores: 1}]
models:
  - {path: models/digits, slices: [cpu-a], default_variant: linear}
  - {path: models/minilm, slices: [cpu-b]}
"""
PATIENCE_S = 60.0
DOOR = "unix:/run/penstock.sock"


class Workers:
    """A fleet that has what is wanted at once; or gives it up, where `refusal` says why."""

    def __init__(self, slices: Sequence[SliceSpec]) -> None:
        self.control = SimpleNamespace(slices={each.name: SliceRecord(each) for each in slices})
        self.specs = {each.name: each for each in slices}
        self.failing = FailingLoads()
        self.progress = Progress(RolloutState.STEADY, 1, 1)
        self.given_up: tuple[str, ...] = ()
        self.refusal: tuple[str, ...] = ()
        self.wanted: list[DesiredState] = []
        self._event = asyncio.Event()

    @property
    def movement(self) -> RolloutState:
        return self.progress.state

    def know(self, known: Mapping[tuple[str, str, str], Profile]) -> None:
        pass

    def want(self, wanted: DesiredState, by: Sequence[DesiredState] = ()) -> None:
        self.wanted.append(wanted)
        self.given_up = self.refusal

    def scale(self, spec: ScalingSpec) -> None:
        pass

    def roll_back(self, reason: str) -> None:
        pass

    async def changed(self) -> None:
        await self._event.wait()

    def set(self, state: RolloutState) -> None:
        """A move begins or ends."""
        self.progress = Progress(state, 1, 1)
        self._event.set()
        self._event = asyncio.Event()


@dataclass
class World:
    home: Path
    workers: Workers
    current: Current
    replanning: Replanning

    async def begun(self, reason: str, lost: str = "") -> int:
        """A job has begun; the pipe at which it waits."""
        async with asyncio.timeout(PATIENCE_S):
            return await asyncio.to_thread(os.open, pipe(self.home, reason, lost), os.O_WRONLY)

    async def answered(self, said: str, reason: str, lost: str = "") -> None:
        """A job has begun, and ends so."""
        writer = await self.begun(reason, lost)
        os.write(writer, said.encode())
        os.close(writer)

    async def ended(self) -> None:
        """Until nothing is planned any more."""
        assert self.replanning._task is not None
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.wait([self.replanning._task])

    @property
    def counts(self) -> dict[str, int]:
        """What became of requests."""
        return {name: count for name, count in self.replanning.outcomes.items() if count}

    @property
    def shown(self) -> tuple[str, str]:
        """(state, sentence) of the status."""
        found = self.replanning.describe()
        return ("", "") if found is None else (found["state"], found["sentence"])

    def lose(self, name: str) -> None:
        """A device is lost."""
        self.workers.control.slices[name].status = WorkerStatus.LOST


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: {0, 1, 2, 3})
    settings = load_settings(write_deployment(tmp_path, GATEWAY))
    workers = Workers(settings.slices)
    current = Current(settings, workers, lambda _settings: {})

    async def look() -> tuple[Status, Mapping[str, float]]:
        return cast(Status, {"uptime_s": 9.0, "models": []}), {}

    replanning = Replanning(cast(Fleet, workers), current, PlacementService(current), look, wait_and_advise)
    replanning.door = DOOR
    return World(tmp_path, workers, current, replanning)


def may(world: World, replan: str) -> None:
    settings: Settings = world.current.settings
    world.current.settings = replace(settings, placement=PlacementSettings(replan))


async def test_a_plan_without_what_is_lost_is_shown_and_nothing_is_moved(world: World) -> None:
    world.lose("cpu-b")
    world.replanning.replan("cpu-b is lost")
    await world.answered("plan", "cpu-b is lost", "cpu-b")
    await world.ended()
    found = world.replanning.describe()
    assert found is not None
    assert (found["state"], found["reason"]) == ("proposed", "cpu-b is lost")
    assert (found["sentence"], found["command"]) == ("without cpu-b", f"at {DOOR}")
    assert found["slices"] == {"cpu-a": ["digits", "minilm"]}
    assert world.counts == {"proposed": 1}
    assert world.workers.wanted == []


async def test_a_plan_for_what_is_no_more_is_made_again(world: World) -> None:
    world.lose("cpu-b")
    world.replanning.replan("cpu-b is lost")
    writer = await world.begun("cpu-b is lost", "cpu-b")  # the job has begun
    world.lose("cpu-a")
    os.write(writer, b"plan")
    os.close(writer)
    await world.answered("plan", "cpu-b is lost", "cpu-a,cpu-b")
    await world.ended()
    assert world.shown == ("proposed", "without cpu-a,cpu-b")
    assert world.counts == {"stale": 1, "proposed": 1}


async def test_a_newer_reason_takes_the_place_of_the_plan_under_way(world: World) -> None:
    world.replanning.replan("the first")
    writer = await world.begun("the first")
    assert world.shown == ("planning", "another plan is being made")
    world.replanning.replan("the second")
    assert world.replanning._task is not None
    await asyncio.sleep(0)
    os.close(writer)
    await world.answered("plan", "the second")
    await world.ended()
    found = world.replanning.describe()
    assert found is not None
    assert found["reason"] == "the second"
    assert world.counts == {"superseded": 1, "proposed": 1}


async def test_no_plan_is_made_while_something_is_moved(world: World) -> None:
    world.workers.set(RolloutState.TURNING_BACK)
    world.replanning.replan("a load failed")
    await asyncio.sleep(0)
    assert world.shown == ("", "")
    world.workers.set(RolloutState.STEADY)
    await world.answered("plan", "a load failed")
    await world.ended()
    assert world.counts == {"proposed": 1}


async def test_a_plan_is_shown_only_as_long_as_what_it_was_made_for(world: World) -> None:
    world.replanning.replan("a load failed")
    await world.answered("plan", "a load failed")
    await world.ended()
    assert world.shown[0] == "proposed"
    may(world, "off")  # which changes nothing that the plan was made for
    assert world.shown[0] == "proposed"
    for _ in range(LOAD_TRIES):
        world.workers.failing.failed("cpu-b", "minilm")
    assert world.shown == ("", "")


@pytest.mark.parametrize(
    ("said", "outcome", "sentence"),
    [
        ("there is no room", "none", "there is no room"),
        ("broken", "refused", "the best plan breaks a promise"),
        ("error", "failed", "no plan was found: wait_and_advise raised RuntimeError: the job broke"),
    ],
)
async def test_where_there_is_no_plan_the_status_says_why(
    world: World, said: str, outcome: str, sentence: str
) -> None:
    may(world, "apply")
    world.replanning.replan("a load failed")
    await world.answered(said, "a load failed")
    await world.ended()
    assert world.shown == ("none", sentence)
    assert world.counts == {outcome: 1}
    assert world.workers.wanted == []


async def test_off_makes_no_plan(world: World) -> None:
    may(world, "off")
    world.replanning.replan("a load failed")
    assert world.replanning._task is None
    assert world.counts == {"off": 1}


async def test_no_plan_is_made_across_nodes(world: World) -> None:
    settings = world.current.settings
    far = tuple(replace(each, node="n") for each in settings.slices)
    world.current.settings = replace(settings, slices=far)
    world.replanning.replan("n/cpu is lost: node n has closed its connection")
    assert world.replanning._task is None
    assert world.counts == {"off": 1}


async def test_apply_carries_the_plan_out_once(world: World) -> None:
    may(world, "apply")
    world.lose("cpu-b")
    world.replanning.replan("cpu-b is lost")
    await world.answered("plan", "cpu-b is lost", "cpu-b")
    await world.ended()
    (wanted,) = world.workers.wanted
    assert [each.spec.name for each in wanted.slices] == ["cpu-a"]
    assert world.shown[0] == "applied"
    world.replanning.replan("a load failed")
    await world.answered("plan", "a load failed")
    await world.ended()
    assert world.workers.wanted == [wanted]
    assert world.counts == {"applied": 1, "proposed": 1}


async def test_a_plan_that_is_given_up_is_said_and_what_was_there_is_there(world: World) -> None:
    may(world, "apply")
    before = world.current.settings
    world.workers.refusal = ("minilm does not load",)
    world.replanning.replan("cpu-b is lost")
    await world.answered("plan", "cpu-b is lost")
    await world.ended()
    assert world.shown == ("given up", "minilm does not load")
    assert world.counts == {"given up": 1}
    assert world.current.settings == before


async def test_closing_ends_a_plan_under_way(world: World) -> None:
    world.replanning.replan("a load failed")
    writer = await world.begun("a load failed")
    async with asyncio.timeout(PATIENCE_S):
        await world.replanning.close()
    os.close(writer)
    assert world.counts == {}
