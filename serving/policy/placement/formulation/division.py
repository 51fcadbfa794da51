"""Divisions: the ways to divide a device for linear programs, what each way gives, what a replica takes.

A way is a multiset of slices, as patterns are in cutting stock (Gilmore and Gomory 1961). A MIG geometry has
a few dozen ways, and they do not grow with the fleet. The same holds for cores or per cents where few amounts
are in use. Where there are too many ways, a device is assumed to give its amount however it is cut. That is
never less than it gives.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from serving.policy.placement.formulation.offers import size
from serving.policy.placement.terms.geometry import maximal_multisets
from serving.policy.placement.terms.plan import ROUNDING
from serving.policy.placement.terms.problem import Instances, Option, Parts, Pool
from serving.values.slice_specs import Share

WAYS_MAX = 1000
"""The most ways of a division. Of 20 amounts that are multiples of the smallest there are 627 (partitions of
20)."""

Counts = tuple[int, ...]
"""The slices of each size, in an order that is given elsewhere."""


@dataclass(frozen=True, slots=True)
class ResourceUse:
    """What a replica takes: (resource, how much of it) for the resources of a division.

    `part`: how much of a device that is, of its memory slices for MIG instances, else of its amount.
    """

    resources: tuple[tuple[int, float], ...]
    part: float


@dataclass(frozen=True, slots=True)
class Division:
    """How the devices of `pool` can be divided; `gives` has how much of each resource each way gives.

    The resources are the slices of each size, by `sizes`. If the ways are too many, there are no sizes. The
    resources are then the amount and, where it is limited, the number of slices. The last resource is memory,
    where slices share it and it is limited. All but slices of a size are parts of what the whole device has.
    """

    pool: Pool
    sizes: Mapping[Hashable, int]
    gives: tuple[tuple[float, ...], ...]

    def taken(self, option: Option) -> ResourceUse:
        """Return the resources that a replica with this option takes."""
        share, parts = option.share, self.pool.division
        if isinstance(parts, Instances):
            profiles = {each.name: each.size for each in parts.geometry}
            part = profiles[share.label] / max(profiles.values())
        else:
            part = share.amount / parts.total
        if self.sizes:
            found = [(self.sizes[size(self.pool, share)], 1.0)]
        else:
            found = [(0, part)]
            if isinstance(parts, Parts) and parts.slices_max:
                found.append((1, 1 / parts.slices_max))
        if _shares_memory(self.pool):
            found.append((len(self.gives[0]) - 1, option.memory_bytes / self.pool.memory_bytes))
        return ResourceUse(tuple(found), part)


def divide(pool: Pool, shares: Iterable[Share]) -> Division:
    """Return the ways to divide a device of the pool into slices of these shares."""
    sizes = {size(pool, share): share for share in shares}
    if isinstance(pool.division, Instances):
        whole = [Counter(each) for each in maximal_multisets(pool.division.geometry)]
        ways = _most(tuple(each[share.label] for share in sizes.values()) for each in whole)
        return Division(pool, _places(sizes), tuple(tuple(map(float, way)) for way in ways))
    memory = (1.0,) * _shares_memory(pool)
    cuts = _cuts(pool.division, [share.amount for share in sizes.values()])
    if cuts is None:
        return Division(pool, {}, ((1.0,) * (2 if pool.division.slices_max else 1) + memory,))
    return Division(pool, _places(sizes), tuple((*map(float, cut), *memory) for cut in cuts))


def _shares_memory(pool: Pool) -> bool:
    return isinstance(pool.division, Parts) and pool.memory_bytes > 0


def _places(sizes: Iterable[Hashable]) -> dict[Hashable, int]:
    return {each: place for place, each in enumerate(sizes)}


def _most(ways: Iterable[Counts]) -> list[Counts]:
    """Return the ways that give something, without those where another gives as much of everything."""
    found = [way for way in dict.fromkeys(ways) if any(way)]
    return [
        way for way in found if not any(other != way and all(map(int.__ge__, other, way)) for other in found)
    ]


def _cuts(parts: Parts, amounts: Sequence[float]) -> list[Counts] | None:
    """Return the ways to cut a device into slices of these amounts to which no slice can be added.

    Return None if there are more than WAYS_MAX.
    """
    order = sorted(range(len(amounts)), key=lambda place: -amounts[place])
    most = parts.slices_max or int(parts.total * (1 + ROUNDING) / min(amounts))
    found: list[Counts] = []
    for counts in _filled([amounts[place] for place in order], parts.total * (1 + ROUNDING), most):
        if len(found) == WAYS_MAX:
            return None
        by_place = dict(zip(order, counts, strict=True))
        found.append(tuple(by_place[place] for place in range(len(amounts))))
    return found


def _filled(amounts: Sequence[float], left: float, slices_left: int) -> Iterator[Counts]:
    """Yield numbers of slices within `left` and `slices_left` to which not even the smallest can be added.

    They are by `amounts`, which descend.
    """
    most = min(int(left / amounts[0]), slices_left)
    if len(amounts) == 1:
        yield (most,)
        return
    for count in range(most, -1, -1):
        for counts in _filled(amounts[1:], left - count * amounts[0], slices_left - count):
            yield (count, *counts)
