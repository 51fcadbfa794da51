"""What came one period ago comes again; without a period, what came last.

The benchmark that a forecast has to beat: Hyndman and Athanasopoulos, Forecasting: Principles and Practice,
3rd edition (2021), section 5.2.
"""

import numpy as np

from serving.policy.forecasting.member import ForecastInput, season_bins
from serving.policy.forecasting.quantiles import Array, Index


def seasonal_naive(series: ForecastInput, origins: Index, bins: int) -> Array:
    """Return the levels foretold, as a `member.Member`. It knows nothing before the first period is over."""
    levels, period = series.levels, series.period
    if not period:
        return np.repeat(levels[origins][:, None], bins, axis=1)
    found: Array = levels[np.maximum(season_bins(period, origins, bins), 0)]
    found[origins < period - 1] = np.nan
    return found
