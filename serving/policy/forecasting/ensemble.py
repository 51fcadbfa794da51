"""How much will come: a mixture of forecasts, each weighed by how well it did lately.

Each of MEMBERS foretells the levels (square roots of counts) of all bins of the horizon; the largest of them,
corrected by quantiles of its own past errors at that horizon (`backtest`), is its opinion. Opinions are
averaged quantile by quantile, as Lichtendahl, Grushka-Cockayne and Winkler, Is It Better to Average
Probabilities or Quantiles? (Management Science, 2013). What plans are made from: a median and a 95th
percentile, the band of SageServe (POMACS 2025), by forecasts of MArk's kind (ATC 2019, section 4), which are
of the maximum over the horizon.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np

from serving.policy.forecasting.autoregression import autoregression
from serving.policy.forecasting.backtest import ORIGINS, Backtest, backtest
from serving.policy.forecasting.ewma import quick_average, slow_average
from serving.policy.forecasting.holt_winters import holt_winters
from serving.policy.forecasting.member import ForecastInput, Member
from serving.policy.forecasting.period import find_period
from serving.policy.forecasting.quantiles import Array, Quantiles
from serving.policy.forecasting.seasonal_naive import seasonal_naive

MEMBERS: Mapping[str, Member] = {
    "seasonal naive": seasonal_naive,
    "quick average": quick_average,
    "slow average": slow_average,
    "Holt-Winters": holt_winters,
    "autoregression": autoregression,
}
SHARPNESS = 8.0
"""The weight of a member falls with this power of its loss: twice the best one's and it is 1/256, 5 % more
and it is two thirds."""
MORE = 1.25
"""Times the largest level that was seen, 1.56 times the rate: more is foretold by trends only, not because of
errors. What a crowd made of the forecasts before it is not added to the crowd itself."""
ROUNDING = 1e-3  # of the mean loss: below that losses are alike
BEFORE = 120  # bins before those that are backtested, from which averages start
BINS_MIN = 128  # of a horizon that is looked at in any case, however short the history


@dataclass(frozen=True, slots=True)
class Forecast:
    """`quantiles` of the ensemble; `opinions` and `weights` (they sum to 1) of its members at the full
    horizon; `period_s` of the season, 0 for none. Of nothing there are no opinions."""

    quantiles: Quantiles
    opinions: Mapping[str, Quantiles]
    weights: Mapping[str, float]
    period_s: float


def forecast(history: Sequence[float] | Array, bin_s: float, horizon_s: float) -> Quantiles:
    """Return the quantiles of the largest rate, over bins of `bin_s`, within `horizon_s` from now. The first
    bin begins now.

    `history`: rows in each bin, the latest last; an empty history makes zeros. Twice the rows make twice the
    rates, and a longer horizon never less. The time it takes grows with the bins of the history and of the
    horizon. Raises ValueError if `bin_s` or `horizon_s` is not positive, or a bin is negative or not finite.
    """
    return foretell(history, bin_s, horizon_s).quantiles


def foretell(
    history: Sequence[float] | Array, bin_s: float, horizon_s: float, members: Mapping[str, Member] = MEMBERS
) -> Forecast:
    """Return the same with its reasons, by these members."""
    rows = np.asarray(history, np.float64)
    if not bin_s > 0.0 or not horizon_s > 0.0:
        raise ValueError(f"bin_s {bin_s} and horizon_s {horizon_s} have to be positive")
    if not np.isfinite(rows).all() or (rows < 0.0).any():
        raise ValueError("a bin of the history is negative or not finite; it is to be rows that came")
    if not rows.any():
        return Forecast(Quantiles(0.0, 0.0), {}, {}, 0.0)
    levels = np.sqrt(rows)
    period = find_period(levels)
    series = ForecastInput(levels[-(ORIGINS + max(BEFORE, 2 * period)) :], period)
    bins = ceil(min(horizon_s / bin_s, max(len(rows), BINS_MIN)) - 1e-9)
    tested = backtest(series, list(members.values()), max(bins, 1))
    return _mixed(tuple(members), tested, float(series.levels.max()), bin_s, period)


def _mixed(names: Sequence[str], tested: Backtest, peak: float, bin_s: float, period: int) -> Forecast:
    """Return the opinions at each number of bins, averaged, and of these the largest up to the last. `peak`:
    the largest level that was seen."""
    bins = np.arange(1, tested.now.shape[1] + 1)
    judged = np.searchsorted(tested.horizons, bins, side="right") - 1
    weights = _weights(tested.losses)[:, judged]
    most = np.maximum(tested.now, MORE * peak)
    opinions = np.clip(tested.now + tested.errors[:, :, judged], 0.0, most)
    mixed = (weights[None] * opinions).sum(axis=1).max(axis=1)
    return Forecast(
        _rates(mixed, bin_s),
        {name: _rates(opinions[:, place, -1], bin_s) for place, name in enumerate(names)},
        {name: float(weights[place, -1]) for place, name in enumerate(names)},
        period * bin_s,
    )


def _weights(losses: Array) -> Array:
    """Return the weight of each member at each horizon. If nothing is known, all count alike."""
    floor = ROUNDING * losses.mean(axis=0)
    best = losses.min(axis=0) + floor
    ratio = np.divide(best, losses + floor, out=np.ones_like(losses), where=losses + floor > 0.0)
    shares: Array = ratio**SHARPNESS
    return np.asarray(shares / shares.sum(axis=0))


def _rates(levels: Array, bin_s: float) -> Quantiles:
    """Return the rates for the levels at each of LEVELS."""
    median, high = (float(level) ** 2 / bin_s for level in levels)
    return Quantiles(median, high)
