"""Which batch to measure next: a coarse sweep that fits a time budget, refined when the slice is idle.

Pure: it is told what was measured and answers with the next measurement. Batches double while the next
one is expected to stay within the SLO, so no request could ever be harmed by a batch of that size, and
none is measured that the scheduler would not form.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from serving.profile.curve import Point, Profile

COARSE_REPEATS = 3
FINE_ROWS, FINE_SHARE = 16, 8
RENEWED_COUNT = 10  # runs for which a new point takes the place of an old one; then it is refined
REFINED_COUNT = 30  # enough for a median within a few per cent and a p95 that is not the maximum


@dataclass(frozen=True, slots=True)
class Measurement:
    """Run a batch of `rows` at `size`, `repeats` times or until `budget_us` has passed."""

    rows: int
    size: int
    repeats: int
    budget_us: int


@dataclass(slots=True)
class Sweep:
    """The measuring of one variant on one slice. `sizes`: its size buckets, or (0,) without a hint.

    What was measured may be outdated as a whole: after `renew` every point is measured again, one by one.
    Until its turn has come an old one stands for itself, times what the new ones took over theirs (median):
    half old and half new the curve is of one level, and never has a step that no device has.
    """

    batch_max: int
    slo_us: int
    sizes: tuple[int, ...]
    budget_us: float
    renewing: bool = False
    _seen: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    _old: dict[tuple[int, int], list[int]] = field(default_factory=dict)  # to be replaced
    _changes: list[float] = field(default_factory=list)  # of points that were: new over old
    _doubted: set[tuple[int, int]] = field(default_factory=set)  # while others used the device
    _refined: dict[int, Measurement | None] = field(default_factory=dict)  # a memo of `next_refinement`

    def take(self, rows: int, size: int, latencies_us: Sequence[int], disturbed: bool = False) -> None:
        """Enter a measurement's latencies; its time is taken off the budget. `disturbed`: others used the
        device meanwhile, so they stand in only until an undisturbed measurement takes their place."""
        self._refined = {}
        self.budget_us -= sum(latencies_us)
        key = (size, rows)
        if key in self._doubted and not disturbed:
            self._doubted.remove(key)
            del self._seen[key]
        elif disturbed and key in self._seen and key not in self._doubted:
            return
        elif disturbed:
            self._doubted.add(key)
        seen = self._seen.setdefault(key, [])
        seen.extend(latencies_us)
        if key in self._old and len(seen) >= RENEWED_COUNT:
            old = self._old.pop(key)
            self._changes.append(_quantile(seen, 0.5) / _quantile(old, 0.5))

    def resume(self, profile: Profile) -> None:
        """Continue from a stored profile: its quantiles stand for the latencies that were seen."""
        self._refined = {}
        for point in profile.points:
            high = point.count - min(int(0.95 * point.count), point.count - 1)  # from the p95 on
            seen = [int(point.p50_us)] * (point.count - high) + [int(point.p95_us)] * high
            self._seen[point.size, point.rows] = seen

    def next_coarse(self) -> Measurement | None:
        """Return the next batch of the coarse sweep; None when it is complete or its budget is spent.

        One row of every size always comes first, the costliest size before all: a profile without it
        could not say which batches are safe.
        """
        for size in reversed(self.sizes):
            if (size, 1) not in self._seen:
                return Measurement(1, size, COARSE_REPEATS, max(int(self.budget_us), 1))
        if self.budget_us <= 0:
            return None
        for rows, size in self._grid():
            expected_us = self._expected_us(rows, size)
            if (size, rows) not in self._seen and expected_us <= min(self.slo_us, self.budget_us):
                return Measurement(rows, size, COARSE_REPEATS, int(self.budget_us))
        return None

    def next_refinement(self, budget_us: int) -> Measurement | None:
        """Return a measurement within `budget_us` for an idle slice: missing batches first, then the least
        known.

        Control asks after every event for each replica, so what is known is not thought over again.
        """
        if budget_us not in self._refined:
            self._refined[budget_us] = self._least_known(budget_us)
        return self._refined[budget_us]

    def _least_known(self, budget_us: int) -> Measurement | None:
        open_points = [
            (self._trusted((size, rows)), size, rows)
            for rows, size in self._fine_grid()
            if self._expected_us(rows, size) <= min(self.slo_us, budget_us)
        ]
        count, size, rows = min(open_points, default=(REFINED_COUNT, 0, 0))
        if count >= REFINED_COUNT:
            return None
        return Measurement(rows, size, COARSE_REPEATS, budget_us)

    def _trusted(self, key: tuple[int, int]) -> int:
        """Return how many undisturbed runs are known."""
        return 0 if key in self._doubted else len(self._seen.get(key, ()))

    def renew(self) -> None:
        """Start a renewal, as what was measured is outdated: `renewing`, until `finish_renewal`."""
        self.renewing = True
        self._old, self._seen, self._refined = self._seen, {}, {}
        self._doubted.clear()

    def next_renewal(self, budget_us: int) -> Measurement | None:
        """Return a measurement within `budget_us` of a point that is to be measured anew, in the order of a
        sweep; None where there is none that takes so little."""
        doubling = set(self._grid())
        waiting = [
            ((rows, size) not in doubling, rows, -size)
            for (size, rows), old in self._old.items()
            if _quantile(self._seen.get((size, rows)) or self._moved(old), 0.5) <= min(self.slo_us, budget_us)
        ]
        if not waiting:
            return None
        _, rows, size = min(waiting)
        missing = RENEWED_COUNT - len(self._seen.get((-size, rows), ()))
        return Measurement(rows, -size, missing, budget_us)

    def finish_renewal(self) -> None:
        """End the renewal. What takes too long to be measured anew is as much slower or faster as all that
        could be."""
        for key, old in self._old.items():
            if len(self._seen.get(key, ())) < COARSE_REPEATS:
                self._seen[key] = self._moved([int(_quantile(old, 0.5))])
        self.renewing, self._old, self._changes, self._refined = False, {}, [], {}

    def trusted(self) -> tuple[Point, ...]:
        """Return the `points` to keep: measured while nothing else used the device, more than once."""
        return tuple(
            point
            for point in self.points()
            if (point.size, point.rows) not in self._doubted and point.count >= COARSE_REPEATS
        )

    def points(self) -> tuple[Point, ...]:
        """Return the points measured so far."""
        known = {**self._seen, **{key: self._moved(old) for key, old in self._old.items()}}
        return tuple(
            Point(size, rows, _quantile(seen, 0.5), _quantile(seen, 0.95), len(seen))
            for (size, rows), seen in sorted(known.items())
        )

    def _moved(self, old: Sequence[int]) -> list[int]:
        change = median(self._changes) if self._changes else 1.0
        return [round(latency_us * change) for latency_us in old]

    def _grid(self) -> list[tuple[int, int]]:
        """Return batches in the order of their value: doubling rows, the costliest size first in each."""
        doubling = [1 << power for power in range(self.batch_max.bit_length()) if 1 << power < self.batch_max]
        return [(rows, size) for rows in [*doubling, self.batch_max] for size in reversed(self.sizes)]

    def _fine_grid(self) -> list[tuple[int, int]]:
        """Return every batch up to FINE_ROWS, then batches in steps of an eighth, because latency has steps
        between the doublings.

        A matrix product of 3 rows can take longer than a product of 16 rows (oneDNN picks another kernel).
        """
        fine = {rows for rows, _ in self._grid()}
        rows = 1
        while rows < self.batch_max:
            fine.add(rows)
            rows += max(1, rows // FINE_SHARE) if rows >= FINE_ROWS else 1
        return [(rows, size) for rows in sorted(fine) for size in reversed(self.sizes)]

    def _expected_us(self, rows: int, size: int) -> float:
        """Return a cautious guess from the largest smaller batch of that size: latency in proportion to
        rows."""
        seen = self._seen.get((size, rows))
        if seen:
            return _quantile(seen, 0.5)
        below = [known for known_size, known in self._seen if known_size == size and known < rows]
        if not below:
            return float("inf")
        nearest = max(below)
        return _quantile(self._seen[size, nearest], 0.5) * rows / nearest


def _quantile(values: Sequence[int], share: float) -> float:
    ordered = sorted(values)
    return float(max(ordered[min(int(share * len(ordered)), len(ordered) - 1)], 1))
