"""Sliding windows over two growing totals, offered and good requests, without a time stamp per request.

The totals are remembered at the start of every interval; a window is what was added since the oldest one
kept. Burn rates over several windows at once: Google, The Site Reliability Workbook, chapter 5, "Multiwindow,
Multi-Burn-Rate Alerts", whose four windows these are but for its longest (3 days).
"""

from array import array
from typing import Final

BUDGET_MIN: Final = 1e-6
"""The error budget, 1 - objective, of who promises all requests: a rate over it stays a number."""

INTERVALS: Final = 30
"""Of a window: it is between 30 and 31 intervals long."""

WINDOWS_S: Final = {"5m": 300, "30m": 1800, "1h": 3600, "6h": 21600}
"""Each interval is a whole number of those of the window before: who turns the finest turns all."""

_GRAINS_US: Final = tuple(seconds * 1_000_000 // INTERVALS for seconds in WINDOWS_S.values())
_SLOTS: Final = INTERVALS + 1


class Windows:
    """The past of one pair of totals. Call `turn` before adding to them at or after `turn_us`."""

    __slots__ = ("_last", "_rings", "turn_us")

    def __init__(self) -> None:
        self.turn_us = 0
        self._last = [-1] * len(_GRAINS_US)  # intervals, counted from the clock's zero
        self._rings = [array("q", bytes(16 * _SLOTS)) for _ in _GRAINS_US]  # (offered, good) by interval

    def turn(self, offered: int, good: int, now_us: int) -> None:
        """Remember the totals as those at the start of all intervals that have begun since."""
        self.turn_us = (now_us // _GRAINS_US[0] + 1) * _GRAINS_US[0]
        for place, (grain_us, ring) in enumerate(zip(_GRAINS_US, self._rings, strict=True)):
            interval = now_us // grain_us
            for begun in range(max(self._last[place] + 1, interval - INTERVALS), interval + 1):
                slot = begun % _SLOTS * 2
                ring[slot], ring[slot + 1] = offered, good
            self._last[place] = max(self._last[place], interval)

    def counts(self, offered: int, good: int, now_us: int) -> list[tuple[int, int]]:
        """Return (offered, good) within each of WINDOWS_S before now."""
        if now_us >= self.turn_us:
            self.turn(offered, good, now_us)
        found = []
        for last, ring in zip(self._last, self._rings, strict=True):
            slot = (last - INTERVALS) % _SLOTS * 2
            found.append((offered - ring[slot], good - ring[slot + 1]))
        return found


def burn_rate(offered: int, good: int, objective: float) -> float:
    """Return how fast the error budget is used up: at 1 it lasts exactly as long as the objective is meant
    for. `objective`: the share of requests (0..1) that is promised to be in time."""
    return (offered - good) / offered / max(1 - objective, BUDGET_MIN)
