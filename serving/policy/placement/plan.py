"""What a placement is: on each device slices, on each slice the replicas that compute there in turns."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import inf

from serving.policy.placement.problem import Option, PlacementProblem
from serving.specs import Share


@dataclass(frozen=True, slots=True)
class PlacedReplica:
    """A replica in its place: of `model`, run as `option` says in batches of up to `rows`; there it carries
    `capacity` rows a second."""

    model: str
    option: Option
    rows: int
    capacity: float


@dataclass(frozen=True, slots=True)
class Slot:
    """A slice: `residents` compute on it in turns. `start`: the first memory slice of a MIG instance, -1
    where that is not decided yet or there are no positions."""

    share: Share
    residents: tuple[PlacedReplica, ...]
    start: int = -1

    @property
    def memory_bytes(self) -> int:
        """Of all residents together."""
        return sum(each.option.memory_bytes for each in self.residents)

    @property
    def pressure(self) -> float:
        """On the other slices of the device: one batch runs at a time, so that of the worst resident."""
        return max((each.option.pressure for each in self.residents), default=0.0)


Placement = Mapping[str, tuple[Slot, ...]]
"""By the name of a device; one that has nothing is left out."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """The slices of one device of a pool, before it is known which one; `domain`: one of that domain, None
    for any."""

    pool: str
    slots: tuple[Slot, ...]
    domain: str | None = None


@dataclass(frozen=True, slots=True)
class Draft:
    """What a solver found. `bound`: no placement that carries all demands can cost less (the LP relaxation);
    inf where not even the relaxation carries them. `optimal`: nor can any cost less than this one."""

    bundles: tuple[Bundle, ...]
    method: str
    bound: float = 0.0
    optimal: bool = False


@dataclass(frozen=True, slots=True)
class PlacementPlan:
    """A placement that can be carried out, and how good it is.

    `cost`: of all devices that are used, for an hour; `bound`: as in `Draft`; `short`: the rows a second that
    could not be placed, by model.
    """

    placement: Placement
    cost: float
    bound: float
    method: str
    optimal: bool = False
    short: Mapping[str, float] = field(default_factory=dict)

    @property
    def gap(self) -> float:
        """By how much it is dearer than the bound, relative to that; 0 where nothing is asked."""
        return self.cost / self.bound - 1 if 0 < self.bound < inf else 0.0


def residents(placement: Placement) -> Iterator[tuple[str, Slot, PlacedReplica]]:
    """Every replica with its device and slice."""
    for device, slots in placement.items():
        for slot in slots:
            for resident in slot.residents:
                yield device, slot, resident


def capacities(placement: Placement) -> dict[str, float]:
    """What is carried in all, rows a second by model."""
    found: dict[str, float] = defaultdict(float)
    for _, _, resident in residents(placement):
        found[resident.model] += resident.capacity
    return dict(found)


def domains(problem: PlacementProblem, placement: Placement) -> dict[str, set[str]]:
    """The failure domains in which each model has a replica."""
    found: dict[str, set[str]] = defaultdict(set)
    for device, _, resident in residents(placement):
        found[resident.model].add(problem.domain_of[device])
    return dict(found)


def cost(problem: PlacementProblem, placement: Placement) -> float:
    """Of all devices that have a slice, for an hour."""
    return sum(problem.pool_of[device].price for device, slots in placement.items() if slots)


def short(problem: PlacementProblem, placement: Placement) -> dict[str, float]:
    """What is not carried of the demands, rows a second by model; models that lack nothing are left out."""
    there = capacities(placement)
    missing = {each.model: each.rate - there.get(each.model, 0.0) for each in problem.demands}
    return {model: rate for model, rate in missing.items() if rate > ROUNDING * problem.demand_of[model].rate}


ROUNDING = 1e-6
"""Relative: solvers meet a constraint only to about so much."""
