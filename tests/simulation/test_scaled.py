"""What a simulation of models whose replicas follow their load counts, and that they do follow it."""

from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from loadtests.virtual.scaled_world import (
    MINUTE,
    SECOND,
    ScaledModel,
    ScaledSimulation,
    ScaledWorld,
    Score,
    SimulatedTables,
)
from serving.control.commands import FindCapacity
from serving.policy.scaling.carried.capacity import Capacity
from serving.policy.scaling.carried.guess import guess
from serving.simulation.traffic.arrivals import Arrival
from serving.simulation.traffic.patterns import RateStep, draw
from serving.values.objectives import MOST_ACCURATE, Needs, ScalingSpec

MODEL = ScaledModel(load_us=3 * SECOND)
WORLD = ScaledWorld((MODEL,), slices=8)
THREE = replace(
    MODEL,
    variants=(("large", 0.9, 60_000, 90_000), ("small", 0.8, 20_000, 40_000)),
    needs=Needs(optimize=MOST_ACCURATE),
    load_us=SECOND,
)


class Guesses(SimulatedTables):
    """Nothing is simulated for what is not about tables."""

    def capacity(self, asked: FindCapacity) -> Capacity:
        """See `SimulatedTables`."""
        return guess(asked.profile, asked.model)


def offered(*steps: tuple[float, float]) -> list[Arrival]:
    """Poisson at each rate for so many seconds."""
    instants = draw([RateStep(*step) for step in steps], 1.0, np.random.default_rng(3))
    return [Arrival(int(at_s * SECOND) + 1, 0) for at_s in instants.tolist()]


def play(world: ScaledWorld, *steps: tuple[float, float]) -> tuple[Score, ScaledSimulation]:
    """From its second minute on."""
    run = ScaledSimulation(world, offered(*steps), Guesses())
    end_us = int(sum(seconds for _, seconds in steps)) * SECOND
    return run.run(MINUTE, end_us), run


@cache
def doubled(policy: str) -> Score:
    """Twenty rows a second, then twice that."""
    return play(replace(WORLD, scaling=ScalingSpec(policy)), (20.0, 120.0), (60.0, 60.0))[0]


@pytest.mark.slow
def test_every_row_is_counted_in_the_minute_in_which_it_came() -> None:
    asked = offered((20.0, 180.0))
    score, run = play(WORLD, (20.0, 180.0))
    for minute, counted in enumerate(score.minutes, start=1):
        assert counted.offered == sum(minute * MINUTE <= each.at_us < (minute + 1) * MINUTE for each in asked)
        assert 0 <= counted.good <= counted.offered
    assert run.counting.open == 0
    assert run.counting.offered.total() == len(asked)


def test_slices_are_paid_for_as_long_as_they_are_held() -> None:
    world = replace(WORLD, price=2.0, scaling=ScalingSpec("fixed"))
    score, _ = play(world, (1.0, 120.0))
    assert score.replica_hours == pytest.approx(8 / 60)
    assert score.cost == pytest.approx(2 * 8 / 60)
    assert score.changes == 0


@pytest.mark.slow
def test_replicas_follow_the_load_and_fewer_are_held_than_all() -> None:
    ours, fixed = doubled("slo"), doubled("fixed")
    assert fixed.violations == 0.0
    assert ours.replica_hours < 0.7 * fixed.replica_hours
    assert ours.violations < 0.1
    assert ours.minutes[-1].violations < 0.01
    assert 1 <= ours.changes <= 8


@pytest.mark.slow
def test_the_same_seed_gives_the_same_run() -> None:
    again, _ = play(WORLD, (20.0, 120.0), (60.0, 60.0))
    assert replace(again, accuracy=0.0) == replace(doubled("slo"), accuracy=0.0)


def test_the_worst_minute_is_one_in_which_enough_was_asked() -> None:
    score = doubled("slo")
    assert score.worst == max(each.violations for each in score.minutes)
    assert score.violations <= score.worst


@pytest.mark.slow
def test_answers_by_a_smaller_variant_are_counted_as_less_accurate() -> None:
    world = replace(WORLD, models=(replace(THREE, most=1),))
    calm, _ = play(world, (1.0, 120.0))
    busy, _ = play(world, (25.0, 120.0))
    assert calm.accuracy == pytest.approx(0.9, abs=0.005)
    assert 0.8 <= busy.accuracy < calm.accuracy


@pytest.mark.slow
def test_a_spot_slice_that_is_taken_away_is_replaced_before_when_it_was_said() -> None:
    world = replace(WORLD, slices=4, spot=3, scaling=ScalingSpec("slo"), models=(replace(MODEL, least=2),))
    run = ScaledSimulation(world, offered((30.0, 180.0)), Guesses())
    run.play(90 * SECOND)
    taken = [name for each in run.control.scaling.standings().values() for name in each.slices]
    spot = next(name for name in taken if f"spot {name}" in {each.domain for each in world.specs})
    run.warn(91 * SECOND, f"spot {spot}", "a notice")
    run.lose(121 * SECOND, f"spot {spot}")
    run.play(120 * SECOND)
    left = [name for each in run.control.scaling.standings().values() for name in each.slices]
    assert spot not in left
    assert len(left) == len(taken)
    run.play(182 * SECOND)
    assert not [low for low, high in pairwise(run.counting.good.values()) if low + high == 0]
    assert run.counting.good[2] > 0.99 * run.counting.offered[2]
