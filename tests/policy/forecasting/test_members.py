"""What each member promises where its law holds, and that none runs away."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.policy.forecasting.autoregression import autoregression
from serving.policy.forecasting.ensemble import MEMBERS
from serving.policy.forecasting.ewma import averages, quick_average, slow_average
from serving.policy.forecasting.holt_winters import holt_winters
from serving.policy.forecasting.member import ForecastInput, Member
from serving.policy.forecasting.seasonal_naive import seasonal_naive

LEVELS = st.lists(st.floats(0.0, 1e3), min_size=1, max_size=60)


def ahead(member: Member, levels: list[float], bins: int, period: int = 0) -> list[float]:
    series = ForecastInput(np.array(levels), period)
    found = member(series, np.array([len(levels) - 1]), bins)
    return [float(each) for each in found[0]]


@pytest.mark.parametrize("name", MEMBERS)
@given(level=st.floats(0.0, 1e3), bins=st.integers(1, 40))
def test_what_was_always_the_same_stays_so(name: str, level: float, bins: int) -> None:
    assert ahead(MEMBERS[name], [level] * 30, bins) == pytest.approx([level] * bins)


@pytest.mark.parametrize("name", sorted(set(MEMBERS) - {"autoregression"}))
@given(levels=LEVELS, bins=st.integers(1, 10))
def test_what_is_foretold_at_a_time_does_not_depend_on_what_came_later(
    name: str, levels: list[float], bins: int
) -> None:
    known = len(levels) // 2
    late = MEMBERS[name](ForecastInput(np.array(levels), 0), np.array([known]), bins)[0]
    assert ahead(MEMBERS[name], levels[: known + 1], bins) == pytest.approx(late.tolist())


@pytest.mark.parametrize("name", MEMBERS)
@given(levels=LEVELS)
def test_none_runs_away(name: str, levels: list[float]) -> None:
    reach = 1e-9 + 12.0 * max(levels)
    assert all(abs(each) <= reach for each in ahead(MEMBERS[name], levels, 300))


def test_the_naive_forecast_is_the_last_level_or_that_of_a_period_ago() -> None:
    assert ahead(seasonal_naive, [1.0, 2.0, 3.0], 2) == [3.0, 3.0]
    assert ahead(seasonal_naive, [9.0, 1.0, 2.0, 3.0], 5, period=3) == [1.0, 2.0, 3.0, 1.0, 2.0]


@pytest.mark.parametrize("member", [seasonal_naive, holt_winters])
def test_before_the_first_period_is_over_a_season_is_unknown(member: Member) -> None:
    found = member(ForecastInput(np.arange(8.0), 3), np.arange(8), 2)
    assert np.isnan(found[:2]).all()
    assert np.isfinite(found[2:]).all()


def test_the_first_averages_are_means_and_later_ones_forget() -> None:
    assert averages(np.array([1.0, 3.0]), 1e-6) == pytest.approx([1.0, 2.0])
    levels = np.array([1.0] * 50 + [2.0] * 50)
    assert averages(levels, 0.3)[-1] == pytest.approx(2.0, abs=1e-6)
    assert ahead(slow_average, levels.tolist(), 1)[0] < ahead(quick_average, levels.tolist(), 1)[0]


def test_a_slope_goes_on_and_levels_off() -> None:
    found = ahead(holt_winters, np.arange(200.0).tolist(), 300)
    assert found[0] == pytest.approx(200.0, abs=1.5)
    assert 203.0 < found[9] < 209.0
    assert found[-1] == pytest.approx(found[-2], abs=1e-3)


def test_a_season_on_a_new_level_is_foretold() -> None:
    day = 5.0 + np.sin(2.0 * np.pi * np.arange(24) / 24.0)
    levels = np.concatenate((np.tile(day, 3), np.tile(day + 2.0, 3)))
    assert ahead(holt_winters, levels.tolist(), 24, period=24) == pytest.approx(list(day + 2.0), abs=0.4)


def test_deviations_go_on_as_they_did() -> None:
    rng = np.random.default_rng(1)
    deviations = [0.0]
    for noise in rng.normal(0.0, 0.1, 500).tolist():
        deviations.append(0.8 * deviations[-1] + noise)
    levels = 10.0 + np.array([*deviations, 1.0])
    after = ahead(autoregression, levels.tolist(), 20)
    assert 10.4 < after[0] < 10.9  # not back at once
    assert after[:5] == sorted(after[:5], reverse=True)
    assert after[-1] == pytest.approx(ahead(slow_average, levels.tolist(), 1)[0], abs=0.05)
