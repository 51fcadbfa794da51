"""When a profile is wrong in shape, not only in level: a new fit from what batches took.

Residuals that all batch sizes share (`policy/latency.py`) correct a device that is slower or faster than its
profile by one factor. A profile that was measured while the machine was busy can be wrong by another factor
at each size, and then no shared factor is right for any. The factors are medians, so noise and single
outliers leave the shape alone. They hold for the rows that have run; between these they are interpolated,
and smaller and larger batches take the factor of the nearest that has run.

What is believed of sizes that have not run has bounds. Two batches of b rows can be run in place of one of
2 b, so a batch that is larger than all that ran is expected to take at most as long a row as they did. Where
a profile says more, the bound lets a larger batch be tried, and what it takes is known then: a profile that
is far too slow at large sizes would otherwise keep batches small for ever, as nothing ever ran that could
correct it. A batch that is smaller than all that ran is expected to take about as long a row, at least.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import log, sqrt
from statistics import median
from typing import Final, NamedTuple

from serving.profile.derived.latency import Latency

SAMPLES = 100  # batches that are looked at
SURE = 50  # batches from which a shape is fitted
LOOK_EVERY = 20
MEMORY_US = 2_000_000
"""How long the factor of sizes that no longer run is remembered: on a device on which they are dear they are
tried again so often, and what was true of them in a disturbance is soon forgotten."""
TRIED_US = 30_000_000
"""How long tries of batches that seem not to fit the SLO count. Each costs its rows, and ENOUGH of them in so
long a time cost next to nothing."""
ENOUGH = 5  # batches of about one size
TOLERANCE = 0.1  # noise of 20 % moves the median of ten batches by 8 %; a wrong shape below that costs little
LARGER = 1.2  # times the rows of batches before
TYPICAL = 10  # batches of about one size that TOLERANCE is for; fewer of them may depart further

Sample = tuple[int, int, int, bool, int]
"""Rows, size, compute in microseconds, whether it started beside another slice's batch, and how it ran."""
WARM: Final = 0  # at once after another of its variant
COLD: Final = 1  # after a pause, or another variant's batch
JOINED: Final = 2  # alone at first, and then beside another slice's batch

Key = tuple[int, int]
"""Measured size bucket, and rows, rounded down to a step (`_step`)."""


class Factor(NamedTuple):
    """The median ratio of what `batches` batches of about `rows` rows took to the profile."""

    rows: int
    ratio: float
    batches: int


