"""The cheapest placement there is, by trying all: an oracle for fleets of up to three devices and four
models.

It shares no code with the solvers. A device is tried with every bundle that is legal on it, a fleet with
every bundle on each device; what something else is as good as in every way is dropped on the way.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations, product
from math import inf

import numpy as np

from serving.policy.placement.terms.geometry import MigProfile
from serving.policy.placement.terms.problem import Demand, Instances, Option, Parts, PlacementProblem, Pool

NEAR = 1e-9
DIGITS = 9
GROUP_MAX = 4
"""Models in turns on a slice."""

Vector = tuple[float, ...]
"""What is carried of each rate, at most 1; of a fleet then also, for each model that must be spread and each
domain, whether it is there."""


def cheapest(problem: PlacementProblem, pieces: bool = True) -> tuple[float, float]:
    """(shortfall, cost) of the best placement: first the least shortfall, then the least cost.

    The shortfall is the sum of the parts of rates that are not carried, and one for each failure domain that
    a model lacks. `pieces`: a model in turns with others carries there its whole rate or what some replicas
    of its best offer for the share leave of it, in the smallest batches that do, and alone it runs a measured
    batch: what our solvers choose from. Otherwise batches are of any size.
    """
    asked = [each for each in problem.demands if each.rate > 0]
    names = sorted({device.domain for pool in problem.pools for device in pool.devices})
    spread = [place for place, each in enumerate(asked) if each.domains_min > 1]
    states = {(0.0,) * (len(asked) + len(spread) * len(names)): 0.0}
    for pool in problem.pools:
        if isinstance(pool.division, Instances):
            bundles = _on_instances(pool, pool.division, asked, pieces)
        else:
            bundles = _on_parts(pool, pool.division, asked, pieces)
        for device in pool.devices:
            for vector, cost in list(states.items()):
                for bundle in bundles:
                    there = [
                        float(name == device.domain and bundle[place] > 0)
                        for place in spread
                        for name in names
                    ]
                    grown = _sum(vector, (*bundle, *there))
                    states[grown] = min(states.get(grown, inf), cost + pool.price)
            states = _front(states)
    return min((_shortfall(asked, spread, len(names), vector), cost) for vector, cost in states.items())


def _shortfall(asked: Sequence[Demand], spread: Sequence[int], count: int, vector: Vector) -> float:
    missing = sum(1 - part for part in vector[: len(asked)])
    for at, place in enumerate(spread):
        begin = len(asked) + at * count
        missing += max(0.0, asked[place].domains_min - sum(vector[begin : begin + count]))
    return round(missing, 6)


def _sum(one: Vector, other: Vector) -> Vector:
    return tuple(min(1.0, round(left + right, DIGITS)) for left, right in zip(one, other, strict=True))


def _front(states: dict[Vector, float]) -> dict[Vector, float]:
    """Those that no other is as good as: as much of everything, for no more."""
    if not states:
        return {}
    ordered = sorted(states.items(), key=lambda each: (each[1], -sum(each[0])))
    kept: dict[Vector, float] = {}
    table = np.zeros((len(ordered), len(ordered[0][0])))
    for vector, cost in ordered:
        if not (table[: len(kept)] >= vector).all(axis=1).any():
            table[len(kept)] = vector
            kept[vector] = cost
    return kept


def _best(vectors: Iterable[Vector]) -> list[Vector]:
    return list(_front(dict.fromkeys(vectors, 0.0)))


# MIG: slices side by side, each one model's


def _on_instances(pool: Pool, division: Instances, asked: Sequence[Demand], pieces: bool) -> list[Vector]:
    """What the devices can carry, memory slice after memory slice. That no more than `instances_max` are
    there has to follow from where they may begin."""
    assert all(_disjoint(each) <= each.instances_max for each in division.geometry)
    end = max((start + each.size for each in division.geometry for start in each.starts), default=0)
    nothing = (0.0,) * len(asked)
    reached: list[list[Vector]] = [[] for _ in range(end + 1)]
    reached[0] = [nothing]
    for start in range(end):
        reached[start] = _best(reached[start])
        reached[start + 1] += reached[start]
        for profile in division.geometry:
            if start in profile.starts:
                gains = [
                    _unit(asked, place, _alone(demand, option, 1.0, pieces))
                    for place, demand in enumerate(asked)
                    for option in demand.options
                    if pool.fits(option) and option.share.label == profile.name
                ]
                reached[start + profile.size] += [_sum(one, gain) for one in reached[start] for gain in gains]
    return _best(reached[end])


def _disjoint(profile: MigProfile) -> int:
    """How many can lie side by side."""
    count, end = 0, 0
    for start in sorted(profile.starts):
        if start >= end:
            count, end = count + 1, start + profile.size
    return count


def _unit(asked: Sequence[Demand], place: int, rate: float) -> Vector:
    return tuple(
        min(1.0, round(rate / each.rate, DIGITS)) if at == place else 0.0 for at, each in enumerate(asked)
    )


def _alone(demand: Demand, option: Option, slowdown: float, pieces: bool) -> float:
    """What a replica carries that has a slice for itself; 0 where it is too slow."""
    measured = [rows for rows, _ in option.curve]
    sizes = measured if pieces else range(1, measured[-1] + 1)
    took_us = {rows: option.latency_us(rows) * slowdown for rows in sizes}
    budget_us = demand.slack * demand.slo_us
    return max(
        (option.processes * rows * 1e6 / us for rows, us in took_us.items() if us <= budget_us), default=0.0
    )


# Parts: slices of some amount, one model's or several models' in turns, all of which slow each other down


@dataclass(frozen=True)
class Slice:
    """Models (by place among those asked) with their options, and what each is to carry at least; 0 where
    that is as much as it can."""

    members: tuple[tuple[int, Option, float], ...]

    @property
    def amount(self) -> float:
        return self.members[0][1].share.amount

    @property
    def memory_bytes(self) -> int:
        return sum(option.memory_bytes for _, option, _ in self.members)

    @property
    def pressure(self) -> float:
        return max(option.pressure for _, option, _ in self.members)


def _on_parts(pool: Pool, parts: Parts, asked: Sequence[Demand], pieces: bool) -> list[Vector]:
    """What the devices can carry, slice beside slice."""
    slices = [*_slices(pool, asked, pieces)]
    isolated = all(option.sensitivity == 0 for each in slices for _, option, _ in each.members)
    gains = cache(lambda place, pressure: _gains(asked, slices[place], pressure, pieces))
    found: dict[Vector, None] = {(0.0,) * len(asked): None}

    def grow(chosen: tuple[int, ...], carried: Sequence[Vector]) -> None:
        for place in range(chosen[-1] if chosen else 0, len(slices)):
            grown = (*chosen, place)
            if not _room(pool, parts, [slices[each] for each in grown]):
                continue
            if isolated and all(one[model] >= 1 for one in carried for model, _, _ in slices[place].members):
                continue  # it adds nothing, now or later
            vectors = [(0.0,) * len(asked)]
            for at, each in enumerate(grown):
                beside = sum(slices[other].pressure for there, other in enumerate(grown) if there != at)
                vectors = _best(_sum(one, way) for one in vectors for way in gains(each, beside))
            if vectors:
                found.update(dict.fromkeys(vectors))
                grow(grown, vectors)

    grow((), list(found))
    return _best(found)


def _room(pool: Pool, parts: Parts, slices: Sequence[Slice]) -> bool:
    held = sum(each.memory_bytes for each in slices)
    return (
        sum(each.amount for each in slices) <= parts.total + NEAR
        and (not parts.slices_max or len(slices) <= parts.slices_max)
        and (not pool.memory_bytes or held <= pool.memory_bytes)
    )


def _slices(pool: Pool, asked: Sequence[Demand], pieces: bool) -> Iterator[Slice]:
    """Each model alone, and each group of models in turns, on each share."""
    options = [[each for each in demand.options if pool.fits(each)] for demand in asked]
    for place, ways in enumerate(options):
        for option in ways:
            yield Slice(((place, option, 0.0),))
    for share in sorted({option.share for ways in options for option in ways}):
        there = [
            [
                (place, option, least)
                for option in ways
                if option.share == share and option.processes == 1
                for least in (_pieces(asked[place], ways, option) if pieces else (0.0,))
            ]
            for place, ways in enumerate(options)
        ]
        for count in range(2, GROUP_MAX + 1):
            for group in combinations(there, count):
                yield from (Slice(members) for members in product(*group))


def _pieces(demand: Demand, ways: Sequence[Option], option: Option) -> list[float]:
    """The rate, and what one replica, two and so on of the best offer for that share leave of it."""
    best = max(_alone(demand, each, 1.0, pieces=True) for each in ways if each.share == option.share)
    found = [demand.rate]
    while best and found[-1] - best > 1e-6 * demand.rate:
        found.append(found[-1] - best)
    return found if best else []


def _gains(asked: Sequence[Demand], each: Slice, pressure: float, pieces: bool) -> list[Vector]:
    """What it carries beside slices of that pressure, in one way or several; nothing where it cannot."""
    demands = [asked[place] for place, _, _ in each.members]
    options = [option for _, option, _ in each.members]
    slow = [1 + option.sensitivity * pressure for option in options]
    if len(demands) == 1:
        rate = _alone(demands[0], options[0], slow[0], pieces)
        return [_unit(asked, each.members[0][0], rate)] if rate else []
    found: list[tuple[tuple[int, ...], Vector]] = []
    for batch in product(*(range(1, option.curve[-1][0] + 1) for option in options)):
        took_us = [
            option.latency_us(rows) * more for option, rows, more in zip(options, batch, slow, strict=True)
        ]
        rates = [rows * 1e6 / sum(took_us) for rows in batch]
        in_time = all(
            sum(took_us) + us <= 2 * demand.slack * demand.slo_us * (1 + NEAR)
            for demand, us in zip(demands, took_us, strict=True)
        )
        if in_time and all(
            rate >= least * (1 - NEAR) for rate, (_, _, least) in zip(rates, each.members, strict=True)
        ):
            vector = [0.0] * len(asked)
            for rate, (place, _, _) in zip(rates, each.members, strict=True):
                vector[place] = min(1.0, round(rate / asked[place].rate, DIGITS))
            found.append((batch, tuple(vector)))
    if pieces and found:  # those that all others are no smaller than are a solution: KeyError if not
        least_of_each = tuple(min(batch[place] for batch, _ in found) for place in range(len(demands)))
        return [dict(found)[least_of_each]]
    return _best(vector for _, vector in found)
