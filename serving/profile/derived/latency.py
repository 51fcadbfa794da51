"""What decisions ask of a profile: how long a batch takes, and how many rows fit into a time."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from math import inf

from serving.profile.curve import Point, Profile

SMALLEST_SHARE = 0.5
"""The least that a batch of tiny rows takes, of one of the smallest measured size: the line through the first
two sizes may have been measured too steep."""

WASTE = 1.15
"""Over the least time of a row; measurements repeat to less. On one core of an AMD EPYC, int8 MiniLM
takes 1.6 ms a row in batches of 18 rows, 2.4 in 22."""


class Latency:
    """What the scheduler asks of a profile: predictions and the largest batch that fits an SLO.

    A batch takes what the size of its largest row says, as shorter rows are padded. Between measured sizes,
    and below the smallest, the latency is on the line through the two nearest. Service is about linear in
    padded tokens. Beyond the largest size the latency is the largest size's, as models truncate; with one
    size, it is the same for all.
    """

    __slots__ = ("_curves", "_measured", "_profile", "_sizes", "_tables", "_worth")

    def __init__(self, profile: Profile, measured: Mapping[int, int] | None = None) -> None:
        """Take a profile. `measured`: by size the largest batch that was measured, if larger ones are
        expected."""
        self._profile = profile
        self._curves = profile.curves()
        self._measured = measured or {size: curve.rows[-1] for size, curve in self._curves.items()}
        self._sizes = sorted(self._curves)
        self._tables: dict[int, list[float]] = {}
        self._worth: dict[int, int] = {}

    @property
    def profile(self) -> Profile:
        """What it was made of."""
        return self._profile

    def predict_us(self, rows: int, size: int = 0) -> float:
        """Return the latency of a batch with a largest row of this size; non-decreasing in rows."""
        table = self._tables.get(size) or self._by_rows(size)
        return table[rows - 1] if rows <= len(table) else max(table[-1], self._at(rows, size))

    def rows_within(self, budget_us: int, size: int = 0) -> int:
        """Return the largest known batch with a latency within `budget_us`, at least 1."""
        return max(self.rows_in(budget_us, size), 1)

    def rows_in(self, budget_us: float, size: int = 0) -> int:
        """Return the largest batch expected to take at most `budget_us`, up to the largest known; may be
        0."""
        return bisect_right(self._tables.get(size) or self._by_rows(size), budget_us)

    def rows_worth(self, size: int = 0) -> int:
        """Return the largest measured batch in which a row takes hardly longer than in any smaller one:
        beyond it, where caches or a library's kernels do not suffice, two batches carry more than one."""
        worth = self._worth.get(size)
        if worth is None:
            worth, least_us = 1, inf
            for rows, latency_us in enumerate(self._tables.get(size) or self._by_rows(size), start=1):
                least_us = min(least_us, latency_us / rows)
                if latency_us / rows <= WASTE * least_us:
                    worth = rows
            self._worth[size] = worth
        return worth

    def measured_size(self, size: int) -> int:
        """Return the measured size that is nearest to `size`; of two, the smaller."""
        above = bisect_left(self._sizes, size)
        if above == 0:
            return self._sizes[0]
        low = self._sizes[above - 1]
        if above == len(self._sizes):
            return low
        high = self._sizes[above]
        return low if size - low <= high - size else high

    def scaled(
        self, factor: Callable[[int, int], float], further: Iterable[tuple[int, int]] = ()
    ) -> "Latency":
        """Return the same curves, with the latency at (size, rows) of each point, and of each `further` one
        that is between points, times `factor`."""
        points = [
            Point(size, rows, curve.at(rows) * factor(size, rows), curve.at(rows) * factor(size, rows), 1)
            for size, curve in self._curves.items()
            for rows in sorted({*curve.rows, *(rows for bucket, rows in further if bucket == size)})
            if curve.rows[0] <= rows <= curve.rows[-1]
        ]
        return Latency(replace(self._profile, points=tuple(points)), self._measured)

    def reaching(self, rows_most: int) -> "Latency":
        """Return the same for batches of up to `rows_most` rows: a sweep that ended early must not keep them
        small.

        A larger batch is expected half way between two lines from the largest measured one. They are its time
        a row carried on, which is cautious, and the slope of the whole curve.
        """
        points = list(self._profile.points)
        for size, curve in self._curves.items():
            last, last_us = curve.rows[-1], curve.latency_us[-1]
            slope_us = (last_us - curve.latency_us[0]) / max(last - curve.rows[0], 1)
            if last == curve.rows[0]:
                slope_us = last_us / last
            rows = last
            while rows < rows_most:
                rows = min(2 * rows, rows_most)
                took_us = (last_us * rows / last + last_us + slope_us * (rows - last)) / 2
                points.append(Point(size, rows, took_us, took_us, 1))
        if len(points) == len(self._profile.points):
            return self
        return Latency(replace(self._profile, points=tuple(points)), self._measured)

    def rows_measured(self, size: int = 0) -> int:
        """Return the largest batch that was measured, of the next larger size."""
        covering = self._sizes[min(bisect_left(self._sizes, size), len(self._sizes) - 1)]
        return self._measured[covering]

    def rows_most(self, size: int) -> int:
        """Return the largest batch of a measured size that is known or expected."""
        return self._curves[size].rows[-1]

    def _by_rows(self, size: int) -> list[float]:
        """Return the latency of 1, 2, ... rows, as far as the next larger size was measured. Decisions look
        it up far more often than it changes."""
        known = self._tables.get(size)
        if known is None:
            known, latency_us = [], 0.0
            covering = self._sizes[min(bisect_left(self._sizes, size), len(self._sizes) - 1)]
            for rows in range(1, self._curves[covering].rows[-1] + 1):
                latency_us = max(latency_us, self._at(rows, size))  # the difference of two curves may fall
                known.append(latency_us)
            self._tables[size] = known
        return known

    def _at(self, rows: int, size: int) -> float:
        exact = self._curves.get(size)
        if exact is not None or len(self._sizes) == 1 or size > self._sizes[-1]:
            return (exact or self._curves[self._sizes[-1]]).at(rows)
        above = max(bisect_left(self._sizes, size), 1)
        low, high = self._sizes[above - 1], self._sizes[above]
        low_us, high_us = self._curves[low].at(rows), self._curves[high].at(rows)
        latency_us = low_us + (high_us - low_us) * (size - low) / (high - low)
        return latency_us if size > low else min(max(latency_us, SMALLEST_SHARE * low_us), low_us)
