"""When a profile is wrong in shape, not only in level: a new fit from what batches took.

Residuals that all batch sizes share (`policy/latency.py`) correct a device that is slower or faster than its
profile by one factor. A profile that was measured while the machine was busy can be wrong by another factor
at each size, and then no shared factor is right for any. The factors are medians, so noise and single
outliers leave the shape alone; sizes that have not run take the factor of the next smaller that has.

Pessimism has a bound. Two batches of b rows can be run in place of one of 2 b, so a batch that is larger than
all that ran is expected to take at most as long a row as they did. Where a profile says more, the bound lets
a larger batch be tried, and what it takes is known then: a profile that is far too slow at large sizes would
otherwise keep batches small for ever, as nothing ever ran that could correct it.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Mapping
from statistics import median
from typing import Final

from serving.profile.latency import Latency

SAMPLES = 100  # batches that are looked at
SURE = 50  # batches from which a shape is fitted
LOOK_EVERY = 20
MEMORY_US = 2_000_000
"""How long the factor of sizes that no longer run is remembered: on a device on which they are dear they are
tried again so often, and what was true of them in a disturbance is soon forgotten."""
ENOUGH = 5  # batches of about one size
TOLERANCE = 0.1  # noise of 20 % moves the median of ten batches by 8 %; a wrong shape below that costs little

Sample = tuple[int, int, int, bool, int]
"""Rows, size, compute in microseconds, whether it started beside another slice's batch, and how it ran."""
WARM: Final = 0  # at once after another of its variant
COLD: Final = 1  # after a pause, or another variant's batch
JOINED: Final = 2  # alone at first, and then beside another slice's batch

Factors = Mapping[tuple[int, int], float]
"""By (measured size bucket, rows, rounded down to a power of two): what batches took over the profile."""


class Drift:
    """The latest batches of a replica, since the level of what they take changed last."""

    __slots__ = ("_count", "_known", "_samples")

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque(maxlen=SAMPLES)
        self._known: dict[tuple[int, int], tuple[float, int]] = {}  # factor over the level, when it was so
        self._count = 0

    def add(self, rows: int, size: int, compute_us: int, beside: bool = False, ran: int = WARM) -> bool:
        """A batch was computed; whether it is time to `look`."""
        self._samples.append((rows, size, compute_us, beside, ran))
        self._count += 1
        return self._count % LOOK_EVERY == 0 and len(self._samples) >= LOOK_EVERY

    def forget(self, newest: int) -> None:
        """The level has changed: only the newest batches are of today."""
        while len(self._samples) > newest:
            self._samples.popleft()
        self._known.clear()

    def look(self, profiled: Latency, fitted: Latency, now_us: int = 0) -> Latency | None:
        """A better fit than `fitted`, with the profile's points; None where it is still right.

        Nothing is fitted while the level itself is changing: sizes that ran before and after the change
        would seem to differ.
        """
        ratios = self._evened(self.ratios(fitted))
        half = len(ratios) // 2
        if abs(median(ratios[:half]) / median(ratios[half:]) - 1) > TOLERANCE:
            return None
        level = median(ratios)
        wrong = len(ratios) >= SURE and any(
            abs(factor / level - 1) > TOLERANCE for factor in self._factors(fitted, ratios).values()
        )
        self._known = {key: known for key, known in self._known.items() if now_us - known[1] < MEMORY_US}
        bounds = self._bounds(fitted)
        dear = any(
            level * fitted.predict_us(rows, size) > (1 + TOLERANCE) * bound_us * rows
            for size, (ran, bound_us) in bounds.items()
            for rows in (ran + ran // 4 + 1, 2 * ran)
        )
        if not (wrong or dear):
            return None
        factors = self._remembered(profiled, now_us)
        if not factors:
            return None

        def corrected(size: int, rows: int) -> float:
            factor = _factor(factors, size, rows)
            ran, bound_us = bounds.get(size, (rows, 0.0))
            return factor if rows <= ran else min(factor, bound_us * rows / profiled.predict_us(rows, size))

        return profiled.scaled(corrected)

    def _remembered(self, profiled: Latency, now_us: int) -> dict[tuple[int, int], float]:
        """The factors of sizes that run, and of those that did a while ago, as if at today's level."""
        ratios = self._evened(self.ratios(profiled))
        factors = dict(self._factors(profiled, ratios))
        level = median(ratios)
        self._known.update({key: (factor / level, now_us) for key, factor in factors.items()})
        return {**{key: level * known[0] for key, known in self._known.items()}, **factors}

    def _bounds(self, latency: Latency) -> dict[int, tuple[int, float]]:
        """By measured size: the rows of the largest batches that often ran lately, and what such a row took;
        not of sizes of which a larger batch is remembered."""
        found: dict[int, tuple[int, float]] = {}
        by_octave: dict[tuple[int, int], list[tuple[int, float]]] = {}
        for (rows, size, _, _, _), ratio in zip(self._samples, self.ratios(latency), strict=True):
            by_octave.setdefault((latency.measured_size(size), _octave(rows)), []).append((rows, ratio))
        for (size, octave), ran in sorted(by_octave.items()):
            if len(ran) >= ENOUGH:
                often = sorted([rows for rows, _ in ran])[-(len(ran) // 4) - 1]
                ratio = median([ratio for rows, ratio in ran if rows >= often])
                found[size] = (often, ratio * latency.predict_us(often, size) / often)
                if any(bucket == size and larger > octave for bucket, larger in self._known):
                    del found[size]
        return found

    @property
    def samples(self) -> Iterable[Sample]:
        """What is known of the latest batches, the oldest first."""
        return self._samples

    def ratios(self, latency: Latency) -> list[float]:
        """What the batches took over what `latency` says, the oldest first."""
        return [
            compute_us / max(latency.predict_us(rows, size), 1.0)
            for rows, size, compute_us, _, _ in self._samples
        ]

    def _evened(self, ratios: list[float]) -> list[float]:
        """As if all had run alone: what neighbours cost is a matter of level (`Residuals`), not of shape."""
        split: tuple[list[float], list[float]] = ([], [])
        for ratio, (_, _, _, beside, _) in zip(ratios, self._samples, strict=True):
            split[beside].append(ratio)
        if min(len(split[False]), len(split[True])) < ENOUGH:
            return ratios
        levels = (1.0, median(split[False]) / median(split[True]))
        return [ratio * levels[each[3]] for ratio, each in zip(ratios, self._samples, strict=True)]

    def _factors(self, latency: Latency, ratios: Iterable[float]) -> Factors:
        found: dict[tuple[int, int], list[float]] = {}
        for (rows, size, _, _, _), ratio in zip(self._samples, ratios, strict=True):
            found.setdefault((latency.measured_size(size), _octave(rows)), []).append(ratio)
        return {key: median(ratios) for key, ratios in found.items() if len(ratios) >= ENOUGH}


def _octave(rows: int) -> int:
    return 1 << rows.bit_length() - 1


def _factor(factors: Factors, size: int, rows: int) -> float:
    """That of the next smaller batches that have run, else of the smallest that have; of this size bucket,
    else of all."""
    own = {octave: factor for (bucket, octave), factor in factors.items() if bucket == size}
    if not own:
        return median(factors.values())
    ran = sorted(own)
    return own[ran[max(bisect_right(ran, _octave(rows)) - 1, 0)]]
