"""What is said of bursts: the coefficient of variation of the gaps, whatever else changes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.policy.scaling.load.burstiness import LARGEST, Burstiness


def gamma(cv: float, rate: float, seconds: int, seed: int = 0) -> list[tuple[int, float]]:
    """Rows, and the squares of their gaps, by second, of gaps with a gamma distribution."""
    chance = np.random.default_rng(seed)
    count = int(rate * seconds + 6 * cv * (rate * seconds) ** 0.5) + 10
    gaps = chance.gamma(1 / cv**2, cv**2 / rate, count)
    at = np.cumsum(gaps)
    return [
        (int(inside.sum()), float((gaps[inside] ** 2).sum()))
        for second in range(seconds)
        for inside in [(at >= second) & (at < second + 1)]
    ]


def told(*seconds: tuple[int, float]) -> Burstiness:
    bursts = Burstiness()
    for rows, gaps_s2 in seconds:
        bursts.add(rows, rows, gaps_s2, 1.0)
    return bursts


@pytest.mark.parametrize("cv", [1.0, 2.0, 4.0, 8.0])
def test_it_is_found_within_a_fifth_in_ten_minutes(cv: float) -> None:
    assert told(*gamma(cv, 100.0, 600)).cv == pytest.approx(cv, rel=0.2)


def test_from_one_to_four_at_the_same_mean_it_is_above_two_within_a_minute() -> None:
    calm, burst = gamma(1.0, 100.0, 300), gamma(4.0, 100.0, 60)
    assert told(*calm).cv < 1.2
    assert told(*calm, *burst).cv > 2


@pytest.mark.parametrize("factor", [3.0, 10.0])
def test_a_jump_of_the_rate_is_hardly_a_burst(factor: float) -> None:
    assert told(*gamma(1.0, 50.0, 300), *gamma(1.0, 50.0 * factor, 60)).cv < 2


def test_a_pause_is_no_burst() -> None:
    """Ten seconds of nothing, now and then: the gap that ends it is not one of those in the load."""
    load = gamma(1.0, 100.0, 30)
    paused = [*load, *[(0, 0.0)] * 10, (100, 100.0 + 2 / 100)]
    assert told(*(paused * 8)).cv < 2


def test_requests_of_many_rows_are_bursts_of_rows() -> None:
    singles = gamma(1.0, 20.0, 300)
    many = [(9 * rows, gaps_s2) for rows, gaps_s2 in singles]
    assert told(*many).cv == pytest.approx((9 * 2 - 1) ** 0.5, rel=0.2)


def test_a_few_arrivals_tell_nothing() -> None:
    assert Burstiness().cv == 1
    assert told((1, 0.4), (0, 0.0), (2, 1.1)).cv == 1


@given(st.lists(st.tuples(st.integers(0, 1000), st.floats(0, 1e6)), max_size=60), st.floats(0.5, 5))
def test_it_is_at_least_that_of_poisson_arrivals_and_bounded(
    seconds: list[tuple[int, float]], period_s: float
) -> None:
    bursts = Burstiness()
    for rows, gaps_s2 in seconds:
        bursts.add(rows, rows, gaps_s2, period_s)
        assert 1 <= bursts.cv <= LARGEST
