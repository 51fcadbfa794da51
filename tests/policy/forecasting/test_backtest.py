"""What the backtest promises: errors as large as they were, of times like now; once is no law."""

import numpy as np
import pytest

from serving.policy.forecasting.backtest import backtest
from serving.policy.forecasting.ensemble import MEMBERS
from serving.policy.forecasting.member import ForecastInput
from serving.policy.forecasting.quantiles import Array
from serving.policy.forecasting.seasonal_naive import seasonal_naive


def high_error(levels: Array, bins: int) -> float:
    return float(backtest(ForecastInput(levels, 0), [seasonal_naive], bins).errors[1, 0, -1])


def test_noise_is_off_by_as_much_as_noise_is() -> None:
    levels = np.random.default_rng(2).normal(10.0, 1.0, 500)
    found = [high_error(levels[:end], 1) + levels[end - 1] for end in range(300, 500)]
    assert np.mean(found) == pytest.approx(10.0 + 1.645 * np.sqrt(2.0), abs=0.3)  # two of them differ


def test_a_crowd_that_came_once_is_no_law_and_one_that_came_twice_is() -> None:
    once, twice = np.ones(150), np.ones(150)
    once[100:105] = twice[100:105] = twice[40:45] = 3.0
    assert high_error(once, 12) < 0.2
    assert high_error(twice, 12) == pytest.approx(2.0)


def test_what_was_off_while_idle_is_not_feared_while_busy() -> None:
    levels = np.tile(np.repeat([0.1, 3.0], [17, 11]), 10)
    levels += np.random.default_rng(3).normal(0.0, 0.01, 280)
    assert high_error(levels[:-2], 6) < 0.5  # busy: no more can come
    assert high_error(levels[:-12], 6) == pytest.approx(2.9, abs=0.1)  # idle: all of it may


def test_horizons_of_which_too_little_is_known_are_not_judged() -> None:
    found = backtest(ForecastInput(np.arange(12.0), 0), list(MEMBERS.values()), 100)
    assert found.horizons.tolist() == [1, 2, 3, 4, 6, 8]
    assert found.now.shape == (5, 100)
    assert np.isfinite(found.errors).all()
    assert np.isfinite(found.losses).all()


def test_who_was_right_has_no_loss() -> None:
    day = np.array([1.0, 2.0, 5.0, 2.0, 1.0, 1.0])
    found = backtest(ForecastInput(np.tile(day, 10), 6), list(MEMBERS.values()), 4)
    losses = dict(zip(MEMBERS, found.losses[:, -1].tolist(), strict=True))
    assert losses["seasonal naive"] == 0.0
    assert losses["slow average"] > 0.1
