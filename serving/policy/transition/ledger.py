"""A transition in the making: how far each slice is, what is carried at the moment, and what would be. Pure.

A move takes slices of one device from stage to stage. Several moves are carried out together: all is loaded,
then one edit of the routes, then what is routed no longer drains and goes. So promises have to hold before
and after the edit, and room is needed for both sides of it.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from serving.policy.placement.terms.plan import ROUNDING, PlacedReplica, Placement, capacities, residents
from serving.policy.placement.terms.problem import Demand, Instances, PlacementProblem, Pool
from serving.policy.transition.change import NEW, Change, Stage, changes
from serving.policy.transition.invariants import Floors, crowding, floors, nothing_added, strain
from serving.policy.transition.state import Slices, TransitionSlice
from serving.policy.transition.steps import Group
from serving.policy.transition.waves import groups, together

NEAR = ROUNDING / 2
"""Relative: half of what the invariants allow, for sums that are kept up step by step."""

Stages = Mapping[int, Stage]
"""Of the slices of a device, by number."""


@dataclass(slots=True)
class Delta:
    """What becomes of each model's capacity, and of its replicas by failure domain."""

    rates: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    counts: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))

    def change(self, resident: PlacedReplica, domain: str, sign: int) -> None:
        """Count a replica more (`sign` 1) or less (-1)."""
        self.rates[resident.model] += sign * resident.capacity
        self.counts[resident.model][domain] += sign

    def add(self, other: "Delta") -> None:
        """Add the other delta."""
        for model, rate in other.rates.items():
            self.rates[model] += rate
            counts = self.counts[model]
            for domain, count in other.counts[model].items():
                counts[domain] += count


NOTHING = Delta()


@dataclass(frozen=True, slots=True)
class Shortfall:
    """What a model is short of: rows a second, failure domains."""

    rate: float
    domains: int


@dataclass(frozen=True, slots=True)
class Move:
    """A device from some stages to others; those of all its slices."""

    device: str
    before: Stages
    after: Stages
    delta: Delta

    @property
    def is_sizing(self) -> bool:
        """Whether nothing comes or goes."""
        return all(
            self.before[each]._replace(sized=stage.sized) == stage for each, stage in self.after.items()
        )


@dataclass(frozen=True, slots=True)
class FleetFacts:
    """What a problem says, by the name of a device or a model."""

    pool_of: Mapping[str, Pool]
    domain_of: Mapping[str, str]
    demand_of: Mapping[str, Demand]


