"""Which batch a sweep measures next: first a coarse grid, then what tells most for a second of measuring.

Pure: it is told what was measured and answers with the next measurement. There are two things not to know of
a curve. What lies between two measured batches: the error of a straight line there, as the measured ones show
it (each left out in turn, against its neighbours, less what chance explains), and never taken for less than
`UNSEEN` an octave, for kernels have steps. And where a measured batch lies: the confidence interval of its
median, and of its 99th percentile. Variance is what adds up, so a measurement is worth the variance that it
removes; the one goes first that removes most for its time (expected improvement per cost: Ease.ml, VLDB 2018;
Snoek et al., NeurIPS 2012). The sweep ends when nothing is in doubt by more than the tolerance.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf, log, log2, sqrt

from serving.profile.curve import Point
from serving.profile.sweeping.precision import half_width, quantile

COARSE_FACTOR = 8
FINE_ROWS, FINE_SHARE = 8, 4
"""Rows that may be measured: each up to 8, then in steps of a quarter."""
UNSEEN = 0.02  # oneDNN's kernels change with the batch: medians next to each other jump by some 5 %
TOLERANCE = 0.02  # of a median, and of what lies between two
TAIL_TOLERANCE = 0.10
RUNS_FIRST, RUNS_NEXT, RUNS_MAX = 12, 40, 1200
CHUNK_US = 100_000
"""The longest that one batch is measured at a stretch: the machine's slow changes meet all batches alike."""
VISITS = 5
"""Times that a batch is come back to, however sure a single stretch seems: within it, a machine that is slow
for a second is steady (two sweeps then differed by up to 28 % at a batch)."""


@dataclass(frozen=True, slots=True)
class Trial:
    """Run a batch of `rows` at `size`, `repeats` times or until `budget_us` has passed."""

    rows: int
    size: int
    repeats: int
    budget_us: int


@dataclass(slots=True)
class BatchRuns:
    """The runs of one batch, microseconds, and of the yardstick beside them."""

    latencies_us: list[int] = field(default_factory=list)
    yardsticks_us: list[int] = field(default_factory=list)
    activation_bytes: int = 0
    power_w: float = 0.0
    visits: int = 0
    _ordered: list[int] = field(default_factory=list)

    def add(self, latencies_us: Sequence[int], yardsticks_us: Sequence[int]) -> None:
        """Enter a trial's runs."""
        self.latencies_us += latencies_us
        self.yardsticks_us += yardsticks_us
        self.visits += 1
        self._ordered = []

    @property
    def ordered(self) -> list[int]:
        """The latencies, ascending."""
        if not self._ordered:
            self._ordered = sorted(self.latencies_us)
        return self._ordered

    @property
    def median_us(self) -> float:
        """At least 1."""
        return float(max(quantile(self.ordered, 0.5), 1))

    @property
    def level(self) -> float:
        """The median over the yardstick's, where that was run: the machine's slow changes are in both."""
        return self.median_us / (quantile(sorted(self.yardsticks_us), 0.5) if self.yardsticks_us else 1.0)


Key = tuple[int, int]
"""Size bucket, rows."""


