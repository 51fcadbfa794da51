"""What is guessed before a table is there: no more than a queue carries, and what any table promises."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtests.virtual.scaled_world import ScaledModel, ScaledWorld
from serving.policy.scaling.carried.guess import COUNTS, CVS, SIGMAS, carried, guess
from serving.profile.curve import Point, Profile

MODEL = ScaledModel()


def profile(alpha_us: float, beta_us: float, rows_max: int = 8) -> Profile:
    points = tuple(
        Point(0, n, alpha_us * n + beta_us, alpha_us * n + beta_us, 9) for n in range(1, rows_max + 1)
    )
    return Profile("m", "v", "kind", points)


def of(told: Profile) -> tuple[tuple[float, ...], ...]:
    return guess(told, MODEL.served(ScaledWorld().specs)).rates


@given(st.floats(1, 100_000), st.floats(0, 300_000))
def test_several_carry_at_least_as_many_times_one_and_bursts_cost(alpha_us: float, beta_us: float) -> None:
    rates = of(profile(alpha_us, beta_us))
    for row in rates:
        for (few, less), (many, more) in pairwise(zip(COUNTS, row, strict=True)):
            assert more / many >= less / few * (1 - 1e-9)
    for calm, burst in pairwise(rates):
        assert all(less <= more * (1 + 1e-9) for more, less in zip(calm, burst, strict=True))


@given(st.floats(1, 100_000), st.floats(0, 300_000))
def test_it_is_never_more_than_they_compute_without_a_pause_and_never_nothing(
    alpha_us: float, beta_us: float
) -> None:
    told = profile(alpha_us, beta_us)
    saturated = max(1e6 * point.rows / point.p50_us for point in told.points)
    for row in of(told):
        assert all(rate <= count * saturated for count, rate in zip(COUNTS, row, strict=True))
        assert row[-1] > 0


@pytest.mark.parametrize(
    ("services", "count", "queue"),
    [(3, 1, 0.22), (3, 2, 0.54), (3, 4, 0.75), (3, 8, 0.87), (5, 1, 0.51), (5, 2, 0.74), (5, 4, 0.87)],
)
def test_its_utilisation_is_that_of_a_queue_of_constant_services_within_a_tenth(
    services: int, count: int, queue: float
) -> None:
    """The utilisations at which 99 % of an M/D/n queue's customers are done within so many services."""
    assert carried(count, 1.0, [(1, 1.0)], float(services)) / count == pytest.approx(queue, abs=0.1)


def test_what_cannot_be_done_in_time_is_at_least_answered() -> None:
    rates = of(profile(500_000.0, 0.0))
    assert rates[0][0] == pytest.approx(1.0)  # half of two a second
    assert rates == ((rates[0]),) * len(CVS)


def test_more_certainty_costs_capacity() -> None:
    assert SIGMAS >= 3  # with fewer the queue above would be promised more than it carries
