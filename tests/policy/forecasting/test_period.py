"""What finding a period promises: any length once it was seen twice, none in noise, slopes and steps."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.policy.forecasting.period import find_period


@given(
    st.lists(st.integers(0, 100), min_size=4, max_size=60).filter(lambda day: max(day) - min(day) > 20),
    st.integers(2, 4),
)
def test_a_day_of_any_length_and_form_is_found_when_it_was_seen_twice(day: list[int], days: int) -> None:
    found = find_period(np.tile(np.array(day, np.float64), days))
    assert found >= 3
    assert found <= len(day)
    assert _unlike(np.array(day, np.float64), found) <= 0.15  # it may nearly repeat itself within


def _unlike(day: np.ndarray, period: int) -> float:
    rolled = np.roll(np.tile(day, 10), period)[period:]
    return float(1.0 - np.corrcoef(rolled, np.tile(day, 10)[period:])[0, 1])


@pytest.mark.parametrize("period", [12, 37, 144, 300])
@pytest.mark.parametrize("days", [2.0, 2.4, 5.0])
def test_a_wave_is_found_to_the_bin(period: int, days: float) -> None:
    at = np.arange(int(period * days))
    assert find_period(10.0 + 5.0 * np.sin(2.0 * np.pi * at / period)) == period


@pytest.mark.parametrize("seed", range(5))
def test_a_noisy_day_is_found_to_a_tenth(seed: int) -> None:
    rates = 100.0 + 60.0 * np.sin(2.0 * np.pi * np.arange(300) / 100.0)
    found = find_period(np.sqrt(np.random.default_rng(seed).poisson(rates)))
    assert found == pytest.approx(100, abs=10)


@pytest.mark.parametrize("bins", [20, 60, 360, 1440])
def test_of_forty_constant_rates_at_most_one_seems_to_have_a_period(bins: int) -> None:
    counts = np.random.default_rng(5).poisson(50.0, (40, bins))
    assert sum(find_period(np.sqrt(each)) > 0 for each in counts) <= 1


def test_nothing_a_slope_a_step_and_a_crowd_have_none() -> None:
    at = np.arange(200.0)
    histories = [np.zeros(200), np.full(200, 0.1), at, np.sqrt(at)]
    histories += [np.where(at < step, 1.0, 3.0) for step in (20, 100, 150)]
    histories += [np.where((at > crowd) & (at < crowd + 9), 3.0, 1.0) for crowd in (10, 80, 150)]
    assert [find_period(each) for each in histories] == [0] * 10


@given(st.lists(st.floats(0, 1e6), max_size=40))
def test_no_period_is_longer_than_half_of_what_was_seen(levels: list[float]) -> None:
    assert 0 <= 2 * find_period(np.array(levels)) <= len(levels)
