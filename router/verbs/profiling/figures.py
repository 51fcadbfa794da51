"""What profiles say, worked out for people: the batch that a latency allows on each share, and the knee.

The knee is of the surface that is fitted over batches and shares; what a share carries is its profiled
capacity, by its own profile alone, as all verbs name it. A
size-hinted model has a surface for each size bucket; everything here is of the largest, with which who plans
is safe for all others.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import nan

from serving.profile.curve import Curve, Point, Profile, isotonic
from serving.profile.derived.carrying import carried
from serving.profile.derived.knee import Knee, knee_at_slo
from serving.profile.derived.latency import Latency
from serving.profile.derived.surface import Surface
from serving.profile.profiles import ProfileSet
from serving.values.slice_specs import Share


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch on a share: microseconds that it takes, and rows a second when one follows the other.

    `p99_us` is nan where none was measured. `activation_bytes` and `power_w` are those of the next larger
    batch that was measured, 0 where unknown.
    """

    rows: int
    p50_us: float
    p99_us: float
    throughput: float
    activation_bytes: int
    power_w: float


@dataclass(frozen=True, slots=True)
class ShareFigures:
    """One share. `points`: its batches, ascending; `within`: the batch that carries most of those that take
    at most half of the latency that was asked for (`serving.profile.derived.carrying`, by the share's own
    profile), None where there is none; `efficiency`: as in `Knee`, nan where unknown."""

    profile: Profile
    points: tuple[Point, ...]
    smallest: Batch
    within: Batch | None
    efficiency: float

    @property
    def share(self) -> Share:
        """The share with these figures."""
        return self.profile.share

    @property
    def margin(self) -> float:
        """How far off a figure may well be, relative: a prediction's standard error, else the noise."""
        return self.profile.origin.error or self.profile.origin.noise


@dataclass(frozen=True, slots=True)
class ShareScaling:
    """One variant on shares of one kind, of ascending amounts, with one number of processes, at one size.

    `knee`: None where there is only one share, or where no batch is within the latency.
    """

    device_kind: str
    variant: str
    size: int
    shares: tuple[ShareFigures, ...]
    surface: Surface
    knee: Knee | None

    @property
    def at_knee(self) -> ShareFigures | None:
        """The share of the knee."""
        return next((each for each in self.shares if self.is_knee(each)), None)

    def is_knee(self, share: ShareFigures) -> bool:
        """Return whether it is the share of the knee."""
        return self.knee is not None and share.share.amount == self.knee.amount


def scalings(sets: Iterable[ProfileSet], slo_us: int) -> list[ShareScaling]:
    """Return all that there is in `sets`, in their order."""
    return [_scaling(found, family, slo_us) for found in sets for family in _families(found.profiles)]


def _families(profiles: Sequence[Profile]) -> Iterator[list[Profile]]:
    """Yield the profiles that share a surface: MIG has instances of one amount that differ in their
    memory."""
    families: dict[tuple[str, int, int, int], list[Profile]] = {}
    for profile in profiles:
        size, place = max(point.size for point in profile.points), 0
        while True:
            family = families.setdefault((profile.share.kind, profile.share.processes, size, place), [])
            if all(each.share.amount != profile.share.amount for each in family):
                family.append(profile)
                break
            place += 1
    yield from families.values()


def _scaling(found: ProfileSet, profiles: Sequence[Profile], slo_us: int) -> ShareScaling:
    size = max(point.size for point in profiles[0].points)
    surface = Surface.of(profiles, size)
    knee = knee_at_slo(surface, slo_us) if len(profiles) > 1 else None
    shares = tuple(_measured(each, surface, knee, slo_us) for each in profiles)
    return ShareScaling(found.device_kind, found.variant, size, shares, surface, knee)


def _measured(profile: Profile, surface: Surface, knee: Knee | None, slo_us: int) -> ShareFigures:
    size = max(point.size for point in profile.points)
    points = points_of(profile, size)
    amount = profile.share.amount
    best = carried(Latency(profile), slo_us, points[-1].rows, size)
    first = points[0].rows
    return ShareFigures(
        profile,
        points,
        smallest=_batch(points, first, surface.latency_us(amount, first), surface.throughput(amount, first)),
        within=_batch(points, best.rows, best.latency_us, best.rate) if best else None,
        efficiency=dict(knee.efficiency).get(amount, nan) if knee else nan,
    )


def points_of(profile: Profile, size: int) -> tuple[Point, ...]:
    """Return the measured batches of one size, ascending."""
    return tuple(sorted(point for point in profile.points if point.size == size))


def _batch(points: Sequence[Point], rows: int, p50_us: float, throughput: float) -> Batch:
    above = next(point for point in points if point.rows >= rows)
    return Batch(
        rows,
        p50_us,
        max(_tail_us(points, rows), p50_us) if above.p99_us else nan,
        throughput,
        above.activation_bytes,
        above.power_w,
    )


def _tail_us(points: Sequence[Point], rows: int) -> float:
    """Return the p99 at `rows`, between the measured ones."""
    known = [point for point in points if point.p99_us]
    levels = isotonic([point.p99_us for point in known], [float(point.count) for point in known])
    return Curve(tuple(point.rows for point in known), tuple(levels)).at(rows)