@dataclass(slots=True)
class Exploration:
    """The sweep of one variant on one share. `sizes`: its size buckets, or (0,) without a hint; `rows`: the
    batches to measure instead of those that it would choose; `full`: all of the fine grid; `longest_us`: no
    batch is measured that is expected to take longer; `point_us`: the longest that one batch is measured."""

    batch_max: int
    sizes: tuple[int, ...]
    longest_us: float
    point_us: float
    rows: tuple[int, ...] = ()
    full: bool = False
    seen: dict[Key, BatchRuns] = field(default_factory=dict)

    def take(self, trial: Trial, latencies_us: Sequence[int], yardsticks_us: Sequence[int] = ()) -> BatchRuns:
        """Enter a trial's runs."""
        seen = self.seen.setdefault((trial.size, trial.rows), BatchRuns())
        seen.add(latencies_us, yardsticks_us)
        return seen

    def next(self) -> Trial | None:
        """Return the next measurement; None when nothing is in doubt any more. One row of every size comes
        first."""
        for size in reversed(self.sizes):
            for rows in self._coarse():
                if (size, rows) not in self.seen and self._allowed(size, rows):
                    return self._trial(size, rows, RUNS_FIRST)
        gain, size, rows = max(self._gains(), default=(0.0, 0, 0))
        if gain <= 0:
            return None
        return self._trial(size, rows, RUNS_NEXT if (size, rows) in self.seen else RUNS_FIRST)

    @property
    def remaining_us(self) -> float:
        """About what is left to measure, were every batch in doubt run for as long as it may be."""
        left = 0.0
        for size in self.sizes:
            grid = self._coarse() + [rows for _, rows in self._gaps(size)]
            for rows in dict.fromkeys(grid):
                seen = self.seen.get((size, rows))
                if seen is None and self._allowed(size, rows):
                    left += min(self.point_us, RUNS_MAX / 3 * self._expected_us(size, rows))
        return left + sum(self._needed_us(seen) for seen in self.seen.values() if self._doubt(seen))

    def points(self) -> tuple[Point, ...]:
        """Return the points measured so far."""
        return tuple(_point(size, rows, seen) for (size, rows), seen in sorted(self.seen.items()))

    # candidates

    def _gains(self) -> Iterator[tuple[float, int, int]]:
        """Yield the variance of the logarithm that a measurement would remove for a microsecond of it, its
        size and its rows."""
        for (size, rows), seen in self.seen.items():
            doubt = self._doubt(seen)
            if doubt:
                runs = len(seen.latencies_us)
                removed = doubt**2 * RUNS_NEXT / (runs + RUNS_NEXT)
                yield removed / (RUNS_NEXT * seen.median_us), size, rows
        for size in self.sizes:
            for error, rows in self._gaps(size):
                if error > TOLERANCE:
                    yield error**2 / (RUNS_FIRST * self._expected_us(size, rows)), size, rows

    def _doubt(self, seen: BatchRuns) -> float:
        """Return how far the median may be off, or the 99th percentile in fifths of its tolerance; 0 where
        both are known well enough, or no time is left for the batch."""
        runs = len(seen.latencies_us)
        if runs >= RUNS_MAX or sum(seen.latencies_us) >= self.point_us:
            return 0.0
        middle, tail = half_width(seen.ordered, 0.5), half_width(seen.ordered, 0.99)
        if middle > TOLERANCE or seen.visits < VISITS:
            return max(min(middle, 1.0), TOLERANCE)
        return min(tail, 1.0) * TOLERANCE / TAIL_TOLERANCE if tail > TAIL_TOLERANCE else 0.0

    def _needed_us(self, seen: BatchRuns) -> float:
        runs, spent = len(seen.latencies_us), sum(seen.latencies_us)
        return max(min(self.point_us - spent, (RUNS_MAX / 3 - runs) * seen.median_us), 0.0)

    def _gaps(self, size: int) -> list[tuple[float, int]]:
        """Return, between every two neighbours of one size, the relative error of a straight line and the
        batch near their geometric middle. Leave out neighbours that have no batch between them."""
        known = sorted(rows for known_size, rows in self.seen if known_size == size)
        if self.rows:
            return []
        if self.full:
            return [(inf, rows) for rows in self._grid() if rows not in known and self._allowed(size, rows)]
        found = []
        for left, right in pairwise(known):
            between = [rows for rows in self._grid() if left < rows < right]
            if between:
                middle = min(between, key=lambda rows: abs(log(rows * rows / (left * right))))
                found.append((self._error(size, known, left, right), middle))
        largest = known[-1] if known else 0
        beyond = [rows for rows in self._grid() if rows > largest and self._allowed(size, rows)]
        return [*found, (inf, beyond[-1])] if beyond else found

    def _error(self, size: int, known: Sequence[int], left: int, right: int) -> float:
        octaves = log2(right / left)
        bends = [UNSEEN * octaves]
        for middle in (left, right):
            place = known.index(middle)
            if 0 < place < len(known) - 1:
                before, after = known[place - 1], known[place + 1]
                three = [self.seen[size, rows] for rows in (before, middle, after)]
                low, here, high = (each.level for each in three)
                straight = low + (high - low) * (middle - before) / (after - before)
                unsure = sqrt(sum(half_width(each.ordered, 0.5) ** 2 for each in three))
                bend = max(abs(log(here / straight)) - unsure, 0.0)
                bends.append(bend * (octaves / log2(after / before)) ** 2)
        return max(bends)

    def _coarse(self) -> list[int]:
        return list(self.rows) or coarse_rows(self.batch_max)

    def _grid(self) -> list[int]:
        rows, found = 1, []
        while rows < self.batch_max:
            found.append(rows)
            rows += max(1, rows // FINE_SHARE) if rows >= FINE_ROWS else 1
        return [*found, self.batch_max]

    def _allowed(self, size: int, rows: int) -> bool:
        return rows <= self._coarse()[0] or self._expected_us(size, rows) <= self.longest_us

    def _expected_us(self, size: int, rows: int) -> float:
        """Return a cautious guess from the largest smaller batch of that size: latency in proportion to
        rows."""
        seen = self.seen.get((size, rows))
        if seen:
            return seen.median_us
        below = [known for known_size, known in self.seen if known_size == size and known < rows]
        if not below:
            return 0.0 if rows <= self._coarse()[0] else inf
        return self.seen[size, max(below)].median_us * rows / max(below)

    def _trial(self, size: int, rows: int, runs: int) -> Trial:
        seen = self.seen.get((size, rows))
        left_us = self.point_us - (sum(seen.latencies_us) if seen else 0)
        return Trial(rows, size, runs, max(int(min(CHUNK_US, left_us)), 1))


def coarse_rows(batch_max: int, factor: int = COARSE_FACTOR) -> list[int]:
    """Return 1 and its multiples by `factor`, and the largest batch."""
    steps = [factor**power for power in range(batch_max.bit_length())]
    return [*(rows for rows in steps if rows < batch_max), batch_max]


def _point(size: int, rows: int, seen: BatchRuns) -> Point:
    ordered = seen.ordered
    p50_us, p95_us, p99_us = (float(max(quantile(ordered, share), 1)) for share in (0.5, 0.95, 0.99))
    yardstick_us = float(quantile(sorted(seen.yardsticks_us), 0.5)) if seen.yardsticks_us else 0.0
    return Point(
        size, rows, p50_us, p95_us, len(ordered), p99_us, yardstick_us, seen.activation_bytes, seen.power_w
    )
