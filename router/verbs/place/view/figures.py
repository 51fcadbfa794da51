"""What a placement comes to, for people: devices that are alike taken together, and each model's figures."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan, nan

from serving.policy.placement.terms.plan import (
    ROUNDING,
    PlacedReplica,
    Placement,
    Slot,
    capacities,
    domains,
    residents,
)
from serving.policy.placement.terms.problem import Demand, Instances, PlacementProblem, Pool

ALIKE = 24
"""Layouts: where there are more, devices whose slices lie elsewhere but are the same count as alike."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Devices of a pool that are divided alike and run the same, in the pool's order; no `slots`: free.
    `placed`: their MIG instances also begin at the same memory slices."""

    pool: Pool
    devices: tuple[str, ...]
    slots: tuple[Slot, ...] = ()
    placed: bool = True

    @property
    def count(self) -> int:
        """Of devices."""
        return len(self.devices)


@dataclass(frozen=True, slots=True)
class ModelFigures:
    """What a placement means to a model. `asked`: rows a second; the demand's rate is with what is kept in
    reserve. `attainment` and `p99_ms` as predicted, nan where nothing is."""

    demand: Demand
    asked: float
    variants: tuple[str, ...] = ()
    replicas: int = 0
    capacity: float = 0.0
    domains: int = 0
    attainment: float = nan
    p99_ms: float = nan

    @property
    def model(self) -> str:
        """Its name."""
        return self.demand.model

    @property
    def slo_ms(self) -> float:
        """The promise."""
        return self.demand.slo_us / 1000

    @property
    def headroom(self) -> float:
        """By how much more than what is asked is carried, relative to that; nan where nothing is asked."""
        return self.capacity / self.asked - 1 if self.asked > 0 else nan

    @property
    def short(self) -> float:
        """Rows a second, of what is asked and kept in reserve, that are not carried."""
        missing = self.demand.rate - self.capacity
        return missing if missing > ROUNDING * self.demand.rate else 0.0


def used(placement: Placement) -> int:
    """Return how many devices have a slice."""
    return sum(1 for slots in placement.values() if slots)


def extent(pool: Pool, slot: Slot) -> float:
    """Return the part of a device's memory slices (MIG), or of its amount, that a slice takes."""
    if isinstance(pool.division, Instances):
        profile = pool.division.profile(slot.share)
        return (profile.size if profile else 0) / memory_slices(pool.division)
    return slot.share.amount / pool.division.total if pool.division.total else 0.0


def memory_slices(division: Instances) -> int:
    """Return the memory slices of a device: 8 on those that there are today."""
    return max((max(each.starts) + each.size for each in division.geometry if each.starts), default=1)


def layouts(problem: PlacementProblem, placement: Placement) -> tuple[Layout, ...]:
    """Return the devices that have slices, those alike together: by pool, the most frequent first."""
    exact = _grouped(problem, placement, placed=True)
    if len(exact) <= ALIKE:
        return exact
    return _grouped(problem, placement, placed=False)


def free(problem: PlacementProblem, placement: Placement) -> tuple[Layout, ...]:
    """Return the devices that have none, by pool."""
    found = (
        Layout(pool, tuple(each.name for each in pool.devices if not placement.get(each.name)))
        for pool in problem.pools
    )
    return tuple(each for each in found if each.devices)


def _grouped(problem: PlacementProblem, placement: Placement, placed: bool) -> tuple[Layout, ...]:
    found = []
    for pool in problem.pools:
        groups: dict[tuple[object, ...], list[str]] = defaultdict(list)
        for device in pool.devices:
            if slots := placement.get(device.name):
                groups[tuple(sorted(_key(slot, placed) for slot in slots))].append(device.name)
        first = {device.name: place for place, device in enumerate(pool.devices)}
        for names in sorted(groups.values(), key=lambda each: (-len(each), first[each[0]])):
            slots = tuple(sorted(placement[names[0]], key=_key))
            found.append(Layout(pool, tuple(names), slots, placed))
    return tuple(found)


def _key(slot: Slot, placed: bool = True) -> tuple[object, ...]:
    """Return a key that is equal if people see no difference, capacities to six digits. MIG slots are ordered
    by position, others by share, the larger first."""
    inside = tuple(
        (each.model, each.option.variant, each.option.processes, each.rows, f"{each.capacity:.6g}")
        for each in slot.residents
    )
    return (slot.start if placed else -1, -slot.share.amount, str(slot.share), inside)


def alike(layout: Layout) -> list[list[Slot]]:
    """Return the slices of a device, those that have the same share and run the same together."""
    found: dict[tuple[object, ...], list[Slot]] = defaultdict(list)
    for slot in layout.slots:
        found[_key(slot, placed=False)].append(slot)
    return list(found.values())


def models(
    problem: PlacementProblem, placement: Placement, asked: Mapping[str, float]
) -> tuple[ModelFigures, ...]:
    """Return the figures of each demand, in the problem's order. `asked`: rows a second without reserve, by
    model."""
    carried, spread = capacities(placement), domains(problem, placement)
    found: dict[str, list[PlacedReplica]] = defaultdict(list)
    for _, _, resident in residents(placement):
        found[resident.model].append(resident)
    return tuple(
        ModelFigures(
            demand,
            asked.get(demand.model, 0.0),
            variants(found[demand.model]),
            len(found[demand.model]),
            carried.get(demand.model, 0.0),
            len(spread.get(demand.model, ())),
        )
        for demand in problem.demands
    )


def variants(found: Sequence[PlacedReplica]) -> tuple[str, ...]:
    """Return those that replicas run, the most frequent first."""
    counts: dict[str, int] = defaultdict(int)
    for each in found:
        counts[each.option.variant] += 1
    return tuple(sorted(counts, key=lambda name: (-counts[name], name)))


def worst(models: Sequence[ModelFigures], most: int) -> list[ModelFigures]:
    """Return those asked for, in their order; where there are more than `most`, those with the least to
    spare."""
    asked = [each for each in models if each.demand.rate > 0]
    if len(asked) <= most:
        return asked
    kept = {each.model for each in sorted(asked, key=_spare)[:most]}
    return [each for each in asked if each.model in kept]


def _spare(each: ModelFigures) -> tuple[float, float, float, str]:
    known = 2.0 if isnan(each.attainment) else each.attainment
    return (-each.short, known, each.headroom, each.model)
