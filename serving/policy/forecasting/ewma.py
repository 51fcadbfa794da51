"""Exponentially weighted moving averages: a level, and no opinion where it goes (Brown, 1956)."""

from functools import partial
from itertools import accumulate

import numpy as np

from serving.policy.forecasting.member import ForecastInput
from serving.policy.forecasting.quantiles import Array, Index

QUICK = 0.3  # of the newest bin: the last five or so count, and the noise is 8 % more than of a known mean
SLOW = 0.05  # the last forty count; the noise is 1 % more


def averages(levels: Array, weight: float) -> Array:
    """Return the exponentially weighted average after each bin. The weight that bins before the first would
    have is divided among the bins that exist (Kingma and Ba, Adam, 2015, section 3). So the first averages
    are nearly plain means."""
    sums = accumulate(levels.tolist(), lambda mean, level: mean + weight * (level - mean), initial=0.0)
    next(sums)
    return np.fromiter(sums, np.float64) / (1.0 - (1.0 - weight) ** np.arange(1, len(levels) + 1))


def _ewma(series: ForecastInput, origins: Index, bins: int, weight: float) -> Array:
    return np.repeat(averages(series.levels, weight)[origins][:, None], bins, axis=1)


quick_average = partial(_ewma, weight=QUICK)
slow_average = partial(_ewma, weight=SLOW)
