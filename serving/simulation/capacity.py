"""The highest rate at which a site keeps its promises, by bisection, with what is certain of it.

At each rate the attainment is measured over seeds, as many as it takes to tell on which side of the aim it
lies (95 %, Student's t over the seeds), at most SEEDS_MAX; what is then still undecided goes by the mean.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from statistics import mean, stdev

SEEDS_MIN, SEEDS_MAX = 3, 12
GRAIN = 0.01  # of the rate: how closely it is searched
_T95 = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20)
"""Two-sided 95 % quantiles of Student's t for 1, 2, ... degrees of freedom."""

Attainment = Callable[[float, int], float]
"""(rate, seed) -> the share of requests answered in time"""


@dataclass(frozen=True, slots=True)
class SiteCapacity:
    """`rate`: the highest found; below `low` the aim is surely met, above `high` surely missed."""

    rate: float
    low: float
    high: float


def search(attainment: Attainment, aim: float, high: float) -> SiteCapacity:
    """Return the capacity at an attainment of `aim`, at most `high`, in requests a second."""
    low, sure_low, sure_high = 0.0, 0.0, high
    while high - low > GRAIN * high:
        rate = (low + high) / 2
        margin, certain = _margin(attainment, aim, rate)
        if margin >= 0:
            low = rate
            sure_low = rate if certain else sure_low
        else:
            high = rate
            sure_high = rate if certain else sure_high
    return SiteCapacity(low, sure_low, sure_high)


def _margin(attainment: Attainment, aim: float, rate: float) -> tuple[float, bool]:
    """Return by how much the mean attainment passes the aim, and whether that is certain."""
    shares: list[float] = []
    for seed in range(SEEDS_MAX):
        shares.append(attainment(rate, seed))
        count = len(shares)
        if count >= SEEDS_MIN:
            margin = mean(shares) - aim
            if abs(margin) > _T95[count - 2] * stdev(shares) / sqrt(count):
                return margin, True
    return mean(shares) - aim, False
