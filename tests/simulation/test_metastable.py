"""There is no trap: from any profile and after any disturbance goodput is soon what a fresh gateway has."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import product
from statistics import mean

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loadtests.scheduling.disturbed_policies import SecondBySecond
from loadtests.virtual.virtual_world import World, offer
from serving.simulation.devices.device import Physics
from serving.values.disturbance import Disturbance, preempted, shared, slowed
from serving.values.specs import BatchingSpec
from tests.seeds import drawn, some

pytestmark = pytest.mark.in_turn(2)

CAPACITY = 1280  # rows/s in batches of 32 rows, which take half the SLO
# An MLP of three layers on one core, as it was measured: one row takes nearly as long as eight.
MLP = World(
    BatchingSpec("slo", guard_us=300), slo_us=50_000, alpha_us=480, beta_us=9500, learned=False,
    physics=Physics(noise=0.05, overhead_us=700),
)  # fmt: skip
BACK_S = 3
RECOVERED = 0.9


def goodput(world: World, rate: float, seconds: int, first: int, seed: int = 1) -> float:
    """Requests a second answered in time, from second `first` on."""
    run = SecondBySecond(world, seed)
    run.play(offer(world, rate, seconds, seed))
    return mean(run.good[second] for second in range(first, seconds))


def eightfold(_rows: int) -> float:
    return 8.0


def fourfold_from_four(rows: int) -> float:
    return 4.0 if rows >= 4 else 1.0


def third(_rows: int) -> float:
    return 1 / 3


def disturbed(rows: int) -> float:
    return 2.4 if rows == 2 else 2.2


def dearer_by_row(rows: int) -> float:
    return float(rows)


def dear_from_sixteen(rows: int) -> float:
    return max(rows / 16, 1.0)


@cache
def fresh_goodput(share: float, seed: int) -> float:
    return goodput(MLP, share * CAPACITY, BACK_S + 3, BACK_S, seed)


@pytest.mark.slow
@pytest.mark.parametrize(("share", "seed"), some([*product([0.5, 1.5, 3], [1, 2, 3])]))
@pytest.mark.parametrize(
    ("profiled", "measured_max"),
    [
        (eightfold, 0), (fourfold_from_four, 0), (third, 0), (disturbed, 8), (disturbed, 2),
        (dearer_by_row, 0), (dear_from_sixteen, 0),
    ],
)  # fmt: skip
def test_a_profile_that_is_wrong_is_overcome_under_load(
    profiled: Callable[[int], float], measured_max: int, seed: int, share: float
) -> None:
    poisoned = replace(MLP, profiled=profiled, measured_max=measured_max)
    found = goodput(poisoned, share * CAPACITY, BACK_S + 3, BACK_S, seed)
    assert found >= RECOVERED * fresh_goodput(share, seed)


SLOW = replace(MLP, beta_us=24_000)
"""One row takes half the SLO, so nothing says that two rows fit, unless they are tried."""
SLOW_CAPACITY = 80


def sixfold_from_two(rows: int) -> float:
    return 6.0 if rows > 1 else 1.0


@pytest.mark.slow
@pytest.mark.parametrize("seed", some([1, 2, 3]))
@pytest.mark.parametrize("share", [1.5, 3])
def test_that_two_rows_seem_not_to_fit_the_slo_is_found_to_be_wrong(share: float, seed: int) -> None:
    rate, first = share * SLOW_CAPACITY, 2 * BACK_S  # some 40 batches a second: half of them are looked at
    fresh = goodput(SLOW, rate, first + 3, first, seed)
    poisoned = replace(SLOW, profiled=sixfold_from_two)
    assert goodput(poisoned, rate, first + 3, first, seed) >= RECOVERED * fresh


@pytest.mark.slow
@pytest.mark.parametrize("share", some([0.5, 1.5, 3]))
@pytest.mark.parametrize(
    "disturbance",
    [
        shared(2, 3),
        shared(2, 3, 3),
        slowed(2, 3, 3),
        preempted(2, 3, 0.3, (1, 50)),
        preempted(2, 3, 0.6, (1, 50)),
    ],
)
def test_goodput_is_back_three_seconds_after_a_disturbance(disturbance: Disturbance, share: float) -> None:
    rate, after = share * CAPACITY, 5 + BACK_S
    fresh = goodput(MLP, rate, after + 2, after)
    assert goodput(replace(MLP, disturbances=(disturbance,)), rate, after + 2, after) >= RECOVERED * fresh


@pytest.mark.slow
def test_under_a_neighbour_batches_carry_what_the_core_has_left() -> None:
    """Half of the core is left: batches of 20 rows, which take 38 of 50 ms then, carry 520 a second."""
    world = replace(MLP, disturbances=(shared(2, 6),))
    assert goodput(world, 3 * CAPACITY, 8, 4) >= 400
    assert goodput(world, 0.5 * CAPACITY, 8, 4) >= 280


@pytest.mark.slow
@pytest.mark.parametrize(("share", "of_static"), [(0.25, 0.82), (0.5, 0.88), (0.75, 1.45)])
def test_stops_cost_hardly_more_than_where_nothing_is_given_up(share: float, of_static: float) -> None:
    """Batches so short that they are in time with nearly every stop would carry less than comes. Of what
    `static` has, they had .72, .64 and 1.25 at these loads; now it is .90, .96 and 1.8, in the mean of four
    seeds, and of four others .90, .96 and 1.7."""
    world = replace(MLP, disturbances=(preempted(2, 6, 0.3, (1, 50)),))
    static = replace(world, policy=BatchingSpec("static", guard_us=300))
    ours, theirs = (
        mean(goodput(each, share * CAPACITY, 8, 3, seed) for seed in range(4)) for each in (world, static)
    )
    assert ours >= of_static * theirs


@pytest.mark.slow
@settings(max_examples=drawn(15), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    row_us=st.floats(50, 2000),
    fixed_share=st.floats(0.05, 0.45),
    slo_us=st.integers(20_000, 200_000),
    errors=st.tuples(st.floats(0.3, 8), st.floats(0.3, 8)),
    share=st.floats(0.3, 4),
    seed=st.integers(0, 1000),
)
def test_the_loop_has_one_fixed_point(
    row_us: float, fixed_share: float, slo_us: int, errors: tuple[float, float], share: float, seed: int
) -> None:
    """What a model carries in the end does not depend on what its profile said at first, over random curves,
    errors by size, and rates."""
    beta_us = fixed_share * slo_us
    half = max(int((slo_us / 2 - beta_us) / row_us), 1)  # the batch that takes half the SLO
    rate = min(share * half / (half * row_us + beta_us) * 1e6, 4000)
    true = replace(MLP, slo_us=slo_us, alpha_us=row_us, beta_us=beta_us, batch_max=max(half, 2))
    wrong = replace(true, profiled=lambda rows: errors[rows >= 4])
    fresh = goodput(true, rate, 7, 5, seed)
    assert goodput(wrong, rate, 7, 5, seed) >= RECOVERED * fresh - 3  # answers of some batch more or less
