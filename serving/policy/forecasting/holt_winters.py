"""A level, a trend that dies away, and a season: Holt (1957) and Winters (1960).

With the damped trend of Gardner and McKenzie (1985), as in Hyndman and Athanasopoulos, Forecasting:
Principles and Practice, 3rd edition (2021), sections 8.2 and 8.3: undamped trends run away over long
horizons. The smoothing is fixed: histories are too short to fit it for each, and the ensemble weighs the
result.
"""

import numpy as np

from serving.policy.forecasting.member import ForecastInput, season_bins
from serving.policy.forecasting.quantiles import Array, Index

LEVEL = 0.3  # of the newest bin in the level
TREND = 0.1  # of the newest step in the trend
SEASON = 0.3  # of the newest period in the season
DAMPING = 0.95  # of the trend is left after each bin; all of it makes 19 bins' worth


def holt_winters(series: ForecastInput, origins: Index, bins: int) -> Array:
    """Return the levels foretold, as a `member.Member`. It knows nothing before the first period is over."""
    period = series.period
    levels, trends, season = _smoothed(series.levels, period)
    trend = np.cumsum(DAMPING ** np.arange(1, bins + 1))
    found: Array = levels[origins][:, None] + trends[origins][:, None] * trend[None, :]
    if period:
        found += season[np.maximum(season_bins(period, origins, bins), 0)]
        found[origins < period - 1] = np.nan
    return found


def _smoothed(values: Array, period: int) -> tuple[Array, Array, Array]:
    """Return the level and the trend after each bin, and the season in each bin, as known after it."""
    level = float(values[:period].mean()) if period else float(values[0])
    trend, first = 0.0, max(period, 1)
    levels, trends = [level] * first, [0.0] * first
    season = (values[:first] - level).tolist()
    for bin_, value in enumerate(values[first:].tolist(), first):
        phase = season[bin_ - period] if period else 0.0
        trend *= DAMPING
        error = value - phase - level - trend
        level += trend + LEVEL * error
        trend += LEVEL * TREND * error
        season.append(phase + SEASON * error)
        levels.append(level)
        trends.append(trend)
    return np.array(levels), np.array(trends), np.array(season)
