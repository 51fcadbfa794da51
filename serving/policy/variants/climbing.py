"""How high a load may climb the ladder of its variants: what accuracy the slices have time for.

Accuracy is what gives where the devices are fixed (Proteus, ASPLOS 2024; Loki, HPDC 2024). All loads that
share slices start at their quickest variants; what time is left goes, step by step, where it buys the most
accuracy. Steps follow the upper concave envelope of accuracy over time, on which this greedy choice is the
optimum of the linear program (Dantzig 1957), its last step a partial one.
"""

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from math import inf
from typing import Final

LOAD_SHARE = 0.8
"""Of the slices' time that is planned with; the rest is for the rung above, and for bursts. In simulation .9
makes queues longer and answers no more accurate."""
RISE_US = 1_000_000
"""More may be spent once there has been more to spend for so long: rates of a second ago still count half."""


class Climber:
    """A load: `rate` rows a microsecond, with the (row_us, merit) of the rungs that it may use, the most
    merit and time first; at least one."""

    __slots__ = ("rate", "rungs")

    def __init__(self, rate: float, rungs: Sequence[tuple[float, float]]) -> None:
        self.rate: Final = rate
        self.rungs: Final = rungs


def climb(climbers: Sequence[Climber], room: float) -> list[float]:
    """Return how much of a slice's time a row of each climber may take, in `room` slices. It is inf if
    nothing holds the climber back, and 0 if the slices cannot even carry the quickest variants of all."""
    afford = [inf] * len(climbers)
    left = room
    steps: list[tuple[float, int, int, int]] = []  # (least merit for its time first), climber, from, to
    for number, climber in enumerate(climbers):
        bottom = len(climber.rungs) - 1
        left -= climber.rate * climber.rungs[bottom][0]
        step = _step(climber, number, bottom)
        if step is not None:
            steps.append(step)
    if left < 0:
        return [0.0] * len(climbers)
    heapify(steps)
    while steps:
        _, number, below, above = heappop(steps)
        climber = climbers[number]
        here_us = climber.rungs[below][0]
        need = climber.rate * (climber.rungs[above][0] - here_us)
        if need > left:
            afford[number] = here_us + left / climber.rate
            left = 0.0
            continue
        left -= need
        step = _step(climber, number, above)
        if step is not None:
            heappush(steps, step)
    return afford


def _step(climber: Climber, number: int, below: int) -> tuple[float, int, int, int] | None:
    """Return the step up from a rung that gains the most merit for its time; None at the top."""
    found: tuple[float, int, int, int] | None = None
    time_us, merit = climber.rungs[below]
    for above in range(below):
        gain = (climber.rungs[above][1] - merit) / (climber.rungs[above][0] - time_us)
        if found is None or -gain < found[0]:
            found = (-gain, number, below, above)
    return found


class Allowance:
    """What a row may take, with hysteresis: it falls at once and rises late."""

    __slots__ = ("_least_us", "_since_us", "afford_us")

    def __init__(self) -> None:
        self.afford_us = inf
        self._least_us = inf
        self._since_us = 0

    def update(self, afford_us: float, now_us: int) -> None:
        """Update with what the present load may spend: a fall counts at once, a rise after RISE_US."""
        if afford_us <= self.afford_us:
            self.afford_us = afford_us
            self._least_us, self._since_us = inf, now_us
            return
        self._least_us = min(self._least_us, afford_us)
        if now_us - self._since_us >= RISE_US:
            self.afford_us = self._least_us
            self._least_us, self._since_us = inf, now_us
