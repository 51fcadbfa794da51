"""Promises of the jobs of scaling: one of each kind at a time, and none that fails does harm."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from serving.control.commands import FindCapacity
from serving.policy.scaling.carried.capacity import Capacity
from serving.policy.scaling.slow.task import ScalingPlan, ScalingTask
from serving.runtime import scaling
from serving.runtime.files.capacity_file import CapacityFile
from serving.runtime.job import LEAST_URGENT, Work
from serving.runtime.scaling import ScalingJobs
from tests.builders import profile, served

pytestmark = pytest.mark.slow

ASKED = FindCapacity(served(), "a", "kind", profile(), 4)
NOTHING = ScalingTask((), ())


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process may take long to start."""
    monkeypatch.setattr(scaling, "PLAN_S", scaling.TABLE_S)


# what jobs do; a child imports this module for it


def table(rate: float, guessed: bool = False) -> Capacity:
    return Capacity((1,), (1.0,), ((rate,),), guessed)


def count_variant(asked: FindCapacity) -> Iterator[Capacity]:
    """In its table: its niceness, where it is asked for so many replicas."""
    yield table(os.nice(0) if asked.most == 1 else len(asked.variant))


def guessing(asked: FindCapacity) -> Iterator[Capacity]:
    yield table(asked.most, guessed=True)


def failing(asked: FindCapacity) -> Iterator[Capacity]:
    if asked.variant == "a":
        raise ValueError("it cannot be simulated")
    yield table(1.0)


def endless(asked: FindCapacity) -> Iterator[Capacity]:
    while True:
        pass
    yield table(asked.most)


def planning(task: ScalingTask) -> Iterator[ScalingPlan]:
    yield ScalingPlan({}, task.cost_max)


def no_plan(task: ScalingTask) -> Iterator[ScalingPlan]:
    raise ValueError("there is none")
    yield ScalingPlan({}, task.cost_max)


class Told:
    """What control would hear; `heard` is set with each."""

    def __init__(self, jobs: ScalingJobs) -> None:
        self.found: list[tuple[str, Capacity]] = []
        self.plans: list[ScalingPlan | None] = []
        self.heard = asyncio.Event()
        self.jobs = jobs
        jobs.on_found = self._found
        jobs.on_planned = self._planned

    def _found(self, asked: FindCapacity, capacity: Capacity) -> None:
        self.found.append((asked.variant, capacity))
        self.heard.set()

    def _planned(self, plan: ScalingPlan | None) -> None:
        self.plans.append(plan)
        self.heard.set()

    async def until(self, count: int) -> None:
        while len(self.found) + len(self.plans) < count:
            self.heard.clear()
            await self.heard.wait()


@asynccontextmanager
async def jobs_of(find: Work[FindCapacity, Capacity] | None, folder: Path) -> AsyncIterator[Told]:
    jobs = ScalingJobs(find, CapacityFile(folder / "c.json"))
    try:
        yield Told(jobs)
    finally:
        await jobs.close()


async def test_tables_are_filled_in_turn_by_a_child_that_lets_all_others_go_first(tmp_path: Path) -> None:
    async with jobs_of(count_variant, tmp_path) as told:
        told.jobs.fill(replace(ASKED, most=1))
        told.jobs.fill(replace(ASKED, variant="bb"))
        await told.until(2)
    assert told.found == [("a", table(min(os.nice(0) + LEAST_URGENT, 19))), ("bb", table(2.0))]


async def test_what_was_simulated_before_is_not_simulated_again(tmp_path: Path) -> None:
    async with jobs_of(count_variant, tmp_path) as told:
        told.jobs.fill(ASKED)
        await told.until(1)
    async with jobs_of(endless, tmp_path) as told:
        told.jobs.fill(ASKED)
        await told.until(1)
    assert told.found == [("a", table(1.0))]


async def test_a_table_that_is_not_complete_counts_and_is_not_kept(tmp_path: Path) -> None:
    async with jobs_of(guessing, tmp_path) as told:
        told.jobs.fill(ASKED)
        await told.until(1)
    assert told.found == [("a", table(4.0, guessed=True))]
    assert not (tmp_path / "c.json").exists()


async def test_a_job_that_fails_is_said_once_and_the_next_is_done(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with jobs_of(failing, tmp_path) as told:
        with caplog.at_level(logging.WARNING):
            for asked in (ASKED, replace(ASKED, kind="other"), replace(ASKED, variant="b")):
                told.jobs.fill(asked)
            await told.until(1)
    assert told.found == [("b", table(1.0))]
    assert [record.message.count("it cannot be simulated") for record in caplog.records] == [1]


async def test_a_plan_that_cannot_be_made_is_told_as_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scaling, "plan_scaling", no_plan)
    async with jobs_of(None, tmp_path) as told:
        told.jobs.plan(NOTHING)
        await told.until(1)
    assert told.plans == [None]


async def test_of_plans_that_are_asked_for_meanwhile_the_latest_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scaling, "plan_scaling", planning)
    async with jobs_of(None, tmp_path) as told:
        told.jobs.plan(replace(NOTHING, cost_max=1.0))
        await asyncio.sleep(0)  # it has begun
        told.jobs.plan(replace(NOTHING, cost_max=2.0))
        told.jobs.plan(replace(NOTHING, cost_max=3.0))
        await told.until(2)
    assert [plan.cost for plan in told.plans if plan is not None] == [1.0, 3.0]


async def test_what_runs_when_it_is_closed_is_ended_and_tells_nobody(tmp_path: Path) -> None:
    async with jobs_of(endless, tmp_path) as told:
        told.jobs.fill(ASKED)
        await asyncio.sleep(0)
    told.jobs.fill(ASKED)
    told.jobs.plan(NOTHING)
    assert (told.found, told.plans) == ([], [])
    assert told.jobs._filling is None
    assert told.jobs._planning is None


async def test_without_a_simulation_tables_stay_guesses(tmp_path: Path) -> None:
    async with jobs_of(None, tmp_path) as told:
        told.jobs.fill(ASKED)
        assert told.jobs._filling is None
