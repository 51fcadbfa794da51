"""What a rate promises: the true rate of steady arrivals, a burst at once, a lull in time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.policy.estimates.rates import Rate, SizeRates


def steady(per_s: float, seconds: float) -> tuple[Rate, int]:
    rate, gap_us = Rate(), 1e6 / per_s
    instants = [int(number * gap_us) for number in range(int(per_s * seconds))]
    for now_us in instants:
        rate.add(1, now_us)
    return rate, instants[-1]


@pytest.mark.parametrize("per_s", [20.0, 300.0, 5000.0])
@pytest.mark.parametrize("seconds", [1.0, 3.0, 30.0])
def test_steady_arrivals_are_read_within_a_tenth_however_young_the_counter(
    per_s: float, seconds: float
) -> None:
    rate, now_us = steady(per_s, seconds)
    assert rate.peak(now_us) * 1e6 == pytest.approx(per_s, rel=0.1)


def test_a_burst_of_three_times_the_rate_shows_within_a_second() -> None:
    rate, now_us = steady(300, 30)
    for number in range(900):
        rate.add(1, now_us + int(number * 1e6 / 900))
    assert rate.peak(now_us + 1_000_000) * 1e6 > 1.7 * 300


def test_after_a_lull_of_half_a_minute_next_to_nothing_is_left() -> None:
    rate, now_us = steady(300, 30)
    assert rate.peak(now_us + 30_000_000) * 1e6 < 0.02 * 300


def test_a_crowd_of_six_times_the_rate_is_a_surge_within_a_twentieth_of_a_second_and_no_peak_yet() -> None:
    rate, now_us = steady(100, 30)
    for number in range(30):
        rate.add(1, now_us + number * 1667)
    now_us += 50_000
    assert rate.surge(now_us) * 1e6 > 3 * 100
    assert rate.peak(now_us) * 1e6 < 1.5 * 100
    assert rate.surge(now_us + 300_000) == rate.peak(now_us + 300_000)  # and over as soon


@pytest.mark.parametrize("per_s", [20.0, 300.0, 5000.0])
def test_steady_arrivals_are_no_surge(per_s: float) -> None:
    rate, now_us = steady(per_s, 30)
    assert rate.surge(now_us) == rate.peak(now_us)


def test_one_request_of_many_rows_is_no_surge() -> None:
    rate, now_us = steady(300, 30)
    rate.add(32, now_us + 2000)
    assert rate.surge(now_us + 2000) < 1.5 * rate.peak(now_us + 2000)


@given(st.lists(st.tuples(st.integers(1, 32), st.integers(0, 400_000)), max_size=40), st.integers(0, 10**6))
def test_a_surge_is_never_less_than_the_peak(arrivals: list[tuple[int, int]], later_us: int) -> None:
    rate, now_us = Rate(), 0
    for rows, gap_us in arrivals:
        now_us += gap_us
        rate.add(rows, now_us)
    assert rate.surge(now_us + later_us) >= rate.peak(now_us + later_us)


def test_without_arrivals_there_is_no_rate() -> None:
    assert Rate().peak(10) == Rate().surge(10) == 0


def test_what_is_usual_of_a_bucket_follows_its_batches_and_is_the_bucket_until_one_is_back() -> None:
    rates = SizeRates()
    assert (rates.usual(128), rates.usual(0)) == (128, 0)
    rates.ran(128, 40)
    assert (rates.usual(128), rates.usual(512)) == (40, 512)
    for _ in range(100):
        rates.ran(128, 120)
    assert 116 <= rates.usual(128) <= 128
    rates.ran(0, 0)
    assert rates.usual(0) == 0
