"""What the envelope promises: exact counts of every window, steps in seconds, no change out of chance."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.policy.scaling.load.envelope import WINDOWS_S, Envelope, Estimate

SECOND_US = 1_000_000
counts = st.lists(st.integers(0, 50), min_size=1, max_size=40)


def told(rows: list[int], period_us: int = SECOND_US) -> Envelope:
    envelope = Envelope()
    for place, each in enumerate(rows):
        envelope.add(each, period_us, (place + 1) * period_us)
    return envelope


def poisson(seed: int, *stretches: tuple[float, int]) -> list[int]:
    chance = np.random.default_rng(seed)
    return [int(chance.poisson(rate)) for rate, seconds in stretches for _ in range(seconds)]


@given(counts)
def test_each_window_holds_the_rows_of_its_last_seconds(rows: list[int]) -> None:
    envelope = told(rows)
    for window in WINDOWS_S:
        assert envelope.rows(window) == sum(rows[-window:])


def test_the_longest_window_forgets_what_is_older() -> None:
    rows = list(range(WINDOWS_S[-1] + 100))
    assert told(rows).rows(WINDOWS_S[-1]) == sum(rows[-WINDOWS_S[-1] :])


@given(counts, st.integers(2, 9))
def test_arrivals_that_are_so_many_times_as_many_are_so_many_times_in_every_window(
    rows: list[int], times: int
) -> None:
    once, scaled = told(rows), told([times * each for each in rows])
    assert [scaled.rows(each) for each in WINDOWS_S] == [times * once.rows(each) for each in WINDOWS_S]


@given(counts, st.floats(1, 64), st.floats(0, 120))
def test_the_rate_lies_between_its_bounds_and_no_trend_lowers_it(
    rows: list[int], dispersion: float, ahead_s: float
) -> None:
    found = told(rows).estimate(dispersion, ahead_s)
    assert 0 <= found.low <= found.rate <= found.high
    assert found.ahead >= found.rate
    assert 0 < found.window_s <= len(rows)


def test_before_anything_was_seen_there_is_no_rate() -> None:
    assert Envelope().estimate(1.0, 10.0) == Estimate()
    assert Envelope().rows(4) == 0


@pytest.mark.parametrize("seed", range(5))
def test_the_longer_a_rate_is_steady_the_better_it_is_known(seed: int) -> None:
    rows = poisson(seed, (100.0, 300))
    spreads = []
    for seconds in (4, 16, 64, 256):
        found = told(rows[:seconds]).estimate(1.0, 10.0)
        assert found.low <= 100 <= found.high
        spreads.append(found.high - found.low)
    assert all(shorter > longer for shorter, longer in pairwise(spreads))


@pytest.mark.parametrize("seed", range(5))
def test_a_step_of_three_is_followed_within_two_seconds(seed: int) -> None:
    found = told(poisson(seed, (60.0, 200), (180.0, 2))).estimate(1.0, 0.0)
    assert found.window_s <= 4
    assert found.rate == pytest.approx(180, rel=0.2)


@pytest.mark.parametrize("seed", range(5))
def test_a_step_is_no_trend_once_it_is_over(seed: int) -> None:
    found = told(poisson(seed, (60.0, 200), (180.0, 30))).estimate(1.0, 10.0)
    assert found.ahead < 1.1 * 180


def test_a_small_change_is_noticed_within_minutes_and_not_before() -> None:
    rows = poisson(3, (100.0, 256), (110.0, 128))
    assert told(rows[:258]).estimate(1.0, 0.0).rate < 105
    assert told(rows).estimate(1.0, 0.0).rate > 105


def test_a_ramp_is_foreseen() -> None:
    """One more a second, each second: when a replica has started in 20 s, there are 20 more."""
    ramp = [100] * 60 + [100 + step for step in range(60)]
    found = told(ramp).estimate(1.0, 20.0)
    assert found.ahead == pytest.approx(159 + 20, rel=0.05)
    assert found.rate < 159


def test_no_trend_is_followed_for_longer_than_it_was_seen() -> None:
    ramp = [100] * 60 + [100 + 20 * step for step in range(8)]
    envelope = told(ramp)
    assert envelope.estimate(1.0, 1000.0).ahead == envelope.estimate(1.0, 50.0).ahead < 1000


@pytest.mark.parametrize("seed", range(5))
def test_steady_arrivals_have_no_trend(seed: int) -> None:
    rows = poisson(seed, (100.0, 600))
    envelope = Envelope()
    rising = 0
    for place, each in enumerate(rows):
        envelope.add(each, SECOND_US, (place + 1) * SECOND_US)
        found = envelope.estimate(1.0, 10.0)
        rising += found.ahead > found.rate
    assert rising < 6


def test_looks_that_come_late_change_no_rate() -> None:
    even, late = told([50] * 64), told([100] * 32, 2 * SECOND_US)
    assert even.estimate(1.0, 0.0).rate == late.estimate(1.0, 0.0).rate == 50


@given(st.lists(st.integers(0, 500), min_size=2, max_size=300), st.floats(0.5, 100), st.floats(0, 3))
def test_caution_asks_for_no_less_than_is_foreseen_and_no_more_than_is_possible(
    rows: list[int], dispersion: float, sigmas: float
) -> None:
    found = told(rows).estimate(dispersion, 10.0)
    cautious = found.cautious(dispersion, sigmas)
    assert 0 < found.counted_s <= found.window_s
    assert found.ahead <= cautious <= max(found.ahead, found.high)
    assert found.cautious(dispersion, 0.0) == found.ahead
    assert cautious <= found.ahead + sigmas * (dispersion * found.rate / found.counted_s) ** 0.5 + 1e-9


def test_caution_is_for_what_is_new() -> None:
    def margin(rows: list[int]) -> float:
        found = told(rows).estimate(1.0, 10.0)
        return found.cautious(1.0, 1.3) - found.ahead

    assert 0 < margin([100] * 256) < 1
    assert margin([10] * 255 + [100]) > 10
