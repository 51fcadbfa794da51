"""The online batch-latency estimate: a profile's prior, corrected by what batches really took.

Ratios of observed to prior latency are kept in a window shared by all batch sizes, so sizes that are
seldom run stay fresh too (the residual model of Clockwork and of iGniter, with quantiles for a mean). The
plan uses kappa * prior + overhead: kappa is a quantile of the last 200 ratios, or of the last ten where
that is more, so that a slow-down counts within ten batches and one outlier does not. Slices of one device
slow each other down (gpulet, iGniter): batches beside others' and batches alone have windows of their own.
"""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

WINDOW = 200
RECENT = 10
QUANTILE = 0.95  # of the window; .9 to .97 suits a 99 % objective
RECENT_QUANTILE = 0.9
START = 1.15  # Nexus multiplies profiles by this; used until there are ENOUGH samples
ENOUGH = 20
SELDOM = 0.05  # of a window: 1 - QUANTILE
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

    __slots__ = ("_ordered", "_share", "_size", "_values")

    def __init__(self, size: int, share: float) -> None:
        self._values: deque[float] = deque()
        self._ordered: list[float] = []
        self._share = share
        self._size = size

    def __len__(self) -> int:
        return len(self._ordered)

    def __iter__(self) -> Iterator[float]:
        return iter(self._values)

    def add(self, value: float) -> None:
        """Enter a value; the oldest leaves a full window."""
        if len(self._ordered) == self._size:
            del self._ordered[bisect_left(self._ordered, self._values.popleft())]
        self._values.append(value)
        insort(self._ordered, value)

    @property
    def value(self) -> float:
        """The value that about `share` of the window does not exceed, never the one largest of several; 0
        where it is empty."""
        return self.at(self._share)

    def at(self, share: float) -> float:
        """The same for another share."""
        count = len(self._ordered)
        return self._ordered[int(share * (count - 1))] if count else 0.0


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


class Ratios:
    """The latest ratios of what batches took to what their prior said, the newest WINDOW of them."""

    __slots__ = ("_recent", "_window", "kappa", "typical")

    def __init__(self, ratios: Iterable[float] = ()) -> None:
        self._window = Quantile(WINDOW, QUANTILE)
        self._recent = Quantile(RECENT, RECENT_QUANTILE)
        self.kappa = START  # for promises: what a batch takes at most, nearly always
        self.typical = 1.0  # for capacity: what one takes as a rule
        for ratio in ratios:
            self.add(ratio)

    def __iter__(self) -> Iterator[float]:
        return iter(self._window)

    @property
    def enough(self) -> bool:
        """Whether there are so many that they count."""
        return len(self._window) >= ENOUGH

    def add(self, ratio: float) -> None:
        """A batch took `ratio` times its prior."""
        self._window.add(ratio)
        self._recent.add(ratio)
        if self.enough:
            self.kappa = max(min(self._window.value, RATIO_MAX), self._recent.value)
            self.typical = min(self._window.at(0.5), self.kappa)  # what is planned with is never less


ALONE: Final = 0
BESIDE: Final = 1
EITHER: Final = 2
"""Which batches an estimate is of: those that started while no other slice of the device was busy, those that
started while one was, or whichever take longer."""


class Residuals:
    """What a replica's batches took, against its profile.

    What is known of a batch when it is planned is whether another slice is busy as it starts: so ratios are
    kept apart by that, and those of ALONE hold what it costs that another often joins. Where one of the two
    has not ENOUGH, all together stand for it. EITHER is for what is promised before that is known; it leaves
    out what happens to fewer than SELDOM of the batches, which no 99 % objective can depend on.
    """

    __slots__ = ("_all", "_apart", "_beside", "_lately", "_often", "_overhead", "_stand", "overhead_us")

    def __init__(self) -> None:
        self._overhead = Quantile(WINDOW, OVERHEAD_QUANTILE)
        self.overhead_us = 0.0
        self._forget()

    def kappa_of(self, company: int) -> float:
        """The factor for promises, of batches in that company."""
        if company == EITHER and self._often == EITHER:
            return max(self._stand[ALONE].kappa, self._stand[BESIDE].kappa)
        return self._stand[self._often if company == EITHER else company].kappa

    def typical_of(self, company: int) -> float:
        """The factor for capacity, of batches in that company."""
        if company == EITHER and self._often == EITHER:
            return max(self._stand[ALONE].typical, self._stand[BESIDE].typical)
        return self._stand[self._often if company == EITHER else company].typical

    @property
    def kappa(self) -> float:
        """For promises, whoever runs beside it."""
        return self.kappa_of(EITHER)

    @property
    def typical(self) -> float:
        """For capacity, whoever runs beside it."""
        return self.typical_of(EITHER)

    def add(self, prior_us: float, compute_us: int, elapsed_us: int | None, beside: bool = False) -> None:
        """A batch of prior latency `prior_us` computed for `compute_us` and was back after `elapsed_us`; None
        for one that was sent ahead, which cost no time on the way. `beside`: another slice of the device was
        busy when it started."""
        self._enter(compute_us / max(prior_us, 1.0), beside)
        if elapsed_us is not None:
            self._overhead.add(min(max(elapsed_us - compute_us, 0), OVERHEAD_US_MAX))
            self.overhead_us = self._overhead.value

    def restart(self, ratios: Iterable[tuple[float, bool]]) -> None:
        """The prior has changed: these are the latest ratios to the new one, the oldest first, each with
        whether its batch started beside another slice's."""
        self._forget()
        for ratio, beside in ratios:
            self._enter(ratio, beside)

    def _forget(self) -> None:
        self._all = Ratios()
        self._stand = [self._all, self._all]  # for ALONE and BESIDE
        self._apart: list[Ratios] = []  # what was kept of these; nothing before there is one of the latter
        self._lately: deque[bool] = deque()  # whether the latest batches started beside another
        self._beside = 0  # how many of these did
        self._often = ALONE

    def _enter(self, ratio: float, beside: bool) -> None:
        if beside and not self._apart:
            self._apart = [Ratios(self._all), Ratios()]  # all until now were alone
            self._lately.extend([False for _ in self._all])
        elif not self._apart:
            self._all.add(ratio)
            return
        own = self._apart[beside]
        own.add(ratio)
        if self._all in self._stand:
            self._all.add(ratio)
            self._stand = [each if each.enough else self._all for each in self._apart]
        lately = self._lately
        lately.append(beside)
        self._beside += beside
        if len(lately) > WINDOW:
            self._beside -= lately.popleft()
        share = self._beside / len(lately)
        self._often = ALONE if share < SELDOM else BESIDE if share > 1 - SELDOM else EITHER


class Doubt:
    """Whether batches of a model have lately borne the estimate out."""

    __slots__ = ("_heard_us",)

    def __init__(self) -> None:
        self._heard_us = 0

    def heard(self, compute_us: int, typical_us: float, now_us: int, quicker: float = FAR_QUICKER) -> None:
        """A batch is back: a sign of life, unless it shows that the estimate is far too high."""
        if quicker * compute_us > typical_us:
            self._heard_us = now_us

    def at(self, now_us: int) -> bool:
        """Whether the latest sign is so old that something should be tried."""
        return now_us - self._heard_us >= TRY_US
