"""Evidence that two rates differ, valid however often it is looked at.

An e-process is a number that is 1 at first, and whose mean never exceeds 1 while a claim holds. By Ville's
inequality it then ever reaches 1/alpha with a probability of at most alpha. So one may look each second, and
stop at once (Ramdas et al., "Game-theoretic statistics and safe anytime-valid inference", Statistical Science
2023).

The one here is of Turner, Ly and Gruenwald, "Generic e-variables for exact sequential k-sample tests" (2024;
arXiv:2106.02693): each block of trials multiplies it by the likelihood ratio of what was estimated before the
block, and of the pair of rates nearest to that which the claim allows. The claims here are convex, so this is
an e-process whatever the true rates are (their theorem 2).
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import log
from typing import Final

PRIOR: Final = 0.5
"""Trials of both outcomes that an estimate begins with (Krichevsky and Trofimov, 1981)."""
EDGE: Final = 1e-9
"""Rates stay so far from 0 and 1."""
SECTIONS: Final = 40
"""Golden sections: the last is 4e-9 of the first."""
_GOLDEN: Final = 0.6180339887498949


@dataclass(frozen=True, slots=True)
class Trials:
    """`good` of `count` trials had the better outcome."""

    good: int = 0
    count: int = 0

    @property
    def rate(self) -> float:
        """The share of good ones; 1 without any trial."""
        return self.good / self.count if self.count else 1.0

    @property
    def estimate(self) -> float:
        """The rate as it is expected to be."""
        return (self.good + PRIOR) / (self.count + 2 * PRIOR)

    def __add__(self, other: "Trials") -> "Trials":
        return Trials(self.good + other.good, self.count + other.count)

    def __sub__(self, other: "Trials") -> "Trials":
        return Trials(self.good - other.good, self.count - other.count)


NONE: Final = Trials()


class Evidence:
    """Of a baseline and a candidate at the same time. `worse`: the log of the evidence against "the rate of
    the candidate is at least the baseline's less `margin`". `fine`: against "it is at most that".
    `known`: the baseline's rate, where no trials tell it."""

    def __init__(self, margin: float, known: float | None = None) -> None:
        self.margin = margin
        self.known = known
        self.baseline = self.candidate = Trials()
        self.worse = self.fine = 0.0

    def add(self, baseline: Trials, candidate: Trials) -> None:
        """Add a block: what has come since the last."""
        old = self.baseline.estimate if self.known is None else self.known
        new = self.candidate.estimate
        self.baseline += baseline
        self.candidate += candidate
        if not candidate.count:
            return
        limit = old - self.margin
        gain = 0.0
        if self.known is not None:
            gain = _log_ratio(candidate, new, limit)
        elif new != limit:
            gain = _gain((baseline, candidate), (old, new), self.margin)
        if new < limit:
            self.worse += gain
        else:
            self.fine += gain


def _gain(block: tuple[Trials, Trials], rates: tuple[float, float], margin: float) -> float:
    """Return the log of the block's likelihood at these rates, over that at the nearest pair that differs by
    the margin. Near: by the Kullback-Leibler divergence, weighted with the block's trials."""
    baseline, candidate = block
    old, new = rates

    def divergence(rate: float) -> float:
        return baseline.count * _kl(old, rate) + candidate.count * _kl(new, rate - margin)

    nearest = lowest(divergence, max(margin, 0.0) + EDGE, min(1 + margin, 1.0) - EDGE)
    return _log_ratio(baseline, old, nearest) + _log_ratio(candidate, new, nearest - margin)


def lowest(value: Callable[[float], float], low: float, high: float) -> float:
    """Return where a convex function is lowest, by golden sections."""
    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_left, at_right = value(left), value(right)
    for _ in range(SECTIONS):
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - _GOLDEN * (high - low)
            at_left = value(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + _GOLDEN * (high - low)
            at_right = value(right)
    return (low + high) / 2


def _kl(true: float, other: float) -> float:
    """Return the divergence of two Bernoulli distributions."""
    other = min(max(other, EDGE), 1 - EDGE)
    return true * log(true / other) + (1 - true) * log((1 - true) / (1 - other))


def _log_ratio(trials: Trials, rate: float, other: float) -> float:
    """Return the log of the likelihood of these trials at `rate` over that at `other`."""
    other = min(max(other, EDGE), 1 - EDGE)
    bad = trials.count - trials.good
    return trials.good * log(rate / other) + bad * log((1 - rate) / (1 - other))
