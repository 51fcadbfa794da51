"""Catalogue 7: a device that becomes slower or faster while it serves."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtests.virtual.virtual_world import Run, World, offer
from serving.policy.estimates.latency import ENOUGH, WINDOW
from serving.scheduler.commands import Answer, RunBatch
from serving.scheduler.slices.replicas import Replica
from serving.simulation.devices.device import BatchTimes
from serving.values.vocabulary import COMPLETED, NEVER_US
from tests.scheduler.values import replica_of, served_model
from tests.simulation.catalogue import (
    BATCHES_TO_FAST,
    BATCHES_TO_SLOW,
    FASTER,
    LATE_AFTER_STEP,
    OUTLIER,
    OUTLIER_MOVES,
    SLOWER,
    WORLDS,
)

STEP_US = 5_000_000
ROUNDING = 0.001  # of a latency in whole microseconds
PROFILED = {rows: 1000.0 * rows + 5000 for rows in (1, 2, 4, 8, 16, 32, 64)}


@dataclass
class Since:
    """What ran on a slice since its step."""

    batches: int = 0
    planned_off: list[float] = field(default_factory=list)  # planned over true latency, of each batch


class Stepping(Run):
    """From STEP_US on, batches take `factor` times as long; late are those of batches after `spared`."""

    def __init__(self, world: World, factor: float, spared: int) -> None:
        self.factor = factor
        self.spared = spared
        self.since: dict[str, Since] = {}
        self.judged = self.late = 0
        self._judged_batches: set[int] = set()
        super().__init__(world)

    def take(self, batch: RunBatch, start_us: int, running: int) -> BatchTimes:
        true_us = super().take(batch, start_us, running).compute_us
        if start_us < STEP_US:
            return BatchTimes(true_us, true_us)
        since = self.since.setdefault(batch.slice, Since())
        since.batches += 1
        since.planned_off.append(batch.predicted_us / (true_us * self.factor))
        if since.batches > self.spared:
            self._judged_batches.add(batch.id)
        took_us = int(true_us * self.factor)
        return BatchTimes(took_us, took_us)

    def answered(self, answer: Answer, now_us: int) -> None:
        batch = answer.batch
        if answer.outcome is COMPLETED and batch is not None and batch.id in self._judged_batches:
            self.judged += 1
            self.late += now_us > answer.request.deadline_us


@pytest.mark.slow
@pytest.mark.parametrize(("row", "rate"), [("A", 200), ("A", 300), ("B", 400), ("D", 2500)])
def test_when_the_device_slows_down_answers_are_in_time_again_after_ten_batches(
    row: str, rate: float
) -> None:
    run = Stepping(WORLDS[row], SLOWER, BATCHES_TO_SLOW)
    run.play(offer(run.world, rate, 9, 0))
    assert run.judged > 500
    assert run.late <= LATE_AFTER_STEP * run.judged
    for since in run.since.values():
        assert min(since.planned_off[BATCHES_TO_SLOW:]) >= 1 - ROUNDING


@pytest.mark.slow
def test_when_the_device_speeds_up_the_plan_has_it_after_two_hundred_batches() -> None:
    run = Stepping(WORLDS["A"], FASTER, 0)
    run.play(offer(run.world, 200, 12, 0))
    settled = run.since["s0"].planned_off[BATCHES_TO_FAST:]
    assert len(settled) > 50
    assert max(settled) <= 1 + ROUNDING


def taught(ratios: Iterable[float], rows: int) -> Replica:
    """A replica whose batches, all of so many rows, took so many times what was profiled."""
    replica = replica_of(served_model(batch_max=64, slo_us=NEVER_US), latency_us=PROFILED)
    for ratio in ratios:
        batch = RunBatch(1, "s", [], rows)
        took_us = round(replica.latency.predict_us(rows) * ratio)
        replica.learn(batch, took_us, took_us)
    return replica


@given(st.integers(1, 64), st.integers(1, 64), st.sampled_from([SLOWER, FASTER]))
def test_sizes_that_never_ran_are_corrected_as_those_that_did(ran: int, asked: int, factor: float) -> None:
    replica = taught([factor] * WINDOW, ran)
    assert replica.predict_us(asked, 0) == pytest.approx(
        factor * replica.latency.predict_us(asked), rel=ROUNDING
    )


@given(st.integers(ENOUGH, WINDOW + 30), st.integers(1, 64))
def test_one_outlier_moves_no_estimate_however_much_was_learnt_before(batches: int, asked: int) -> None:
    before, after = taught([1.0] * batches, 8), taught([1.0] * batches + [OUTLIER], 8)
    assert after.predict_us(asked, 0) - before.predict_us(asked, 0) == OUTLIER_MOVES


@given(st.lists(st.floats(0.8, 1.25), min_size=ENOUGH, max_size=WINDOW + 30))
def test_of_batches_that_vary_one_outlier_moves_the_estimate_no_further_than_they_do(
    ratios: list[float],
) -> None:
    assert taught([*ratios, OUTLIER], 8).residuals.kappa <= max(ratios) + ROUNDING
