"""Whether any order of steps leads from one placement to another: all are tried, on fleets of a few slices.

An edit of a device loads what is new beside all that is there, then changes the routes, then lets go. Edits
of two devices may share their instant. Slices stand in where they like; what both placements have stays. It
knows one replica on a slice, and sees everything as plain sets of slices.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush

from serving.policy.placement.terms.check import device_faults
from serving.policy.placement.terms.plan import PlacedReplica, Placement, Slot, capacities, domains
from serving.policy.placement.terms.problem import Instances, Parts, PlacementProblem, Pool

Content = tuple[int, ...]
"""Of a device: which of all slices that may be, ascending."""
Fleet = tuple[Content, ...]
POSITIONS_MAX = 20_000


@dataclass
class Orders:
    """Between two placements on a fleet of one pool."""

    problem: PlacementProblem
    old: Placement
    new: Placement
    together: bool
    slots: list[Slot] = field(default_factory=list)
    known: dict[tuple[int, Content], list[Content]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        (self.pool,) = self.problem.pools
        self.names = [device.name for device in self.pool.devices]
        self.slots = sorted(set(_possible(self.problem, self.pool, self.old, self.new)), key=repr)
        self.places = {slot: place for place, slot in enumerate(self.slots)}
        before, after = capacities(self.old), capacities(self.new)
        self.rates = {model: min(rate, after.get(model, 0.0)) for model, rate in before.items()}
        here, there = domains(self.problem, self.old), domains(self.problem, self.new)
        self.spread = {
            model: min(len(here[model]), len(there[model]), self.problem.demand_of[model].domains_min)
            for model in here
            if model in there
        }
        self.kept = [self._names(self._content(self.old, each)) & self._names(self._content(self.new, each))
                     for each in self.names]  # fmt: skip

    def lead(self) -> bool | None:
        """Whether one does; None where there are too many."""
        start, goal = (
            tuple(self._content(each, name) for name in self.names) for each in (self.old, self.new)
        )
        seen, heap = {start}, [(0, 0, start)]
        while heap:
            fleet = heappop(heap)[2]
            if fleet == goal:
                return True
            for following in self._following(fleet):
                if following not in seen and self._promised(following):
                    seen.add(following)
                    heappush(heap, (_apart(following, goal), len(seen), following))
            if len(seen) > POSITIONS_MAX:
                return None
        return False

    def _content(self, placement: Placement, device: str) -> Content:
        return tuple(sorted(self.places[each] for each in placement.get(device, ())))

    def _names(self, content: Content) -> Counter[tuple[object, ...]]:
        """What a replica keeps when it stays."""
        slots = [self.slots[each] for each in content]
        return Counter((slot.share, slot.start, slot.residents[0].model) for slot in slots)

    def _following(self, fleet: Fleet) -> Iterator[Fleet]:
        edits = [self._edits(place, content) for place, content in enumerate(fleet)]
        for place, contents in enumerate(edits):
            for content in contents:
                yield (*fleet[:place], content, *fleet[place + 1 :])
        for one in range(len(fleet) if self.together else 0):
            for other in range(one):
                for content in edits[one]:
                    for second in edits[other]:
                        if len(content) <= len(fleet[one]) and len(second) <= len(fleet[other]):
                            both = list(fleet)
                            both[one], both[other] = content, second
                            yield tuple(both)

    def _edits(self, place: int, content: Content) -> list[Content]:
        if (place, content) not in self.known:
            found = {self._content(self.new, self.names[place])}
            fewer = [content, *(content[:each] + content[each + 1 :] for each in range(len(content)))]
            fewest = [each[:gone] + each[gone + 1 :] for each in fewer[1:] for gone in range(len(each))]
            found |= {*fewer}
            for some in (*fewer, *fewest):
                found |= {tuple(sorted((*some, each))) for each in range(len(self.slots))}
            found.discard(content)
            self.known[place, content] = [each for each in sorted(found) if self._may(place, content, each)]
        return self.known[place, content]

    def _may(self, place: int, before: Content, after: Content) -> bool:
        slots = [self.slots[each] for each in after]
        stays = not self.kept[place] - self._names(after)
        return (
            stays
            and not [*device_faults(self.problem, self.pool, slots)]
            and self._room(place, before, after)
        )

    def _room(self, place: int, before: Content, after: Content) -> bool:
        """Whether both fit at once; a slice of the old placement may hold what the new one has there."""
        name = self.names[place]
        old, new = self._content(self.old, name), self._content(self.new, name)
        both = Counter(before) & Counter(after)
        held = [[self.slots[each]] for each in both.elements()]
        leaving = [[self.slots[each]] for each in (Counter(before) - both).elements()]
        shared = [each for each in leaving if self.places[each[0]] in old]
        for each in (Counter(after) - both).elements():
            slot = self.slots[each]
            at = next((one for one in shared if _alike(one[0], slot)), None) if each in new else None
            if at is None:
                held.append([slot])
                continue
            shared.remove(at)
            if at[0].residents[0].model != slot.residents[0].model:  # else the same replica, sized anew
                at.append(slot)
        return _fits(self.pool, held + leaving)

    def _promised(self, fleet: Fleet) -> bool:
        placement = {
            name: tuple(self.slots[each] for each in content)
            for name, content in zip(self.names, fleet, strict=True)
        }
        carried, spread = capacities(placement), domains(self.problem, placement)
        kept = all(carried.get(model, 0.0) >= rate * (1 - 1e-6) for model, rate in self.rates.items())
        return kept and all(len(spread.get(model, ())) >= count for model, count in self.spread.items())


def _possible(problem: PlacementProblem, pool: Pool, *placements: Placement) -> Iterator[Slot]:
    """The slices of the placements and the best of each model and share, wherever they may begin."""
    slots = [slot for placement in placements for each in placement.values() for slot in each]
    for demand in problem.demands:
        for offer in demand.offers:
            resident = PlacedReplica(demand.model, offer.option, offer.rows, offer.throughput)
            slots.append(Slot(offer.option.share, (resident,)))
    for slot in slots:
        if isinstance(pool.division, Parts):
            yield slot
        elif (profile := pool.division.profile(slot.share)) is not None:
            yield from (replace(slot, start=start) for start in profile.starts)


def _alike(one: Slot, other: Slot) -> bool:
    return (one.share, one.start) == (other.share, other.start)


def _fits(pool: Pool, held: list[list[Slot]]) -> bool:
    """Slices, each with all that is loaded there."""
    if isinstance(pool.division, Instances):
        taken: list[int] = []
        for slots in held:
            profile = pool.division.profile(slots[0].share)
            assert profile is not None
            if sum(each.memory_bytes for each in slots) > profile.memory_gib * 2**30:
                return False
            taken += range(slots[0].start, slots[0].start + profile.size)
        return len(taken) == len(set(taken))
    memory = sum(each.memory_bytes for slots in held for each in slots)
    amount = sum(slots[0].share.amount for slots in held)
    return memory <= pool.memory_bytes and amount <= pool.division.total * (1 + 1e-6)


def _apart(one: Fleet, other: Fleet) -> int:
    pairs = [(Counter(a), Counter(b)) for a, b in zip(one, other, strict=True)]
    return sum((a - b).total() + (b - a).total() for a, b in pairs)
