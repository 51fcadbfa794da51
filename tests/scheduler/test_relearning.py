"""A model or a slice that was slow for a while comes back by itself, whatever its estimate has learnt."""

import pytest

from loadtests.virtual.virtual_world import Run, World, offer
from serving.policy.estimates.latency import TRY_US
from serving.scheduler.commands import Answer, RunBatch
from serving.simulation.devices.device import BatchTimes
from serving.values.specs import BatchingSpec
from serving.values.vocabulary import COMPLETED

pytestmark = [pytest.mark.slow, pytest.mark.in_turn(2)]
RATE = 100
AFTER_US = 2 * TRY_US


class Slowed(Run):
    """Until an instant, batches of some slices take a multiple of what they take later."""

    def __init__(self, world: World, factor: float, until_us: int, slow: str = "s") -> None:
        self.factor = factor
        self.until_us = until_us
        self.slow = slow  # slices whose names begin so
        self.ended: list[tuple[int, bool]] = []  # arrival, and whether it was answered in time
        self.starts: list[tuple[int, str]] = []
        super().__init__(world)

    def take(self, batch: RunBatch, start_us: int, running: int) -> BatchTimes:
        self.starts.append((start_us, batch.slice))
        slow = start_us < self.until_us and batch.slice.startswith(self.slow)
        took_us = int(super().take(batch, start_us, running).compute_us * (self.factor if slow else 1))
        return BatchTimes(took_us, took_us)

    def answered(self, answer: Answer, now_us: int) -> None:
        request = answer.request
        in_time = answer.outcome is COMPLETED and now_us <= request.deadline_us
        self.ended.append((request.arrived_us, in_time))

    def good_share(self, from_us: int, to_us: int) -> float:
        """Of those that arrive then."""
        good = [in_time for arrived_us, in_time in self.ended if from_us <= arrived_us < to_us]
        return sum(good) / len(good)


def slowed(factor: float, slow_s: int, slices: int = 1, slow: str = "s", learned: bool = True) -> Slowed:
    """One row alone takes 6.3 ms of an SLO of 50; at ten times that nothing can be in time."""
    world = World(BatchingSpec("slo", guard_us=0), slices, slo_us=50_000, learned=learned)
    run = Slowed(world, factor, slow_s * 1_000_000, slow)
    run.play(offer(world, RATE * slices, slow_s + AFTER_US / 1e6 + 5, 1))
    return run


@pytest.mark.parametrize("factor", [4, 10, 100])
@pytest.mark.parametrize("slow_s", [2, 20])
@pytest.mark.parametrize("learned", [False, True])
def test_a_model_that_was_slow_is_tried_until_its_estimate_is_back(
    factor: float, slow_s: int, learned: bool
) -> None:
    run = slowed(factor, slow_s, learned=learned)
    back_us = run.until_us + AFTER_US
    assert run.good_share(back_us, back_us + 5_000_000) >= 0.97


@pytest.mark.parametrize("slices", [2, 4])
@pytest.mark.parametrize("slow", ["s0", "s1"])
def test_a_slice_that_is_too_slow_takes_nothing_from_the_others_but_a_try_a_second(
    slices: int, slow: str
) -> None:
    run = slowed(10, 20, slices, slow)
    late_us = run.until_us - 5_000_000
    assert run.good_share(late_us, run.until_us) >= 0.97
    tries = [at_us for at_us, name in run.starts if name == slow and late_us <= at_us < run.until_us]
    assert 4 <= len(tries) <= 6


def test_a_slice_that_is_quick_again_takes_its_part_again() -> None:
    run = slowed(10, 20, 2, "s0")
    back_us = run.until_us + AFTER_US
    shares = [name for at_us, name in run.starts if at_us >= back_us]
    assert shares.count("s0") > 0.25 * len(shares)
    assert run.good_share(back_us, back_us + 5_000_000) >= 0.97
