"""Whether a profile still says what its replica's batches take.

Each batch gives a ratio of observed to profiled latency, and the median of the last BATCHES is judged: of all
sizes together, and of each size bucket and octave of rows. Batches that ran alone and batches that started
beside another slice of the device are told apart: where only the latter are slow the profile is right, the
neighbours are to blame, and to measure again would help nobody. A profile that is too slow is stale as well:
it wastes what the device can do. Neighbours make nothing faster, so a batch that was too fast speaks against
the profile wherever it ran.
"""

from enum import StrEnum
from typing import Final

BATCHES: Final = 20
"""The median of so many is off by under 7 % in 99 of 100 cases where single batches vary by 20 %."""
OVER, UNDER = 1.15, 0.85  # Nexus' margin over a profile, and as much below it
BACK_OVER, BACK_UNDER = 1.1, 0.9  # a flag is taken back only here, so that it does not flicker
WARM_US: Final = 100.0  # a difference of so little is no more than clocks and caches
COLD_US: Final = 1000.0
"""What a batch may take longer that does not follow one of its own variant at once: a profile is measured in
a row. On an EPYC, after 20 ms of idleness or another model's batch, it was 0.03 to 0.6 ms."""
LATELY: Final = 200  # batches of the replica: sizes that none of them had say nothing of today


class Freshness(StrEnum):
    """What batches say of a profile. INTERFERED: right for a slice while its neighbours are idle, and too
    fast while they are busy."""

    FRESH = "fresh"
    STALE = "stale"
    INTERFERED = "interfered"


def ratio_of(compute_us: float, profiled_us: float, cold: bool) -> float:
    """Return the ratio of what a batch took to its profile, without what is explained otherwise. `cold`: it
    did not follow a batch of its own variant at once."""
    excess_us = compute_us - profiled_us
    if excess_us > 0:
        excess_us = max(excess_us - (COLD_US if cold else WARM_US), 0.0)
    else:
        excess_us = min(excess_us + WARM_US, 0.0)
    return 1 + excess_us / max(profiled_us, 1.0)


class Judgement:
    """Of one replica's profile: `ratio` is what is flagged (1 where nothing is); `alone` and `beside` are the
    medians of the latest batches that ran so, None without any."""

    __slots__ = ("alone", "beside", "freshness", "model", "ratio", "slice", "variant")

    def __init__(self, place: tuple[str, str, str], watch: "ProfileWatch") -> None:
        self.slice, self.model, self.variant = place
        self.freshness: Final = watch.freshness
        self.ratio: Final = watch.ratio
        self.alone: Final = watch.median(beside=False)
        self.beside: Final = watch.median(beside=True)


class _Window:
    """The latest ratios of one kind of batch; `off`: 1 where their median is over, -1 where it is under.

    Only how many are beyond the bounds is counted: to sort them would cost each batch four times as much.
    """

    __slots__ = ("_high", "_low", "_next", "_over", "_under", "beside", "last", "off", "ratios")

    def __init__(self, beside: bool) -> None:
        self.beside: Final = beside
        self.ratios: list[float] = []
        self._next = 0  # the oldest, once there are BATCHES
        self._high, self._low = OVER, UNDER
        self._over = self._under = 0
        self.off = 0
        self.last = 0  # the number of its latest batch

    def add(self, ratio: float) -> bool:
        """Enter one; whether `off` has changed."""
        if len(self.ratios) < BATCHES:
            self.ratios.append(ratio)
        else:
            oldest = self.ratios[self._next]
            self.ratios[self._next] = ratio
            self._next = (self._next + 1) % BATCHES
            self._over -= oldest > self._high
            self._under -= oldest < self._low
        self._over += ratio > self._high
        self._under += ratio < self._low
        off = 1 if self._over > BATCHES // 2 else -1 if self._under > BATCHES // 2 else 0
        if off == self.off or len(self.ratios) < BATCHES:
            return False
        self._turn(off)
        return True

    @property
    def median(self) -> float:
        """Of the ratios, the upper one of two."""
        return sorted(self.ratios)[len(self.ratios) // 2]

    def _turn(self, off: int) -> None:
        self.off = off
        self._high = BACK_OVER if off > 0 else OVER
        self._low = BACK_UNDER if off < 0 else UNDER
        self._over = sum([ratio > self._high for ratio in self.ratios])
        self._under = sum([ratio < self._low for ratio in self.ratios])


class ProfileWatch:
    """The latest batches of a replica, against its profile; `freshness` is what they say."""

    __slots__ = ("_all", "_count", "_parts", "freshness")

    def __init__(self) -> None:
        self._all = [_Window(False), _Window(True)]  # alone, beside others
        self._parts: dict[int, _Window] = {}  # by size bucket and octave of rows
        self._count = 0
        self.freshness = Freshness.FRESH

    def add(self, rows: int, size: int, ratio: float, beside: bool) -> bool:
        """Note that a batch of a measured size took `ratio` times the profile; return whether `freshness` has
        changed. `beside`: it started beside another slice, else it ran alone from its start to its end."""
        self._count += 1
        key = (size << 6 | rows.bit_length()) << 1 | beside
        part = self._parts.get(key)
        if part is None:
            part = self._parts[key] = _Window(beside)
        part.last = self._all[beside].last = self._count
        changed = self._all[beside].add(ratio)
        if part.add(ratio) or changed:
            return self._judge()
        return self._count % LATELY == 0 and self._prune()

    def _prune(self) -> bool:
        """Forget what has not run lately; whether `freshness` has changed by that."""
        since = self._count - LATELY
        self._parts = {key: part for key, part in self._parts.items() if part.last > since}
        self._all = [each if each.last > since else _Window(each.beside) for each in self._all]
        return self._judge()

    @property
    def ratio(self) -> float:
        """What is flagged: of the windows that are off the one farthest from 1; 1 where none is."""
        return max(self._off(), key=lambda ratio: max(ratio, 1 / ratio), default=1.0)

    def median(self, beside: bool) -> float | None:
        """Return the median ratio of the latest batches of all sizes that ran alone, or beside another
        slice's; None without any."""
        window = self._all[beside]
        return window.median if window.ratios else None

    def _off(self) -> list[float]:
        blamed = self.freshness is Freshness.INTERFERED  # the neighbours
        return [
            max(each.median, 1e-9)
            for each in (*self._all, *self._parts.values())
            if each.off and (each.beside == blamed or each.off < 0)
        ]

    def _judge(self) -> bool:
        """Return whether `freshness` has changed."""
        before = self.freshness
        self.freshness = Freshness.FRESH
        for each in (*self._all, *self._parts.values()):
            if each.off < 0 or (each.off and not each.beside):
                self.freshness = Freshness.STALE
                break
            if each.off:
                self.freshness = Freshness.INTERFERED
        return self.freshness is not before
