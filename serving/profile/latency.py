"""What decisions ask of a profile: how long a batch takes, and how many rows fit into a time."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import replace

from serving.profile.curve import Curve, Point, Profile


class Latency:
    """What the scheduler asks of a profile: predictions and the largest batch that fits an SLO."""

    __slots__ = ("_curves", "_fits", "_profile", "_sizes", "_tables")

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._curves = profile.curves()
        self._sizes = sorted(self._curves)
        self._fits: dict[tuple[int, int], int] = {}
        self._tables: dict[int, list[float]] = {}

    @property
    def streams(self) -> int:
        """Batches at once, as in `Profile`."""
        return self._profile.streams

    def predict_us(self, rows: int, size: int = 0) -> float:
        """Latency of a batch at the smallest measured size that covers `size` (else the largest)."""
        table = self._tables.get(size) or self._by_rows(size)
        return table[rows - 1] if rows <= len(table) else self._curve(size).at(rows)

    def rows_within(self, budget_us: int, size: int = 0) -> int:
        """The largest measured batch whose latency is within `budget_us`, at least 1."""
        key = (budget_us, size)
        fit_rows = self._fits.get(key)
        if fit_rows is None:
            curve = self._curve(size)
            measured = range(1, curve.rows[-1] + 1)
            fit_rows = self._fits[key] = max(bisect_right(measured, float(budget_us), key=curve.at), 1)
        return fit_rows

    def rows_in(self, budget_us: float, size: int = 0) -> int:
        """The largest batch expected to take at most `budget_us`, up to the largest measured; may be 0."""
        return bisect_right(self._tables.get(size) or self._by_rows(size), budget_us)

    def measured_size(self, size: int) -> int:
        """The size bucket whose curve answers for `size`."""
        return self._sizes[min(bisect_left(self._sizes, size), len(self._sizes) - 1)]

    def scaled(self, factor: Callable[[int, int], float]) -> "Latency":
        """The same curves, with the latency at (size, rows) of each point times `factor`."""
        points = [
            Point(size, rows, latency_us * factor(size, rows), latency_us * factor(size, rows), 1)
            for size, curve in self._curves.items()
            for rows, latency_us in zip(curve.rows, curve.latency_us, strict=True)
        ]
        return Latency(replace(self._profile, points=tuple(points)))

    def _by_rows(self, size: int) -> list[float]:
        """Latency of 1, 2, ... rows: decisions look it up far more often than it changes."""
        known = self._tables.get(size)
        if known is None:
            curve = self._curve(size)
            known = self._tables[size] = [curve.at(rows) for rows in range(1, curve.rows[-1] + 1)]
        return known

    def _curve(self, size: int) -> Curve:
        return self._curves[self.measured_size(size)]
