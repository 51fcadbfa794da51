"""The online batch-latency estimate: a profile's prior, corrected by what batches really took.

Ratios of observed to prior latency are kept in a window shared by all batch sizes, so sizes that are
seldom run stay fresh too (the residual model of Clockwork and of iGniter, with quantiles for a mean). The
plan uses kappa * prior + overhead: kappa is a quantile of the last 200 ratios, or of the last ten where
that is more, so that a slow-down counts within ten batches and one outlier does not. Slices of one device
slow each other down (gpulet, iGniter): batches beside others' and batches alone have windows of their own.

An estimate follows what is true now. Ratios older than three seconds leave the window. Where the median of
the last ten departs from the window's, the level has changed and older ratios leave at once. A stop of the
machine lengthens a long batch by as many microseconds as a short one, not by as many times: so the plan for a
batch is at most what it typically takes, plus a quantile of what batches of any size took beyond that.

Where few batches take far longer than the others, a policy may plan with a smaller share of them.
"""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable, Iterator
from math import inf, sqrt
from typing import Final

WINDOW = 200
RECENT = 10
QUANTILE = 0.97  # of the window; .9 to .97 suits a 99 % objective
EXCESS_QUANTILE = 0.98
"""Of what batches took beyond the typical. Higher: short batches take less beyond it, and count as much."""
RECENT_QUANTILE = 0.9
START = 1.15  # Nexus multiplies profiles by this; used until there are ENOUGH samples
ENOUGH = 20
SELDOM = 0.05  # of a window: 1 - QUANTILE
TRY_US = 1_000_000
"""Without a batch for so long, an estimate is in doubt: a batch is tried though it is predicted late. A model
whose batches were slow for a while would otherwise never show that they no longer are."""
FAR_QUICKER = 2  # than the estimate: such a batch leaves it in doubt until enough others have corrected it
HORIZON_US = 3_000_000
"""A ratio counts for so long, but the newest ENOUGH stay: so soon does the estimate forget a disturbance."""
LEVEL = 1.25
"""A median of RECENT ratios that departs by this factor is a change of level: with noise of 20 % that median
has a standard deviation of 8 %."""
RATIO_MAX = 3.0  # one stall must not blind the window for 200 batches
OVERHEAD_QUANTILE = 0.99
OVERHEAD_US_MAX = (
    5000.0  # of transport or of a wake-up: what takes longer is a stall, which none can plan for
)


class Quantile:
    """A quantile over the last `size` values."""

    __slots__ = ("_ordered", "_share", "_size", "_sum", "_values")

    def __init__(self, size: int, share: float) -> None:
        self._values: deque[float] = deque()
        self._ordered: list[float] = []
        self._share = share
        self._size = size
        self._sum = 0.0

    def __len__(self) -> int:
        return len(self._ordered)

    def add(self, value: float) -> None:
        """Enter a value; the oldest leaves a full window."""
        if len(self._ordered) == self._size:
            self.drop()
        self._values.append(value)
        self._sum += value
        insort(self._ordered, value)

    def drop(self) -> None:
        """Drop the oldest value."""
        value = self._values.popleft()
        self._sum -= value
        del self._ordered[bisect_left(self._ordered, value)]

    @property
    def mean(self) -> float:
        """The mean of the window, with values of 0 or more; 0 if it is empty."""
        count = len(self._ordered)
        return max(self._sum, 0.0) / count if count else 0.0  # sums of floats may end just below 0

    @property
    def value(self) -> float:
        """The value that about `share` of the window does not exceed, never the one largest of several; 0
        where it is empty."""
        return self.at(self._share)

    def at(self, share: float) -> float:
        """Return the same for another share."""
        count = len(self._ordered)
        return self._ordered[int(share * (count - 1))] if count else 0.0


class Lateness:
    """How late something is, wake-ups or answers: `value_us` is None until there are ENOUGH."""

    __slots__ = ("_window", "value_us")

    def __init__(self) -> None:
        self._window = Quantile(WINDOW, OVERHEAD_QUANTILE)
        self.value_us: float | None = None

    def add(self, late_us: int) -> None:
        """Note that it came `late_us` after its instant."""
        self._window.add(min(late_us, OVERHEAD_US_MAX))
        if len(self._window) >= ENOUGH:
            self.value_us = self._window.value


Entry = tuple[float, float, int]
"""What a batch took over its prior, that prior in microseconds, and when the batch was back."""


