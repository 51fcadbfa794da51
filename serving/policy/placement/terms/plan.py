"""A placement: the slices of each device, and the replicas that compute in turns on each slice."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import inf

from serving.policy.placement.terms.problem import Option, PlacementProblem
from serving.values.slice_specs import Share


@dataclass(frozen=True, slots=True)
class PlacedReplica:
    """A replica of `model` in its place: it runs as `option` says, in batches of up to `rows`.

    There it carries `capacity` rows a second.
    """

    model: str
    option: Option
    rows: int
    capacity: float


@dataclass(frozen=True, slots=True)
class Slot:
    """A slice: its `residents` compute on it in turns.

    `start`: the first memory slice of a MIG instance. It is -1 if it is not decided yet or if there are no
    positions.
    """

    share: Share
    residents: tuple[PlacedReplica, ...]
    start: int = -1

    @property
    def memory_bytes(self) -> int:
        """The memory of all residents together."""
        return sum(each.option.memory_bytes for each in self.residents)

    @property
    def processes(self) -> int:
        """The workers in it: of a MIG instance maybe several, of one model."""
        return max((each.option.processes for each in self.residents), default=1)

    @property
    def pressure(self) -> float:
        """The pressure on the other slices of the device.

        The slice runs one batch at a time, so this is the highest pressure of its residents.
        """
        return max((each.option.pressure for each in self.residents), default=0.0)


Placement = Mapping[str, tuple[Slot, ...]]
"""The slices of each device, by the device's name. A device without slices is left out."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """The slices of one device of a pool, before it is known which device.

    `domain`: the device has to be in this failure domain; None means any.
    """

    pool: str
    slots: tuple[Slot, ...]
    domain: str | None = None


@dataclass(frozen=True, slots=True)
class Draft:
    """What a solver found.

    `bound`: no placement that carries all demands can cost less (the LP relaxation). It is inf if not even
    the relaxation carries them. `optimal`: no placement can cost less than this one.
    """

    bundles: tuple[Bundle, ...]
    method: str
    bound: float = 0.0
    optimal: bool = False


@dataclass(frozen=True, slots=True)
class PlacementPlan:
    """A placement that can be carried out, and how good it is.

    `cost`: the price of all used devices for an hour. `bound`: as in `Draft`. `short`: the rows a second that
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
        """How much more the plan costs than the bound, relative to the bound. It is 0 if nothing is asked."""
        return self.cost / self.bound - 1 if 0 < self.bound < inf else 0.0


def residents(placement: Placement) -> Iterator[tuple[str, Slot, PlacedReplica]]:
    """Yield every replica with its device and its slice."""
    for device, slots in placement.items():
        for slot in slots:
            for resident in slot.residents:
                yield device, slot, resident


def capacities(placement: Placement) -> dict[str, float]:
    """Return what the placement carries in all, in rows a second by model."""
    found: dict[str, float] = defaultdict(float)
    for _, _, resident in residents(placement):
        found[resident.model] += resident.capacity
    return dict(found)


def domains(problem: PlacementProblem, placement: Placement) -> dict[str, set[str]]:
    """Return the failure domains in which each model has a replica."""
    found: dict[str, set[str]] = defaultdict(set)
    for device, _, resident in residents(placement):
        found[resident.model].add(problem.domain_of[device])
    return dict(found)


def cost(problem: PlacementProblem, placement: Placement) -> float:
    """Return the price for an hour of all devices that have a slice."""
    return sum(problem.pool_of[device].price for device, slots in placement.items() if slots)


def short(problem: PlacementProblem, placement: Placement) -> dict[str, float]:
    """Return the rates that the placement lacks for the demands, in rows a second by model.

    Models that lack nothing are left out.
    """
    there = capacities(placement)
    missing = {each.model: each.rate - there.get(each.model, 0.0) for each in problem.demands}
    return {model: rate for model, rate in missing.items() if rate > ROUNDING * problem.demand_of[model].rate}


ROUNDING = 1e-6
"""A relative tolerance: solvers meet a constraint only to about so much."""