@dataclass(slots=True)
class TransitionLedger:
    """By device: `changes` of its slices, and `stages`, how far each is, by number. By model: the `capacity`
    at the moment, and how many replicas there are in each failure domain (`presence`).

    `unbegun`: devices on which something new is still to come; `unfinished`: those that are not yet as they
    are to be; `free`: those with some room for a slice.
    """

    fleet: FleetFacts
    floors: Floors
    old: Placement
    capacity: dict[str, float]
    presence: dict[str, Counter[str]]
    changes: dict[str, list[Change]] = field(default_factory=dict)
    stages: dict[str, dict[int, Stage]] = field(default_factory=dict)
    unbegun: set[str] = field(default_factory=set)
    unfinished: set[str] = field(default_factory=set)
    free: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, problem: PlacementProblem, old: Placement, new: Placement) -> "TransitionLedger":
        """Return a ledger of the old placement, on the way to the new one."""
        fleet = FleetFacts(problem.pool_of, problem.domain_of, problem.demand_of)
        presence: dict[str, Counter[str]] = defaultdict(Counter)
        for device, _, resident in residents(old):
            presence[resident.model][fleet.domain_of[device]] += 1
        capacity = defaultdict[str, float](float, capacities(old))
        ledger = cls(fleet, floors(problem, old, new), old, capacity, presence)
        for device in sorted(fleet.pool_of):
            ledger.changes[device] = [*changes(device, old.get(device, ()), new.get(device, ()))]
            ledger.stages[device] = {each.number: each.first for each in ledger.changes[device]}
            ledger.look(device)
        return ledger

    def pool(self, device: str) -> Pool:
        """Return the pool of the device."""
        return self.fleet.pool_of[device]

    def layout(self, device: str, stages: Stages) -> Slices:
        """Return the slices of the device at those stages."""
        found = (each.content(stages[each.number]) for each in self.changes[device])
        return tuple(each for each in found if each is not None)

    def move(self, device: str, after: Stages) -> Move:
        """Return the move from the present stages to those of `after`; slices that it does not name stay as
        they are."""
        before, delta, domain = self.stages[device], Delta(), self.fleet.domain_of[device]
        after = {**before, **after}
        for change in self.changes[device]:
            for stage, sign in ((before[change.number], -1), (after[change.number], 1)):
                content = change.content(stage)
                for replica in content.replicas if content else ():
                    delta.change(replica.resident, domain, sign)
        return Move(device, dict(before), after, delta)

    def fits(self, device: str, before: Stages, after: Stages) -> bool:
        """Return whether there is room for both at once, and in the latter all that computes keeps its SLO.
        Stages of all slices of the device."""
        pool, slots = self.pool(device), self.old.get(device, ())
        peak: list[TransitionSlice] = []
        for change in self.changes[device]:
            peak += together(change.content(before[change.number]), change.content(after[change.number]))
        if not nothing_added(peak, slots) and crowding(pool, peak):
            return False
        return not strain(self.fleet.demand_of, pool, self.layout(device, after), slots)

    def lacks(self, delta: Delta, besides: Delta = NOTHING) -> dict[str, Shortfall]:
        """Return what would be missing after both, of the models that `delta` is about."""
        found: dict[str, Shortfall] = {}
        for model, rate in delta.rates.items():
            floor, least = self.floors.capacity.get(model, 0.0), self.floors.spread.get(model, 0)
            missing = floor - self.capacity[model] - rate - besides.rates.get(model, 0.0)
            missing = missing if floor and missing > NEAR * floor else 0.0
            apart = 0
            if least > 1 or not floor:  # what is carried is in one
                apart = max(0, least - len(self.domains(model, delta, besides)))
            if missing or apart:
                found[model] = Shortfall(missing, apart)
        return found

    def domains(self, model: str, delta: Delta, besides: Delta = NOTHING) -> set[str]:
        """Return in which failure domains the model would be after both deltas."""
        there = Counter(self.presence[model])
        for each in (delta, besides):
            for domain, count in each.counts.get(model, {}).items():
                there[domain] += count
        return {domain for domain, count in there.items() if count > 0}

    def carry_out(self, moves: Sequence[Move]) -> list[Group]:
        """Return the steps that do it; from now on it is done."""
        pairs: list[tuple[str, TransitionSlice | None, TransitionSlice | None]] = []
        for move in moves:
            for change in self.changes[move.device]:
                before = change.content(move.before[change.number])
                after = change.content(move.after[change.number])
                if before != after:
                    pairs.append((move.device, before, after))
            self.stages[move.device] = dict(move.after)
            for model, rate in move.delta.rates.items():
                self.capacity[model] += rate
                for domain, count in move.delta.counts[model].items():
                    self.presence[model][domain] += count
            self.look(move.device)
        return groups(pairs)

    def add(self, change: Change) -> None:
        """Add a slice that is in neither placement; it is not there yet."""
        self.changes[change.device].append(change)
        self.stages[change.device][change.number] = NEW

    def drop(self, change: Change) -> None:
        """Undo `add`."""
        self.changes[change.device].remove(change)
        del self.stages[change.device][change.number]

    def copy(self) -> "TransitionLedger":
        """Return the same, to go another way from here."""
        return TransitionLedger(
            self.fleet,
            self.floors,
            self.old,
            defaultdict(float, self.capacity),
            defaultdict(Counter, {each: count.copy() for each, count in self.presence.items()}),
            {device: each.copy() for device, each in self.changes.items()},
            {device: each.copy() for device, each in self.stages.items()},
            self.unbegun.copy(),
            self.unfinished.copy(),
            self.free.copy(),
        )

    def look(self, device: str) -> None:
        """Update the device's membership in the sets `unbegun`, `unfinished` and `free`."""
        stages, pool = self.stages[device], self.pool(device)
        waits = not all(each.begun for each in stages.values())
        (self.unbegun.add if waits else self.unbegun.discard)(device)
        late = any(each != NEW for each in stages.values())
        (self.unfinished.add if late else self.unfinished.discard)(device)
        roomy = _has_room(pool, self.layout(device, stages))
        (self.free.add if roomy else self.free.discard)(device)


def _has_room(pool: Pool, slices: Slices) -> bool:
    if isinstance(pool.division, Instances):
        geometry, profile = pool.division.geometry, pool.division.profile
        taken = sum(found.size for each in slices if (found := profile(each.share)))
        return taken < max((start + each.size for each in geometry for start in each.starts), default=0)
    amount = sum(each.share.amount for each in slices)
    left = not pool.division.slices_max or len(slices) < pool.division.slices_max
    return left and amount < pool.division.total * (1 - ROUNDING)
