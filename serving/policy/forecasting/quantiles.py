"""Quantiles, what a forecast in quantiles costs, and the quantiles of weighted samples."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Index = npt.NDArray[np.intp]

LEVELS = (0.5, 0.95)
"""What is forecast: in the median that much, and what 95 of 100 horizons stay below."""


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Of the largest rate within a horizon, in rows a second: the median and the 95th percentile."""

    median: float
    high: float


def pinball(residuals: Array, level: float) -> Array:
    """Return what forecasts of the `level` quantile cost, where they missed by `residuals` (what came less
    what was forecast): least in the mean for the true quantile. Koenker and Bassett, Regression Quantiles
    (Econometrica, 1978); Gneiting, Quantiles as optimal point forecasts (International Journal of
    Forecasting, 2011)."""
    return np.maximum(level * residuals, (level - 1.0) * residuals)


def weighted_quantiles(samples: Array, order: Index, weights: Array, levels: Sequence[Array]) -> Array:
    """Return the smallest samples up to which the share of the weight is at least each of `levels`.

    Along the last axis of samples and weights, which are of one shape, with some weight in each row; `order`:
    argsort of the samples; a level for each row. The levels come first in what is returned.
    """
    below = np.cumsum(np.take_along_axis(weights, order, axis=-1), axis=-1)
    places = np.stack([(below < level[..., None] * below[..., -1:]).sum(axis=-1) for level in levels])
    chosen = np.take_along_axis(order[None], places[..., None], axis=-1)
    found: Array = np.take_along_axis(samples[None], chosen, axis=-1)[..., 0]
    return found
