"""How fast rows arrive: exponentially decayed counters, a steady one, a quick one, one that sees crowds.

And of which size the batches are that they make.
"""

from math import exp, sqrt

from serving.values.specs import stepped

QUICK_US = 0.5e6 / 0.6931  # half-lives of 0.5 s and 5 s (the mean life is the half-life over ln 2)
STEADY_US = 5e6 / 0.6931
SUDDEN_US = 0.025e6 / 0.6931  # a half-life of 25 ms
SURE = 1.0  # standard deviations that the sudden rate, which is noisy, is read lower
SURGE = 1.2  # times the others' rate, from which it counts
"""Measured with six seeds on row A of docs/scheduling.md (tests/simulation/test_crowds.py): of load that
jumps between 1 and 700/s every 0.2 s 77.4 % are answered in time (71.7 without the sudden rate), between 100
and 600/s every 0.5 s 87.8 (84.2), and steady load loses nothing; a SURGE of 1.0 would cost eight slices 1.5 %
of their capacity, by its noise."""

YOUNG_US = 200_000  # a counter is read as if it were at least so old: two arrivals tell no rate
QUIET = 0.05e-6  # rows a microsecond: one in 20 s is no load to make room for
SIZE_WEIGHT = 0.05  # of one batch in what is usual: some twenty count, 10 % of noise becomes 2 %
GRAIN_US = 1000  # what arrives within it is entered at once: an exponential costs more than all the rest


class Rate:
    """Rows a microsecond; `peak` of two, so that a burst counts at once and a lull is not forgotten."""

    __slots__ = (
        "_entered_us", "_quick", "_rows", "_since_us", "_squares", "_steady", "_sudden", "_variance",
        "last_us",
    )  # fmt: skip

    def __init__(self) -> None:
        self._quick = self._steady = 0.0
        self._sudden = self._variance = 0.0
        self._rows = self._squares = 0  # arrived since _entered_us, not yet entered
        self._entered_us = self._since_us = -1
        self.last_us = -1  # the last arrival

    def add(self, rows: int, now_us: int) -> None:
        """Count `rows` that arrived together."""
        self._rows += rows
        self._squares += rows * rows
        self.last_us = now_us
        if now_us - self._entered_us >= GRAIN_US or self._entered_us < 0:
            self._enter(now_us)

    def peak(self, now_us: int) -> float:
        """Return the present rate. A counter that is younger than its life is corrected for what it has not
        seen."""
        if self._entered_us < 0:
            return 0.0
        gone_us, age_us = now_us - self._entered_us, max(now_us - self._since_us, YOUNG_US)
        steady = (self._steady * exp(-gone_us / STEADY_US) + self._rows / STEADY_US) / (
            1 - exp(-age_us / STEADY_US)
        )
        return max(self.recent(now_us), steady)

    def recent(self, now_us: int) -> float:
        """Return the rate of the last half second, for callers that follow a lull at once."""
        if self._entered_us < 0:
            return 0.0
        gone_us, age_us = now_us - self._entered_us, max(now_us - self._since_us, YOUNG_US)
        quick = self._quick * exp(-gone_us / QUICK_US) + self._rows / QUICK_US
        return quick / (1 - exp(-age_us / QUICK_US))

    def surge(self, now_us: int) -> float:
        """Return `peak`, or what has surely come of late if that is clearly more. Batches can be sized by it:
        if the surge is over as soon, nothing is lost. Requests must not be turned away by it: they would be
        lost."""
        if self._entered_us < 0:
            return 0.0
        left = exp((self._entered_us - now_us) / SUDDEN_US)
        sudden = self._sudden * left + self._rows / SUDDEN_US
        variance = self._variance * left * left + self._squares / SUDDEN_US**2
        surely, peak = sudden - SURE * sqrt(variance), self.peak(now_us)
        return surely if surely > SURGE * peak else peak

    def _enter(self, now_us: int) -> None:
        if self._entered_us < 0:
            self._since_us = now_us
        else:
            gone_us = now_us - self._entered_us
            self._quick *= exp(-gone_us / QUICK_US)
            self._steady *= exp(-gone_us / STEADY_US)
            left = exp(-gone_us / SUDDEN_US)
            self._sudden *= left
            self._variance *= left * left
        self._quick += self._rows / QUICK_US
        self._steady += self._rows / STEADY_US
        self._sudden += self._rows / SUDDEN_US
        self._variance += self._squares / SUDDEN_US**2
        self._rows = self._squares = 0
        self._entered_us = now_us


class SizeRates:
    """The rates of one model, by size bucket, and the mean size of late of the batches of each: what a
    bucket's rows cost follows from that, not from the bucket's bound."""

    __slots__ = ("_means", "by_size")

    def __init__(self) -> None:
        self.by_size: dict[int, Rate] = {}
        self._means: dict[int, float] = {}

    def count(self, bucket: int, rows: int, now_us: int) -> None:
        """Count `rows` of that bucket that arrived."""
        rate = self.by_size.get(bucket)
        if rate is None:
            rate = self.by_size[bucket] = Rate()
        rate.add(rows, now_us)

    def surge(self, bucket: int, now_us: int) -> float:
        """Return the present rate of that bucket, 0 where none has come."""
        rate = self.by_size.get(bucket)
        return rate.surge(now_us) if rate is not None else 0.0

    def ran(self, bucket: int, size: int) -> None:
        """Note that a batch of that bucket is back, with a largest row of that size."""
        if bucket:
            mean = self._means.get(bucket, float(size))
            self._means[bucket] = mean + SIZE_WEIGHT * (size - mean)

    def usual(self, bucket: int) -> int:
        """Return the usual size of that bucket's batches; the bucket itself until a batch is back."""
        mean = self._means.get(bucket)
        return bucket if mean is None else min(stepped(round(mean)), bucket)
