"""What each member of the ensemble is asked, and of what it answers."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from serving.policy.forecasting.quantiles import Array, Index


@dataclass(frozen=True, slots=True)
class ForecastInput:
    """A history that is forecast. `levels`: the square roots of what came in each bin, the latest last; of
    Poisson counts the noise is then the same at every rate (Bartlett, 1936), and the largest stays the
    largest. `period` in bins, 0 for none."""

    levels: Array
    period: int


Member = Callable[[ForecastInput, Index, int], Array]
"""The levels that a member would have foretold: of a series, at each of the origins (the last bin it knows),
for so many bins after it, one row for each origin. NaN in the rows of origins
before the first period was over, where it needs one.

A member is linear: levels times c make forecasts times c.
"""


def season_bins(period: int, origins: Index, bins: int) -> Index:
    """Return, for each origin and each bin after it, the last bin of the same phase that was known at the
    origin."""
    ahead = np.arange(1, bins + 1)
    found: Index = origins[:, None] + (ahead - period * -(-ahead // period))[None, :]
    return found
