"""What a forecast promises: the scale of its history, no noise for news, seasons, slopes, and no panic."""

import math
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadtests.scaling.forecasts import ENSEMBLE, HISTORIES, Counts, mean, recorded, score, twin_day
from serving.policy.forecasting.ensemble import MEMBERS, forecast, foretell
from tests.seeds import drawn

BIN_S = 10.0
HISTORY = st.one_of(
    st.lists(st.integers(0, 10_000), max_size=80),
    st.builds(lambda bins, rows: [rows] * bins, st.integers(0, 80), st.integers(0, 10_000)),
    st.builds(
        lambda before, rows, after: [0] * before + [rows] + [0] * after,
        st.integers(0, 40),
        st.integers(1, 10_000),
        st.integers(0, 40),
    ),
)
few = settings(max_examples=drawn(40), deadline=None)


def poisson(rng: np.random.Generator, rates: npt.NDArray[np.float64]) -> Counts:
    return np.asarray(rng.poisson(rates), np.float64)


def largest(rows: Sequence[float] | Counts, now: int, bins: int) -> float:
    return float(max(rows[now : now + bins])) / BIN_S


@few
@given(HISTORY, st.floats(1.0, 1_000.0))
def test_whatever_came_the_quantiles_are_numbers_and_in_order(history: list[int], horizon_s: float) -> None:
    found = foretell(history, BIN_S, horizon_s)
    every = [found.quantiles, *found.opinions.values()]
    assert all(0.0 <= each.median <= each.high < math.inf for each in every)


@few
@given(HISTORY, st.integers(-4, 4))
def test_so_many_times_the_rows_make_so_many_times_the_rate(history: list[int], power: int) -> None:
    one, other = (forecast([rows * times for rows in history], BIN_S, 60.0) for times in (1.0, 4.0**power))
    assert other.median == pytest.approx(one.median * 4.0**power)
    assert other.high == pytest.approx(one.high * 4.0**power)


@few
@given(HISTORY, st.floats(1.0, 900.0), st.floats(1.0, 900.0))
def test_a_longer_horizon_is_never_less(history: list[int], one_s: float, other_s: float) -> None:
    short, long = (forecast(history, BIN_S, each) for each in sorted((one_s, other_s)))
    assert short.median <= long.median * (1 + 1e-12)
    assert short.high <= long.high * (1 + 1e-12)


@few
@given(HISTORY.filter(any))
def test_the_weights_sum_to_one(history: list[int]) -> None:
    found = foretell(history, BIN_S, 60.0)
    assert sum(found.weights.values()) == pytest.approx(1.0)
    assert min(found.weights.values()) >= 0.0
    assert set(found.weights) == set(found.opinions) == set(MEMBERS)


def test_of_nothing_nothing_is_foretold_and_of_one_bin_that_bin() -> None:
    assert forecast([], BIN_S, 60.0) == forecast([0.0] * 20, BIN_S, 60.0)
    assert forecast([], BIN_S, 60.0).high == 0.0
    found = forecast([50.0], BIN_S, 60.0)
    assert found.median == pytest.approx(5.0)
    assert 5.0 < found.high < 6.5


@pytest.mark.parametrize(
    ("history", "bin_s", "horizon_s"),
    [
        ([1.0], 0.0, 1.0),
        ([1.0], 1.0, -1.0),
        ([-1.0], 1.0, 1.0),
        ([math.nan], 1.0, 1.0),
        ([math.inf], 1.0, 1.0),
    ],
)
def test_what_is_no_history_is_refused(history: list[float], bin_s: float, horizon_s: float) -> None:
    with pytest.raises(ValueError, match=r"positive|negative"):
        forecast(history, bin_s, horizon_s)


@pytest.mark.parametrize("period", [18, 36, 90])
@pytest.mark.parametrize("bins", [3, 12, 30])
def test_a_day_that_was_seen_twice_is_foretold_to_5_percent(period: int, bins: int) -> None:
    phase = 2.0 * np.pi * np.arange(6 * period) / period
    rows = 100.0 * (1.2 + np.sin(phase) + 0.3 * np.sin(3.0 * phase))
    for now in range(2 * period, 3 * period, 7):
        found = forecast(rows[:now], BIN_S, bins * BIN_S)
        assert found.median == pytest.approx(largest(rows, now, bins), rel=0.05)
    found = forecast(rows[: 4 * period], BIN_S, bins * BIN_S)
    assert found.high == pytest.approx(largest(rows, 4 * period, bins), rel=0.05)


