"""How well runs tell a quantile: its confidence interval from order statistics, whatever the distribution."""

from collections.abc import Sequence
from math import ceil, floor, inf, sqrt

NORMAL_95 = 1.96  # standard normal quantile of a two-sided 95 % interval


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return the value that `share` of the ascending values do not exceed, at least (nearest rank); never
    empty."""
    return ordered[min(max(ceil(share * len(ordered)) - 1, 0), len(ordered) - 1)]


def half_width(ordered: Sequence[float], share: float) -> float:
    """Return half the 95 % confidence interval of a quantile, relative to it; infinite if the values are too
    few.

    Ranks n q -+ 1.96 sqrt(n q (1 - q)): Conover, Practical Nonparametric Statistics, 3.2. They lie among the
    values from 8 values on for the median, and from 381 on for the 99th percentile.
    """
    count = len(ordered)
    middle, reach = count * share, NORMAL_95 * sqrt(count * share * (1 - share))
    low, high = floor(middle - reach), ceil(middle + reach)
    if low < 1 or high > count:
        return inf
    return (ordered[high - 1] - ordered[low - 1]) / 2 / max(quantile(ordered, share), 1e-9)
