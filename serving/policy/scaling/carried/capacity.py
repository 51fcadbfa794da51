"""How many rows a second n replicas answer in time, as a table that a simulation has filled."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf


@dataclass(frozen=True, slots=True)
class Capacity:
    """Of one variant on one kind of slice, at its model's SLO and percentile.

    `rates[i][j]`: rows a second of `counts[j]` replicas off one queue where the gaps between requests have a
    coefficient of variation of `cvs[i]` (both ascending). Several carry more than as many times one: they
    pool (Erlang; `loadtests` measures it). `guessed`: no simulation has been made yet.
    """

    counts: tuple[int, ...]
    cvs: tuple[float, ...]
    rates: tuple[tuple[float, ...], ...]
    guessed: bool = False

    def rate(self, count: float, cv: float = 1.0) -> float:
        """Return the rows a second of `count` replicas. They lie on the line between measured counts, and
        beyond the largest in proportion. They lie on the line between two CVs; outside of these the nearest
        CV counts."""
        if count <= 0:
            return 0.0
        at = [_between(self.counts, rates, count) for rates in self.rates]
        if cv <= self.cvs[0] or len(at) == 1:
            return at[0]
        for (low, here), (high, there) in pairwise(zip(self.cvs, at, strict=True)):
            if cv <= high:
                return here + (there - here) * (cv - low) / (high - low)
        return at[-1]

    def needed(self, rate: float, cv: float = 1.0, most: int = 1 << 20) -> int:
        """Return the fewest replicas that carry `rate` rows a second; `most` if no fewer do."""
        if rate <= 0:
            return 0
        low, high = 0, 1
        while high < most and self.rate(high, cv) < rate:
            low, high = high, high * 2
        high = min(high, most)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.rate(middle, cv) >= rate else (middle, high)
        return high

    def filled(self, rate: float, cv: float = 1.0) -> float:
        """Return how many replicas `rate` rows a second fill, in parts of one too; inf if any number carries
        nothing."""
        if rate <= 0:
            return 0.0
        if self.rate(self.counts[-1], cv) <= 0:
            return inf
        count = self.needed(rate, cv)
        low, high = self.rate(count - 1, cv), self.rate(count, cv)
        return count - 1 + (rate - low) / (high - low)


def _between(counts: Sequence[int], rates: Sequence[float], count: float) -> float:
    place = bisect_left(counts, count)
    if place == 0:
        return rates[0] * count / counts[0]
    if place == len(counts):
        return rates[-1] * count / counts[-1]
    share = (count - counts[place - 1]) / (counts[place] - counts[place - 1])
    return rates[place - 1] + (rates[place] - rates[place - 1]) * share