class Ratios:
    """The latest ratios of what batches took to what their prior said, the newest WINDOW of them.

    `kappa`: for promises, what a batch takes at most, nearly always; `typical`: for capacity, the median;
    `excess_us`: what a batch takes at most beyond `typical` times its prior, nearly always.
    """

    __slots__ = (
        "_before",
        "_count",
        "_entries",
        "_excess",
        "_late",
        "_recent",
        "_window",
        "excess_us",
        "kappa",
        "typical",
    )

    def __init__(self, entries: Iterable[Entry] = (), count: int = 0) -> None:
        """Start with `entries`. `count`: batches that are believed to have been before these."""
        self._window = Quantile(WINDOW, QUANTILE)
        self._recent = Quantile(RECENT, RECENT_QUANTILE)
        self._before = Quantile(WINDOW - RECENT, 0.5)  # of the window what is not recent
        self._excess = Quantile(WINDOW, EXCESS_QUANTILE)
        self._late = Quantile(RECENT, RECENT_QUANTILE)  # the newest of these
        self._entries: deque[Entry] = deque()  # those of the window
        self._count = count
        self.kappa = START
        self.typical = 1.0
        self.excess_us = inf
        for ratio, prior_us, now_us in entries:
            self.add(ratio, prior_us, now_us)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries)

    @property
    def enough(self) -> bool:
        """Whether there were enough batches for the ratios to count."""
        return self._count >= ENOUGH

    def kappa_at(self, share: float) -> float:
        """Return `kappa` for promises that `share` of the batches, at least half, are to keep."""
        if share >= QUANTILE or not self.enough:
            return self.kappa
        return max(min(self._window.at(share), RATIO_MAX), self._recent.at(share))

    def excess_at(self, share: float) -> float:
        """Return `excess_us` for promises that `share` of the batches, at least half, are to keep."""
        if share >= QUANTILE or not self.enough:
            return self.excess_us
        return max(self._excess.at(share), self._late.at(share))

    @property
    def lost_us(self) -> float:
        """What a batch takes beyond the typical in the mean; 0 where that is not known."""
        return self._excess.mean if self.enough else 0.0

    def add(self, ratio: float, prior_us: float, now_us: int) -> int:
        """Note that a batch took `ratio` times its prior of `prior_us`. Return how many of the newest batches
        are of a new level if the level has changed, else 0."""
        if len(self._window) == WINDOW:
            self._entries.popleft()
        if len(self._entries) >= RECENT:
            self._before.add(self._entries[-RECENT][0])
        self._window.add(ratio)
        self._recent.add(ratio)
        self._entries.append((ratio, prior_us, now_us))
        self._count += 1
        excess_us = max(ratio - self._window.at(0.5), 0.0) * prior_us
        self._excess.add(excess_us)
        self._late.add(excess_us)
        since = self._forget(now_us)
        if self.enough:
            self.kappa = max(min(self._window.value, RATIO_MAX), self._recent.value)
            self.typical = min(self._window.at(0.5), self.kappa)  # what is planned with is never less
            self.excess_us = max(self._excess.value, self._late.value)
        return since

    def _forget(self, now_us: int) -> int:
        """Let go of what is too old, and after a change of level of all that was before it: how many are left
        then, else 0."""
        while len(self._entries) > ENOUGH and now_us - self._entries[0][2] > HORIZON_US:
            self._entries.popleft()
            self._window.drop()
            self._excess.drop()
            self._before.drop()
        level, before = self._recent.at(0.5), self._before.at(0.5)
        if len(self._before) < RECENT or max(level, before) <= LEVEL * min(level, before):
            return 0
        newest = [self._entries[place - RECENT] for place in range(RECENT)]
        middle = sqrt(level * before)
        kept = [entry for entry in newest if (entry[0] > middle) == (level > before)]
        self._entries = deque(kept)
        self._before = Quantile(WINDOW - RECENT, 0.5)
        self._window = Quantile(WINDOW, QUANTILE)
        self._excess = Quantile(WINDOW, EXCESS_QUANTILE)
        for ratio, prior_us, _ in kept:
            self._window.add(ratio)
            self._excess.add(max(ratio - level, 0.0) * prior_us)
        return len(kept)


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

    def kappa_of(self, company: int, share: float = QUANTILE) -> float:
        """Return the factor for promises that `share` of the batches in that company are to keep."""
        if company == EITHER and self._often == EITHER:
            return max(self._stand[ALONE].kappa_at(share), self._stand[BESIDE].kappa_at(share))
        return self._stand[self._often if company == EITHER else company].kappa_at(share)

    def typical_of(self, company: int) -> float:
        """Return the factor for capacity, of batches in that company."""
        if company == EITHER and self._often == EITHER:
            return max(self._stand[ALONE].typical, self._stand[BESIDE].typical)
        return self._stand[self._often if company == EITHER else company].typical

    def excess_of(self, company: int, share: float = QUANTILE) -> float:
        """Return what `share` of the batches in that company take at most beyond the typical, in
        microseconds; inf where that is not known."""
        if company == EITHER and self._often == EITHER:
            return max(self._stand[ALONE].excess_at(share), self._stand[BESIDE].excess_at(share))
        return self._stand[self._often if company == EITHER else company].excess_at(share)

    def lost_of(self, company: int) -> float:
        """Return what batches in that company take beyond the typical in the mean, in microseconds."""
        if company == EITHER and self._often == EITHER:
            return max(self._stand[ALONE].lost_us, self._stand[BESIDE].lost_us)
        return self._stand[self._often if company == EITHER else company].lost_us

    @property
    def kappa(self) -> float:
        """The factor for promises, whatever runs beside the batch."""
        return self.kappa_of(EITHER)

    @property
    def typical(self) -> float:
        """The factor for capacity, whatever runs beside the batch."""
        return self.typical_of(EITHER)

    def add(
        self, prior_us: float, compute_us: int, elapsed_us: int | None, beside: bool = False, now_us: int = 0
    ) -> int:
        """Note that a batch of prior latency `prior_us` computed for `compute_us` and was back after
        `elapsed_us`. `elapsed_us` is None for a batch that was sent ahead, which cost no time on the way.
        `beside`: another slice of the device was busy when it started. `now_us`: when it was back. Return how
        many of the newest batches are of a new level if their level has changed, else 0."""
        since = self._enter(compute_us / max(prior_us, 1.0), beside, max(prior_us, 1.0), now_us)
        if elapsed_us is not None:
            self._overhead.add(min(max(elapsed_us - compute_us, 0), OVERHEAD_US_MAX))
            self.overhead_us = self._overhead.value
        return since

    def restart(
        self, ratios: Iterable[tuple[float, bool, float]], now_us: int = 0, sure: bool = False
    ) -> None:
        """Start again with a new prior. `ratios`: the latest ratios to it, the oldest first. Each has whether
        its batch started beside another slice's, and the prior in microseconds. `sure`: they are of a new
        level, and count however few they are."""
        self._forget(ENOUGH if sure else 0)
        for ratio, beside, prior_us in ratios:
            self._enter(ratio, beside, prior_us, now_us)

    def _forget(self, count: int = 0) -> None:
        self._all = Ratios(count=count)
        self._stand = [self._all, self._all]  # for ALONE and BESIDE
        self._apart: list[Ratios] = []  # what was kept of these; nothing before there is one of the latter
        self._lately: deque[bool] = deque()  # whether the latest batches started beside another
        self._beside = 0  # how many of these did
        self._often = ALONE

    def _enter(self, ratio: float, beside: bool, prior_us: float, now_us: int) -> int:
        if beside and not self._apart:
            self._apart = [Ratios(self._all), Ratios()]  # all until now were alone
            self._lately.extend([False for _ in self._all])
        elif not self._apart:
            return self._all.add(ratio, prior_us, now_us)
        since = self._apart[beside].add(ratio, prior_us, now_us)
        if self._all in self._stand:
            self._all.add(ratio, prior_us, now_us)
            self._stand = [each if each.enough else self._all for each in self._apart]
        lately = self._lately
        lately.append(beside)
        self._beside += beside
        if len(lately) > WINDOW:
            self._beside -= lately.popleft()
        share = self._beside / len(lately)
        self._often = ALONE if share < SELDOM else BESIDE if share > 1 - SELDOM else EITHER
        return since


class Doubt:
    """Whether batches of a model have lately borne the estimate out."""

    __slots__ = ("_heard_us",)

    def __init__(self) -> None:
        self._heard_us = 0

    def heard(self, compute_us: int, typical_us: float, now_us: int, quicker: float = FAR_QUICKER) -> None:
        """Note that a batch is back: a sign of life, unless it shows that the estimate is far too high."""
        if quicker * compute_us > typical_us:
            self._heard_us = now_us

    def at(self, now_us: int) -> bool:
        """Return whether the latest sign is so old that something should be tried."""
        return now_us - self._heard_us >= TRY_US