@pytest.mark.parametrize("bins", [6, 18])
def test_a_slope_is_followed(bins: int) -> None:
    rates = np.interp(np.arange(160), [60, 140], [1_000.0, 5_000.0])
    rows = poisson(np.random.default_rng(4), rates)
    for now in range(90, 120, 3):
        found = forecast(rows[:now], BIN_S, bins * BIN_S)
        came = largest(rows, now, bins)
        assert found.high >= 0.98 * came
        assert 0.88 * came <= found.median <= 1.12 * came


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["constant, 2/s", "constant, 100/s", "diurnal, day of 20 min"])
def test_of_a_hundred_horizons_ninety_to_ninety_nine_stay_below_the_high_quantile(kind: str) -> None:
    drawn = [HISTORIES[kind](np.random.default_rng(seed)) for seed in range(3)]
    covered = mean([score(rows, BIN_S, 60.0, every=9) for rows in drawn])[ENSEMBLE].covered
    assert 0.90 <= covered <= 0.99


@pytest.mark.parametrize("rows_a_bin", [100.0, 1_000.0])
def test_noise_of_a_constant_rate_is_foretold_as_what_it_is(rows_a_bin: float) -> None:
    rng = np.random.default_rng(6)
    true = np.quantile(rng.poisson(rows_a_bin, (20_000, 6)).max(axis=1), 0.95)
    rows = poisson(rng, np.full(700, rows_a_bin))
    highs = [forecast(rows[:now], BIN_S, 60.0).high * BIN_S for now in range(200, 700, 20)]
    spread = (np.array(highs) - rows_a_bin) / (true - rows_a_bin)
    assert 0.9 < spread.mean() < 1.2
    assert spread.max() < 1.6


@pytest.mark.parametrize("bins", [6, 20])
def test_a_crowd_is_not_outdone_and_soon_forgotten(bins: int) -> None:
    at = np.arange(500)
    rows = poisson(np.random.default_rng(7), np.where((at >= 300) & (at < 312), 1_000.0, 100.0))
    for now in range(300, 330):
        assert forecast(rows[:now], BIN_S, bins * BIN_S).high <= 1.7 * 100.0
    for now in range(312 + 3 * bins, 500, 10):
        assert forecast(rows[:now], BIN_S, bins * BIN_S).high <= 2.0 * 10.0


@pytest.mark.parametrize("seed", range(6))
def test_weights_follow_the_regime(seed: int) -> None:
    rng = np.random.default_rng(seed)
    calm = poisson(rng, np.full(300, 1_000.0))
    wandering = poisson(rng, 1_000.0 * np.exp(np.cumsum(rng.normal(0.0, 0.1, 120))))
    before = foretell(calm, BIN_S, 60.0).weights
    after = foretell(np.concatenate((calm, wandering)), BIN_S, 60.0).weights
    assert before["slow average"] > 0.2
    assert before["seasonal naive"] < 0.1
    assert after["slow average"] < 0.3 * before["slow average"]
    assert after["seasonal naive"] > 3.0 * before["seasonal naive"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["constant, 100/s", "diurnal, day of 20 min", "ramps", "step x3", "on/off"])
def test_the_ensemble_is_as_good_as_its_best_member(kind: str) -> None:
    drawn = [HISTORIES[kind](np.random.default_rng(seed)) for seed in range(3)]
    losses = {
        name: each.loss for name, each in mean([score(rows, BIN_S, 60.0, every=9) for rows in drawn]).items()
    }
    best = min(losses[name] for name in MEMBERS)
    assert losses[ENSEMBLE] <= 1.05 * best


def _a_good_day(rows: Counts) -> None:
    scores = score(rows, 60.0, 600.0, every=11)
    assert scores[ENSEMBLE].loss <= 1.05 * min(scores[name].loss for name in MEMBERS)
    assert scores[ENSEMBLE].loss <= 0.9 * scores["seasonal naive"].loss
    assert 0.88 <= scores[ENSEMBLE].covered <= 0.99


@pytest.mark.slow
def test_a_drawn_day_of_minutes_is_foretold_better_than_by_its_last_minute() -> None:
    _a_good_day(twin_day(np.random.default_rng(0)))


@pytest.mark.slow
def test_a_recorded_day_of_minutes_is_foretold_better_than_by_its_last_minute() -> None:
    data = os.environ.get("PENSTOCK_DATA")
    if not data:
        pytest.skip("PENSTOCK_DATA names no folder with data (traces/twitter_per_minute.txt)")
    days = [counts for name, counts, _ in recorded(Path(data)) if name.startswith("Twitter")]
    if not days:
        pytest.skip(f"{data} has no traces/twitter_per_minute.txt")
    _a_good_day(days[0])