class Drift:
    """The latest batches of a replica, since the level of what they take changed last."""

    __slots__ = ("_count", "_known", "_looked_us", "_proven", "_samples")

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque(maxlen=SAMPLES)
        self._known: dict[Key, tuple[Factor, int]] = {}  # factor over the level, when it was so
        self._proven: dict[Key, int] = {}  # when batches of about so many rows were seen last
        self._count = 0
        self._looked_us = 0

    def add(self, rows: int, size: int, compute_us: int, beside: bool = False, ran: int = WARM) -> bool:
        """Note that a batch was computed; return whether it is time to `look`."""
        self._samples.append((rows, size, compute_us, beside, ran))
        self._count += 1
        return self._count % LOOK_EVERY == 0 and len(self._samples) >= LOOK_EVERY

    def forget(self, newest: int) -> None:
        """Keep only the `newest` batches and forget all factors: the level has changed."""
        while len(self._samples) > newest:
            self._samples.popleft()
        self._known.clear()
        self._proven.clear()

    def grew(self, newest: int) -> bool:
        """Return whether the newest batches were larger than nearly all before: that they take otherwise than
        was expected is a matter of shape, then."""
        rows = [each[0] for each in self._samples]
        before = sorted(rows[:-newest])
        if not before or newest >= len(rows):
            return False
        return median(rows[-newest:]) > LARGER * before[9 * (len(before) - 1) // 10]

    def is_proven(self, rows: int, measured_size: int) -> bool:
        """Return whether batches of about `rows` rows, or of more, have lately shown what they take."""
        return self._ran(rows, measured_size, MEMORY_US)

    def is_tried(self, rows: int, measured_size: int) -> bool:
        """Return whether they have within TRIED_US, or need no try yet, because too few batches are known."""
        return len(self._samples) < SURE or self._ran(rows, measured_size, TRIED_US)

    def _ran(self, rows: int, measured_size: int, within_us: int) -> bool:
        step, since_us = _step(rows), self._looked_us - within_us
        return any(
            size == measured_size and larger >= step and at_us > since_us
            for (size, larger), at_us in self._proven.items()
        )

    def look(self, profiled: Latency, fitted: Latency, now_us: int = 0) -> Latency | None:
        """Return a better fit than `fitted`, with the profile's points; None where it is still right.

        Nothing is fitted while the level itself is changing: sizes that ran before and after the change
        would seem to differ.
        """
        ratios = self._evened(self.ratios(fitted))
        found = self._factors(fitted, ratios)
        self._proven.update(dict.fromkeys(found, now_us))
        self._proven = {key: at_us for key, at_us in self._proven.items() if now_us - at_us < TRIED_US}
        self._looked_us = now_us
        if self._is_changing(fitted, ratios):
            return None
        level = median(ratios)
        wrong = len(ratios) >= SURE and any(
            abs(each.ratio / level - 1) > TOLERANCE * max(1.0, sqrt(TYPICAL / each.batches))
            for each in found.values()
        )
        self._known = {key: known for key, known in self._known.items() if now_us - known[1] < MEMORY_US}
        bounds = self._bounds(fitted)
        dear = any(
            level * fitted.predict_us(rows, size) > (1 + TOLERANCE) * bound_us * rows
            for size, (ran, bound_us) in bounds.items()
            for rows in (ran + ran // 4 + 1, *_doublings(ran, fitted.rows_most(size)))
        )
        if not (wrong or dear):
            return None
        factors = self._remembered(profiled, now_us)
        if not factors:
            return None

        smallest: dict[int, tuple[int, float]] = {}
        for (size, _), each in sorted(factors.items(), reverse=True):
            smallest[size] = each.rows, each.ratio * profiled.predict_us(each.rows, size) / each.rows

        def corrected(size: int, rows: int) -> float:
            factor, here_us = _factor_at(factors, size, rows), profiled.predict_us(rows, size)
            ran, bound_us = bounds.get(size, (rows, 0.0))
            least, least_us = smallest.get(size, (rows, 0.0))
            if rows < least:
                return max(factor, least_us * rows / here_us / (1 + TOLERANCE))
            return factor if rows <= ran else min(factor, bound_us * rows / here_us)

        return profiled.scaled(corrected, [(size, each.rows) for (size, _), each in factors.items()])

    def _is_changing(self, latency: Latency, ratios: Sequence[float]) -> bool:
        """Return whether the newer half of the batches took otherwise than the older: in the mean of sizes
        that are in both, as that others are now run is no change."""
        halves: dict[Key, tuple[list[float], list[float]]] = {}
        for place, ((rows, size, _, _, _), ratio) in enumerate(zip(self._samples, ratios, strict=True)):
            both = halves.setdefault((latency.measured_size(size), _step(rows)), ([], []))
            both[2 * place >= len(ratios)].append(ratio)
        total = weights = 0.0
        for older, newer in halves.values():
            weight = min(len(older), len(newer))
            if weight:
                total += weight * log(median(newer) / median(older))
                weights += weight
        return weights >= ENOUGH and abs(total / weights) > log(1 + TOLERANCE)

    def _remembered(self, profiled: Latency, now_us: int) -> dict[Key, Factor]:
        """Return the factors of sizes that run now, and of sizes that ran some time ago, scaled to today's
        level."""
        ratios = self._evened(self.ratios(profiled))
        factors = self._factors(profiled, ratios)
        level = median(ratios)
        self._known.update(
            {key: (each._replace(ratio=each.ratio / level), now_us) for key, each in factors.items()}
        )
        before = {key: each._replace(ratio=each.ratio * level) for key, (each, _) in self._known.items()}
        return {**before, **factors}

    def _bounds(self, latency: Latency) -> dict[int, tuple[int, float]]:
        """Return, by measured size, the rows of the largest batches that often ran lately, and what such a
        row took. Leave out a size if a larger batch of it is remembered."""
        found: dict[int, tuple[int, float]] = {}
        by_step: dict[Key, list[tuple[int, float]]] = {}
        for (rows, size, _, _, _), ratio in zip(self._samples, self.ratios(latency), strict=True):
            by_step.setdefault((latency.measured_size(size), _step(rows)), []).append((rows, ratio))
        for (size, step), ran in sorted(by_step.items()):
            if len(ran) >= ENOUGH:
                often = sorted([rows for rows, _ in ran])[-(len(ran) // 4) - 1]
                ratio = median([ratio for rows, ratio in ran if rows >= often])
                found[size] = (often, ratio * latency.predict_us(often, size) / often)
                if any(bucket == size and larger > step for bucket, larger in self._known):
                    del found[size]
        return found

    @property
    def samples(self) -> Iterable[Sample]:
        """What is known of the latest batches, the oldest first."""
        return self._samples

    def ratios(self, latency: Latency) -> list[float]:
        """Return the ratio of what each batch took to what `latency` predicts, the oldest first."""
        return [
            max(compute_us, 1) / max(latency.predict_us(rows, size), 1.0)
            for rows, size, compute_us, _, _ in self._samples
        ]

    def _evened(self, ratios: list[float]) -> list[float]:
        """Return the ratios as if all batches had run alone.

        The cost of neighbours is a matter of level (`Residuals`), not of shape.
        """
        split: tuple[list[float], list[float]] = ([], [])
        for ratio, (_, _, _, beside, _) in zip(ratios, self._samples, strict=True):
            split[beside].append(ratio)
        if min(len(split[False]), len(split[True])) < ENOUGH:
            return ratios
        levels = (1.0, median(split[False]) / median(split[True]))
        return [ratio * levels[each[3]] for ratio, each in zip(ratios, self._samples, strict=True)]

    def _factors(self, latency: Latency, ratios: Iterable[float]) -> dict[Key, Factor]:
        found: dict[Key, list[tuple[int, float]]] = {}
        for (rows, size, _, _, _), ratio in zip(self._samples, ratios, strict=True):
            found.setdefault((latency.measured_size(size), _step(rows)), []).append((rows, ratio))
        return {
            key: Factor(
                sorted([rows for rows, _ in ran])[len(ran) // 2], median([each for _, each in ran]), len(ran)
            )
            for key, ran in found.items()
            if len(ran) >= ENOUGH
        }


def _step(rows: int) -> int:
    """Return the largest of 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, ... that is not more than `rows`."""
    quarter = max((1 << rows.bit_length() - 1) // 4, 1)
    return rows - rows % quarter


def _doublings(rows: int, most: int) -> Iterator[int]:
    while rows < most:
        rows = min(2 * rows, most)
        yield rows


def _factor_at(factors: Mapping[Key, Factor], size: int, rows: int) -> float:
    """Return the factor of batches of `rows` rows, interpolated between batches that have run: of this size
    bucket, else the median of all."""
    own = sorted([each for (bucket, _), each in factors.items() if bucket == size])
    if not own:
        return median([each.ratio for each in factors.values()])
    above = bisect_right([each.rows for each in own], rows)
    if above == 0 or above == len(own):
        return own[min(above, len(own) - 1)].ratio
    low, high = own[above - 1], own[above]
    return low.ratio + (high.ratio - low.ratio) * log(rows / low.rows) / log(high.rows / low.rows)
