"""A measured profile of one variant on one kind of slice: latency over rows, per size bucket.

Latency is not affine in the batch (cache and bandwidth steps), so the curve is the measured points made
non-decreasing by isotonic regression (pool adjacent violators, Barlow et al. 1972) and interpolated
between neighbours; it is never extended beyond the largest measured batch.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from serving.values.slice_specs import Share


@dataclass(frozen=True, slots=True, order=True)
class Point:
    """One measured batch: `size` is the size bucket (0: none), latencies are microseconds of compute.

    What was not measured is 0. `yardstick_us`: what the same fixed work took between the runs (median);
    `activation_bytes`: memory that a run takes beside the weights; `power_w`: of the device while it ran.
    """

    size: int
    rows: int
    p50_us: float
    p95_us: float
    count: int
    p99_us: float = 0.0
    yardstick_us: float = 0.0
    activation_bytes: int = 0
    power_w: float = 0.0


@dataclass(frozen=True, slots=True)
class Curve:
    """Latency over rows at one size; `rows` ascending, `latency_us` non-decreasing, same length >= 1."""

    rows: tuple[int, ...]
    latency_us: tuple[float, ...]

    def at(self, rows: int) -> float:
        """Return the latency of a batch of `rows`; beyond the last point its latency per row is carried
        on."""
        place = bisect_left(self.rows, rows)
        if place == len(self.rows):
            return self.latency_us[-1] * rows / self.rows[-1]
        if place == 0 or self.rows[place] == rows:
            return self.latency_us[place]
        left, right = self.rows[place - 1], self.rows[place]
        low, high = self.latency_us[place - 1], self.latency_us[place]
        return low + (high - low) * (rows - left) / (right - left)


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of a profile, for people and for comparisons.

    `measured`: when, ISO 8601 in UTC; `machine`: processor, driver, versions and so on, by name; `build`:
    digest of the variant's code and weights; `noise`: spread of the yardstick between the runs, p95 over p50
    less 1. `error`: the relative standard error of a predicted profile, 0 for a measured one. `imported`: the
    external file that it was read from, "" if this project measured or predicted it.
    """

    measured: str = ""
    command: str = ""
    machine: tuple[tuple[str, str], ...] = ()
    build: str = ""
    seconds: float = 0.0
    noise: float = 0.0
    error: float = 0.0
    imported: str = ""


UNKNOWN = Origin()
ONE_CORE = Share("cores", 1.0)


@dataclass(frozen=True, slots=True)
class Profile:
    """Everything measured of a variant on a share of a device. Raises ValueError if there is no point.

    On a share of several processes (`mig:2g.35gb*3`) the latencies are of one of them, while all compute.
    `load_us` and `warm_us`: what loading took, and what its first runs took. `memory_bytes`: what the loaded
    variant holds. `import_bytes`: what its code's imports hold beside, once a process. None: a profile of
    before they were counted apart; its `memory_bytes` may be the sum of both.
    """

    model: str
    variant: str
    device_kind: str
    points: tuple[Point, ...]
    load_us: int = 0
    memory_bytes: int = 0
    source: str = ""  # the file, for people
    share: Share = ONE_CORE
    warm_us: int = 0
    origin: Origin = UNKNOWN
    import_bytes: int | None = None

    @property
    def process_bytes(self) -> int:
        """What a process holds that has loaded nothing else, beside Python itself."""
        return self.memory_bytes + (self.import_bytes or 0)

    def __post_init__(self) -> None:
        if not self.points:
            raise ValueError(f"a profile of {self.model} {self.variant} needs at least one measured point")

    @property
    def predicted(self) -> bool:
        """Whether it was predicted from other profiles; a measurement takes its place when one comes."""
        return self.origin.error > 0

    @property
    def imported(self) -> bool:
        """Whether others told it; it counts for plans and rehearsals, and no real slice goes by it."""
        return bool(self.origin.imported)

    @property
    def measured(self) -> bool:
        """Whether it was measured, and neither predicted nor imported."""
        return not (self.predicted or self.imported)

    def curves(self) -> dict[int, Curve]:
        """Return the curves by size bucket, ascending."""
        ordered = sorted(self.points)
        return {size: fit(points) for size, points in groupby(ordered, key=lambda point: point.size)}


def fit(points: Iterable[Point]) -> Curve:
    """Return the isotonic curve through the medians of `points` (one size, ascending rows)."""
    chosen = list(points)
    levels = isotonic([p.p50_us for p in chosen], [float(p.count) for p in chosen])
    return Curve(tuple(p.rows for p in chosen), tuple(levels))


def isotonic(values: Sequence[float], weights: Sequence[float]) -> list[float]:
    """Return the non-decreasing sequence nearest to `values` in weighted least squares."""
    blocks: list[tuple[float, float, int]] = []  # mean, weight, length
    for value, weight in zip(values, weights, strict=True):
        mean, total, length = value, weight, 1
        while blocks and blocks[-1][0] > mean:
            before, before_weight, before_length = blocks.pop()
            mean = (mean * total + before * before_weight) / (total + before_weight)
            total += before_weight
            length += before_length
        blocks.append((mean, total, length))
    return [mean for mean, _, length in blocks for _ in range(length)]
