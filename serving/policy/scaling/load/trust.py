"""How far a capacity table can be trusted, learnt from rows that were missed where it says that they fit."""

from math import exp, sqrt
from typing import NamedTuple

LIFE_S = 600.0  # of the evidence: within it twice of what is allowed shows; half of all in some seconds
FORGET_S = 3600.0  # of the verdict: a stale profile stays stale, interference goes
SURE = 3.0  # standard deviations
LENGTH_S = 8.0  # of the evidence, at least: two crowds that are missed in one second are one
LEAST = 0.01


class Claimed(NamedTuple):
    """What a table claims: `rate` rows a second, with a share of `allowed` that may be missed."""

    rate: float
    allowed: float


class Trust:
    """`factor`: of what a table says, what is believed; 1 until misses say otherwise, and never more: that
    nothing is missed says nothing of what more could be carried."""

    def __init__(self) -> None:
        self.factor = 1.0
        self._offered = self._missed = self._seconds = 0.0

    def doubt(self) -> None:
        """Begin the evidence anew, as what answers has changed. The verdict stays."""
        self._offered = self._missed = self._seconds = 0.0

    def forget(self, period_s: float) -> None:
        """Let the verdict fade for `period_s` that have passed."""
        self.factor = 1 - (1 - self.factor) * exp(-period_s / FORGET_S)

    def look(self, offered: int, missed: int, period_s: float, claimed: Claimed, crowd: float) -> None:
        """Note the rows offered and missed in `period_s`, in which usually no more came than the table
        claimed. `crowd`: rows that are missed together, if any are: they are one piece of evidence."""
        left = exp(-period_s / LIFE_S)
        self._offered = self._offered * left + offered
        self._missed = self._missed * left + missed
        self._seconds = self._seconds * left + period_s
        if self._seconds < LENGTH_S:
            return
        allowed = claimed.allowed * self._offered
        if self._missed > allowed + SURE * sqrt(allowed * max(crowd, 1.0)) + crowd:
            carried = max(self._offered - self._missed, 0.0) / self._seconds
            self.factor = max(min(self.factor, carried / claimed.rate), LEAST)
            self.doubt()
