"""Histograms with fixed bounds, the same for every series of a metric, so that they can be added up."""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final


class BucketScale:
    """Ascending upper bounds (inclusive, as Prometheus has it), and how many of their unit are one of the
    exported unit: 1_000_000 where microseconds become seconds."""

    __slots__ = ("bounds", "les", "unit")

    def __init__(self, bounds: Sequence[int], unit: int = 1) -> None:
        self.bounds = tuple(bounds)
        self.unit = unit
        self.les = (*(_decimal(bound / unit) for bound in self.bounds), "+Inf")


def _decimal(value: float) -> str:
    """Return the value without an exponent (never 1e-05): a query names a bucket by these characters."""
    whole, _, fraction = f"{value:.6f}".partition(".")
    return f"{whole}.{fraction.rstrip('0') or '0'}"


DURATION: Final = BucketScale(
    (
        100, 200, 300, 500, 750,
        1_000, 1_500, 2_000, 3_000, 5_000, 7_500,
        10_000, 15_000, 20_000, 30_000, 50_000, 75_000,
        100_000, 150_000, 200_000, 300_000, 500_000, 750_000,
        1_000_000, 2_000_000, 5_000_000, 10_000_000, 30_000_000,
    ),
    1_000_000,
)  # fmt: skip
"""About 1.5 apart up to a second, so that a percentile read from them is off by some 20 %."""

PARSE: Final = BucketScale(
    (10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000), 1_000_000
)
LAG: Final = BucketScale(
    (1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000, 5_000_000), 1_000_000
)
BATCH: Final = BucketScale([1 << n for n in range(11)])
"""The same for all models, whatever their largest batch: buckets that differ cannot be added up."""

RATIO: Final = BucketScale(
    (250, 500, 700, 800, 900, 950, 1_000, 1_050, 1_100, 1_200, 1_500, 2_000, 5_000, 20_000, 100_000), 1_000
)

CONFIDENCE: Final = BucketScale([100 * n for n in range(1, 11)], 1_000)


class Histogram:
    """Counts by upper bound, one more for what is above all."""

    __slots__ = ("bounds", "counts", "scale", "total")

    def __init__(self, scale: BucketScale) -> None:
        self.scale = scale
        self.bounds = scale.bounds
        self.counts = [0] * (len(scale.bounds) + 1)
        self.total = 0

    def observe(self, value: int) -> None:
        """Count a value, in the unit of the bounds."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def block(self, name: str, labels: str) -> str:
        """Return its exposition lines, all of one moment."""
        scale, count, lines = self.scale, 0, []
        bucket = f'{name}_bucket{{{labels},le="' if labels else f'{name}_bucket{{le="'
        for le, here in zip(scale.les, self.counts, strict=True):
            count += here
            lines.append(f'{bucket}{le}"}} {count}\n')
        around = f"{{{labels}}}" if labels else ""
        lines.append(f"{name}_sum{around} {self.total / scale.unit}\n{name}_count{around} {count}\n")
        return "".join(lines)
