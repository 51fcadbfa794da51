"""Whether a model's whole panel of members is more than the slices can answer in time."""

from collections.abc import Sequence
from math import exp, inf

LOOK_US = 50_000
LIFE_US = 2e6  # of an arrival in the rate: of 100 a second that is 7 % of noise
FULL = 0.9  # of the slices' time, above which arrivals that come by chance wait too long
RELEASE = 0.85  # of the load that was too much, below which the whole panel is asked again: not back at once
CROWDED = 0.02  # of the votes of late, turned away for load, from which it is too much
REGAIN_US = (
    20e6  # others may have left the slices: the load that was too much counts a twentieth more a second
)
_COST_WEIGHT = 0.05  # of one answer in what a row costs: some twenty count
_CROWD_WEIGHT = 0.02


class Pressure:
    """`costs`: what a row takes of a slice's time, by member; an answer that was kept took none. An unknown
    member counts as 0: under pressure it is tried, and known from then on. `overloaded`: whether the panel is
    too much."""

    __slots__ = ("_ceiling", "_crowd", "_looked_us", "_rate", "_rated_us", "costs", "overloaded")

    def __init__(self, members: int) -> None:
        self.costs = [0.0] * members
        self.overloaded = False
        self._rate = 0.0  # rows a microsecond
        self._rated_us = 0
        self._crowd = 0.0
        self._ceiling = inf  # a load at which votes were turned away: the slices have other models too
        self._looked_us = 0

    def arrived(self, rows: int, now_us: int) -> bool:
        """Count rows that have come to be answered; return whether it is time to `look`."""
        self._rate = self._rate * exp((self._rated_us - now_us) / LIFE_US) + rows / LIFE_US
        self._rated_us = now_us
        return now_us - self._looked_us >= LOOK_US

    def ran(self, member: int, row_us: float) -> None:
        """Note how much of a slice's time a row of a member's answer took."""
        known = self.costs[member]
        self.costs[member] = known + _COST_WEIGHT * (row_us - known) if known else row_us

    def voted(self, crowded: bool) -> None:
        """Note that a member has answered, or (`crowded`) was turned away for load."""
        self._crowd += _CROWD_WEIGHT * (crowded - self._crowd)

    def look(self, slices: float, subset: Sequence[int], now_us: int) -> None:
        """Decide whether the panel is too much. `slices`: how many the model has, inf if that is unknown;
        `subset`: the members that are asked if nothing presses."""
        load = self._rate * sum([self.costs[member] for member in subset])
        full = FULL * slices
        crowded = self._crowd > CROWDED
        if crowded:
            self._ceiling = load
        elif self.overloaded:
            self._ceiling *= exp((now_us - self._looked_us) / REGAIN_US)
        else:
            self._ceiling = inf
        least = RELEASE * min(full, self._ceiling) if self.overloaded else full
        self.overloaded = crowded or load > least
        self._looked_us = now_us
