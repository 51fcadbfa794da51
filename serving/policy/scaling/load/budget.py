"""How many replicas would have done, had they been there all the time: what a promise of 99 % leaves to miss.

A promise that one row of a hundred may be missed is a budget of misses (an error budget: Beyer et al., Site
Reliability Engineering, 2016, chapter 3). Bursts that last for seconds are gone before a replica that they
ask for is there, so what counts is how many replicas are there at all times. That is played out each second
for every number of replicas at once, as a fluid, with the rows that really came. The fewest that would have
stayed within a part of the budget, over an hour and over some minutes, are enough, as long as what comes is
of the kind that came, and what was really missed is no more than was played.
"""

from collections.abc import Sequence
from math import exp

LEVELS: tuple[int, ...] = (*range(1, 17), 20, 24, 32, 40, 48, 64)
"""Replicas that are played. Where not even the last are enough, this says nothing."""
LIVES_S = (3600.0, 300.0)
BURNS = (1.0, 5.0)
"""Of what was missed: within each life no more than so many times the part of the budget. A long one knows
rare bursts, a short one sees soon that they have grown (the multiwindow burn rates of Beyer et al., The Site
Reliability Workbook, 2018, chapter 5)."""
PART = 0.75
"""Of the budget that is spent on bursts beyond what is held. The rest is for what no number of replicas helps
against in time: a start, a jump, a death."""
HEADROOM = 0.9
"""Of what a table says that replicas carry: at all of it chance alone misses all that may be."""
PATIENCE = 0.65
"""Of the SLO, for what a second leaves over: the rest is for its batch, and for chance within the second.
What is played so stays above what a count that is held all the time really misses."""
RUN_IN_S = 120.0
"""Since the first row: how unevenly they come is not known before; what is missed tells of starting."""
RARE_S = 300.0
"""So long a time shows half of what bursts there are: the less has been seen, the less is spent."""
NONE = 0.5  # of a row: fewer are none


class Budget:
    """A model's. All counts are of rows, and fade."""

    def __init__(self) -> None:
        self._waiting = [0.0] * len(LEVELS)
        self._late = [[0.0] * len(LEVELS) for _ in LIVES_S]
        self._offered = [0.0] * len(LIVES_S)
        self._missed = self._foreseen = 0.0  # since the run-in
        self._seen_s = 0.0

    def add(self, rows: int, missed: int, period_s: float) -> None:
        """Note that `rows` came in the last `period_s`, and that `missed` were missed. They are to be played
        next."""
        if rows == 0 and self._seen_s == 0:
            return
        self._seen_s += period_s
        for place, life_s in enumerate(LIVES_S):
            left = exp(-period_s / life_s)
            self._offered[place] = self._offered[place] * left + rows
            self._late[place] = [late * left for late in self._late[place]]
        if self._seen_s < RUN_IN_S:
            return
        left = exp(-period_s / LIVES_S[0])
        self._missed = self._missed * left + missed
        self._foreseen *= left

    def play(self, rows: int, rates: Sequence[float], period_s: float, patience_s: float, ready: int) -> None:
        """Count what each of LEVELS would have missed of these rows. The levels carry `rates` (ascending) a
        second and keep rows that wait no longer than `patience_s`; `ready` replicas were there."""
        foreseen = 0.0
        for place, rate in enumerate(rates):
            before = self._waiting[place]
            waiting = max(before + rows - rate * period_s, 0.0)
            late = max(waiting - rate * patience_s, 0.0)
            self._waiting[place] = waiting - late
            if LEVELS[place] <= ready:
                foreseen = late
            if late > 0:
                for window in self._late:
                    window[place] += late
            elif waiting == 0 and before == 0:
                break  # nor does anything wait before more of them
        self._foreseen += foreseen if self._seen_s >= RUN_IN_S else 0.0

    @property
    def missed(self) -> float:
        """The share of the last hour's rows that were missed."""
        return self._missed / self._offered[0] if self._offered[0] else 0.0

    def spent(self, allowed: float) -> float:
        """Return the missed share of the last hour's rows, divided by the share that is `allowed`."""
        return self.missed / allowed if allowed else 1.0

    def enough(self, allowed: float) -> int | None:
        """Return the fewest replicas that are enough; None if that is unknown. `allowed`: the share that may
        be missed."""
        unforeseen = self._missed - self._foreseen
        if self._seen_s < RUN_IN_S or unforeseen > max(allowed * self._offered[0], NONE):
            return None
        known = self._seen_s / (self._seen_s + RARE_S)
        part = allowed * min(PART * known, max(1 - self.spent(allowed), 0.0))
        for place, level in enumerate(LEVELS):
            if all(
                late[place] <= max(burn * part * offered, NONE)
                for late, burn, offered in zip(self._late, BURNS, self._offered, strict=True)
            ):
                return level
        return None
