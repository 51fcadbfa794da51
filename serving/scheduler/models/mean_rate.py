"""How many requests a second a model will be asked, for decisions of seconds and minutes."""

from math import exp

STEADY_US = 60e6 / 0.6931  # a half-life of a minute: what is loaded stays so for minutes
YOUNG_US = 10_000_000  # it is read as if it were at least so old: one arrival tells no rate


class MeanRate:
    """A steady mean rate, read off a counter: so an arrival costs one addition. What came between two
    readings is taken as spread evenly over the time between them."""

    __slots__ = ("_read_us", "_seen", "_since_us", "_weight", "arrivals")

    def __init__(self) -> None:
        self.arrivals = 0
        self._seen = 0
        self._weight = 0.0  # arrivals, decayed
        self._since_us = self._read_us = -1

    def begin(self, now_us: int) -> None:
        """Note that requests may come from now on; nothing changes if they could before."""
        if self._since_us < 0:
            self._since_us = self._read_us = now_us

    def rate(self, now_us: int) -> float:
        """Return the requests a second, corrected for what the rate is too young to have seen."""
        self.begin(now_us)
        gone_us, count = now_us - self._read_us, self.arrivals - self._seen
        left = exp(-gone_us / STEADY_US)
        spread = (1 - left) * STEADY_US / gone_us if gone_us else 1.0
        self._weight = self._weight * left + count * spread
        self._read_us, self._seen = now_us, self.arrivals
        age_us = max(now_us - self._since_us, YOUNG_US)
        return self._weight / STEADY_US * 1e6 / (1 - exp(-age_us / STEADY_US))
