"""How fast rows arrive: two exponentially decayed counters, one quick, one steady."""

from math import exp

QUICK_US = 0.5e6 / 0.6931  # half-lives of 0.5 s and 5 s (the mean life is the half-life over ln 2)
STEADY_US = 5e6 / 0.6931


class Rate:
    """Rows a microsecond; `peak` of the two, so that a burst counts at once and a lull is not forgotten."""

    __slots__ = ("_last_us", "_quick", "_since_us", "_steady")

    def __init__(self) -> None:
        self._quick = self._steady = 0.0
        self._last_us = self._since_us = -1

    def add(self, rows: int, now_us: int) -> None:
        """`rows` arrived."""
        if self._last_us < 0:
            self._since_us = now_us
        else:
            gone_us = now_us - self._last_us
            self._quick *= exp(-gone_us / QUICK_US)
            self._steady *= exp(-gone_us / STEADY_US)
        self._quick += rows / QUICK_US
        self._steady += rows / STEADY_US
        self._last_us = now_us

    def peak(self, now_us: int) -> float:
        """The present rate. A counter that is younger than its life is corrected for what it has not seen."""
        if self._last_us < 0:
            return 0.0
        gone_us, age_us = now_us - self._last_us, max(now_us - self._since_us, 1)
        quick = self._quick * exp(-gone_us / QUICK_US) / (1 - exp(-age_us / QUICK_US))
        steady = self._steady * exp(-gone_us / STEADY_US) / (1 - exp(-age_us / STEADY_US))
        return max(quick, steady)
