"""What a rate promises: the true rate of steady arrivals, a burst at once, a lull in time."""

import pytest

from serving.policy.rates import Rate


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


def test_without_arrivals_there_is_no_rate() -> None:
    assert Rate().peak(10) == 0
