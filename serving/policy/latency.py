"""The online batch-latency estimate: a profile's prior, corrected by what batches really took.

Ratios of observed to prior latency are kept in a window shared by all batch sizes, so sizes that are
seldom run stay fresh too (the residual model of Clockwork and of iGniter, with quantiles for a mean). The
plan uses kappa * prior + overhead: kappa is a quantile of the last 200 ratios, or of the last ten where
that is more, so that a slow-down counts within ten batches and one outlier does not.
"""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable

WINDOW = 200
RECENT = 10
QUANTILE = 0.95  # of the window; .9 to .97 suits a 99 % objective
RECENT_QUANTILE = 0.9
START = 1.15  # Nexus multiplies profiles by this; used until there are ENOUGH samples
ENOUGH = 20
TRY_US = 1_000_000
"""Without a batch for so long, an estimate is in doubt: a batch is tried though it is predicted late. A model
whose batches were slow for a while would otherwise never show that they no longer are."""
FAR_QUICKER = 2  # than the estimate: such a batch leaves it in doubt until enough others have corrected it
RATIO_MAX = 3.0  # one stall must not blind the window for 200 batches
OVERHEAD_QUANTILE = 0.99
OVERHEAD_US_MAX = (
    5000.0  # of transport or of a wake-up: what takes longer is a stall, which none can plan for
)


class Quantile:
    """A quantile over the last `size` values."""

    __slots__ = ("_ordered", "_share", "_values")

    def __init__(self, size: int, share: float) -> None:
        self._values: deque[float] = deque(maxlen=size)
        self._ordered: list[float] = []
        self._share = share

    def __len__(self) -> int:
        return len(self._values)

    def add(self, value: float) -> None:
        """Enter a value; the oldest leaves a full window."""
        if len(self._values) == self._values.maxlen:
            del self._ordered[bisect_left(self._ordered, self._values[0])]
        self._values.append(value)
        insort(self._ordered, value)

    @property
    def value(self) -> float:
        """The value that about `share` of the window does not exceed, never the one largest of several; 0
        where it is empty."""
        count = len(self._ordered)
        return self._ordered[int(self._share * (count - 1))] if count else 0.0


class Lateness:
    """How late something is, wake-ups or answers: `value_us` is None until there are ENOUGH."""

    __slots__ = ("_window", "value_us")

    def __init__(self) -> None:
        self._window = Quantile(WINDOW, OVERHEAD_QUANTILE)
        self.value_us: float | None = None

    def add(self, late_us: int) -> None:
        """It came `late_us` after its instant."""
        self._window.add(min(late_us, OVERHEAD_US_MAX))
        if len(self._window) >= ENOUGH:
            self.value_us = self._window.value


class Residuals:
    """What a replica's batches took, against its profile."""

    __slots__ = ("_median", "_overhead", "_recent", "_window", "kappa", "overhead_us", "typical")

    def __init__(self) -> None:
        self._window = Quantile(WINDOW, QUANTILE)
        self._recent = Quantile(RECENT, RECENT_QUANTILE)
        self._median = Quantile(WINDOW, 0.5)
        self._overhead = Quantile(WINDOW, OVERHEAD_QUANTILE)
        self.kappa = START  # for promises: what a batch takes at most, nearly always
        self.typical = 1.0  # for capacity: what one takes as a rule
        self.overhead_us = 0.0

    def add(self, prior_us: float, compute_us: int, elapsed_us: int | None) -> None:
        """A batch of prior latency `prior_us` computed for `compute_us` and was back after `elapsed_us`; None
        for one that was sent ahead, which cost no time on the way."""
        ratio = compute_us / max(prior_us, 1.0)
        self._enter(ratio)
        if elapsed_us is not None:
            self._overhead.add(min(max(elapsed_us - compute_us, 0), OVERHEAD_US_MAX))
            self.overhead_us = self._overhead.value

    def restart(self, ratios: Iterable[float]) -> None:
        """The prior has changed: these are the latest ratios to the new one, the oldest first."""
        self._window = Quantile(WINDOW, QUANTILE)
        self._recent = Quantile(RECENT, RECENT_QUANTILE)
        self._median = Quantile(WINDOW, 0.5)
        for ratio in ratios:
            self._enter(ratio)

    def _enter(self, ratio: float) -> None:
        self._window.add(min(ratio, RATIO_MAX))
        self._recent.add(ratio)
        self._median.add(ratio)
        if len(self._window) >= ENOUGH:
            self.kappa = max(self._window.value, self._recent.value)
            self.typical = min(self._median.value, self.kappa)  # what is planned with is never less


class Doubt:
    """Whether batches of a model have lately borne the estimate out."""

    __slots__ = ("_heard_us",)

    def __init__(self) -> None:
        self._heard_us = 0

    def heard(self, compute_us: int, typical_us: float, now_us: int) -> None:
        """A batch is back: a sign of life, unless it shows that the estimate is far too high."""
        if FAR_QUICKER * compute_us > typical_us:
            self._heard_us = now_us

    def at(self, now_us: int) -> bool:
        """Whether the latest sign is so old that something should be tried."""
        return now_us - self._heard_us >= TRY_US
