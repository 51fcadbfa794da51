"""Promises of a fleet about how many replicas there are: control is told what it looks for, and what is lost
is ended."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from serving.control.commands import Command, FindCapacity, Look
from serving.control.control import Control
from serving.policy.scaling.carried.capacity import Capacity
from serving.policy.scaling.interface import LoadReport
from serving.policy.scaling.slow.task import ScalingPlan
from serving.profile.files.store import ProfileStore
from serving.runtime.fleet import Fleet
from serving.values.objectives import ReplicaSpec
from serving.values.slice_specs import SliceSpec
from serving.values.specs import Limits
from serving.values.vocabulary import COMPLETED
from tests.builders import KIND, served
from tests.runtime.ground import MODEL, Ground, turn
from tests.runtime.house import house
from tests.runtime.test_scaling_jobs import ASKED, table

pytestmark = pytest.mark.live

SCALED = replace(MODEL, replicas=ReplicaSpec())
SPOT = SliceSpec("s", (), price=2.0, spot=True)


class Listening(Control):
    """Control that remembers what it was told of scaling."""

    def __init__(self, *slices: SliceSpec) -> None:
        super().__init__(slices, [SCALED], {}, Limits(), lambda _spec: KIND)
        self.told: list[object] = []

    def seen(self, seen: Sequence[LoadReport], now_us: int) -> Sequence[Command]:
        self.told += seen
        return super().seen(seen, now_us)

    def scaling_planned(self, plan: ScalingPlan | None, now_us: int) -> Sequence[Command]:
        self.told.append(plan)
        return super().scaling_planned(plan, now_us)

    def capacity_found(self, asked: FindCapacity, capacity: Capacity, now_us: int) -> Sequence[Command]:
        self.told.append((asked, capacity))
        return super().capacity_found(asked, capacity, now_us)


class Payer:
    """A fleet's observer that remembers what is paid for."""

    def __init__(self) -> None:
        self.prices: list[Mapping[str, float]] = []

    def worker_overran(self, model: str) -> None: ...
    def worker_restarted(self, slice: str) -> None: ...  # noqa: A002
    def replica_loaded(self, model: str, load_us: int, kept: bool = False) -> None: ...
    def replica_failed(self, model: str) -> None: ...
    def replica_unloaded(self, model: str) -> None: ...

    def slices_held(self, prices: Mapping[str, float], now_us: int) -> None:
        self.prices.append(prices)


async def test_a_look_is_answered_in_the_next_turn_with_the_counters_of_then(tmp_path: Path) -> None:
    ground = Ground(SCALED)
    control = Listening()
    fleet = Fleet(control, ground.gateway, ProfileStore(tmp_path))
    ground.route()
    fleet._execute([Look()], 0)
    assert control.told == []
    ground.submit(SCALED)
    await turn()
    seen = control.told[0]
    assert isinstance(seen, LoadReport)
    assert (seen.model, seen.offered) == ("m", 1)


async def test_the_load_of_a_model_is_that_of_its_standing_and_0_where_it_is_on_no_slice() -> None:
    ground = Ground(MODEL)
    assert ground.gateway.load("m") == (0.0, 0)
    ground.route()
    for _ in range(100):
        ground.submit()
    before = ground.gateway.standing("m").load
    load, slices = ground.gateway.load("m")
    after = ground.gateway.standing("m").load
    assert before >= load >= after > 0, "it sinks with the time that passes"
    assert slices == 1


async def test_plans_and_tables_go_to_control(tmp_path: Path) -> None:
    control = Listening()
    fleet = Fleet(control, Ground(SCALED).gateway, ProfileStore(tmp_path))
    fleet._jobs.on_planned(None)
    fleet._jobs.on_found(ASKED, table(3.0))
    assert control.told == [None, (ASKED, table(3.0))]


async def test_who_pays_hears_which_slices_are_held(tmp_path: Path) -> None:
    control = Control([SPOT], [served()], {}, Limits(), lambda _spec: KIND)
    fleet = Fleet(control, Ground().gateway, ProfileStore(tmp_path))
    fleet.observer = payer = Payer()
    fleet._execute(control.start(0), 0)
    assert payer.prices[-1] == {"s": 2.0}
    fleet.device_lost(SPOT.domain, "it is taken away")
    assert payer.prices[-1] == {}
    fleet.device_back(SPOT.domain)
    assert payer.prices[-1] == {"s": 2.0}


@pytest.mark.slow
async def test_what_is_lost_has_its_worker_ended_and_is_started_again_when_it_is_back(tmp_path: Path) -> None:
    async with house(tmp_path, slo_us=20_000_000) as here:
        before = here.fleet.pid("s")
        here.fleet.device_lost("cpu", "it was taken away")
        assert not here.gateway.ready
        async with asyncio.timeout(60):
            await here.fleet.device_ended("cpu")
        assert here.fleet.pid("s") is None
        here.fleet.device_back("cpu")
        await here.until(lambda: here.gateway.ready)
        assert here.fleet.pid("s") not in (None, before)
        assert (await here.submit(here.add(1))[1]).outcome is COMPLETED


async def test_a_slice_is_back_only_after_the_end_of_its_worker_though_control_has_let_it_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = SliceSpec("t", ())
    control = Control([SPOT, other], [replace(SCALED, slices=("s", "t"))], {}, Limits(), lambda _spec: KIND)
    fleet = Fleet(control, Ground().gateway, ProfileStore(tmp_path))
    awaited: list[str] = []

    async def ended(name: str) -> None:
        awaited.append(name)

    monkeypatch.setattr(fleet.workers, "ended", ended)
    fleet._execute(control.start(0), 0)
    held = min(control.slices)
    domain = control.slices[held].spec.domain
    fleet.device_lost(domain, "it is taken away")
    assert held not in control.slices
    await fleet.device_ended(domain)
    assert awaited == [held]
