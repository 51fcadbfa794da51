"""How deviations from a slow average go on: an autoregression of them.

Fitted by the equations of Yule (1927) and Walker (1931), with a ridge: unlike plain least squares these never
make a forecast that grows without bound, whatever the history.
"""

import numpy as np

from serving.policy.forecasting.ewma import SLOW, averages
from serving.policy.forecasting.member import ForecastInput
from serving.policy.forecasting.quantiles import Array, Index

ORDER = 6
RIDGE = 0.05  # of the variance: two or three bins alike are no law
BLOCKS = 4  # in each of them the coefficients are those of what came before it


def autoregression(series: ForecastInput, origins: Index, bins: int) -> Array:
    """Return the levels foretold, as a `member.Member`. At an origin it knows coefficients from before its
    block of the history."""
    means = averages(series.levels, SLOW)
    deviations = series.levels - means
    number = len(deviations)
    padded = np.concatenate((np.zeros(ORDER), deviations))
    ahead = np.empty((len(origins), bins))
    block = np.minimum(origins * BLOCKS // number, BLOCKS)
    block[origins == number - 1] = BLOCKS
    for each in range(BLOCKS + 1):
        rows = np.flatnonzero(block == each)
        if rows.size:
            recent = padded[origins[rows][:, None] + np.arange(1, ORDER + 1)[None, :]]
            ahead[rows] = _continued(recent, _coefficients(deviations[: number * each // BLOCKS]), bins)
    return means[origins][:, None] + ahead


def _coefficients(deviations: Array) -> Array:
    """Return the coefficients of the last `ORDER` deviations, the oldest first; zeros if there are too few,
    or all are zero."""
    number = len(deviations)
    largest = np.abs(deviations).max(initial=0.0)
    if number <= 2 * ORDER or largest <= 0.0:
        return np.zeros(ORDER)
    unit = deviations / largest
    products = np.array([unit[: number - lag] @ unit[lag:] for lag in range(ORDER + 1)])
    lags = np.arange(ORDER)
    matrix = products[np.abs(lags[:, None] - lags[None, :])] + RIDGE * products[0] * np.eye(ORDER)
    found: Array = np.linalg.solve(matrix, products[1:])
    return found[::-1]


def _continued(recent: Array, coefficients: Array, bins: int) -> Array:
    """Return each row of the latest deviations, continued."""
    values = np.concatenate((recent, np.empty((len(recent), bins))), axis=1)
    for bin_ in range(ORDER, ORDER + bins):
        values[:, bin_] = values[:, bin_ - ORDER : bin_] @ coefficients
    return values[:, ORDER:]
