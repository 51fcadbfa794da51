"""Bundling: from numbers of replicas and devices to the slices of each device.

It keeps no more replicas than are needed.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from serving.policy.placement.formulation.division import Division
from serving.policy.placement.formulation.offers import size
from serving.policy.placement.terms.plan import ROUNDING, Bundle, PlacedReplica, Slot
from serving.policy.placement.terms.problem import Demand, PlacementProblem


def deal(
    division: Division, devices: Sequence[int], slots: Iterable[Slot], domain: str | None = None
) -> list[Bundle]:
    """Deal the slices to MIG devices, and return these as bundles.

    `devices`: how many devices there are, by way of the division. Slices that find no room are left out, as
    are devices that stay empty.
    """
    open_to: dict[Hashable, deque[int]] = defaultdict(deque)
    count = 0
    for gives, number in zip(division.gives, devices, strict=True):
        for device in range(count, count + number):
            for each, place in division.sizes.items():
                open_to[each].extend([device] * int(gives[place]))
        count += number
    dealt: list[list[Slot]] = [[] for _ in range(count)]
    for slot in slots:
        there = open_to[size(division.pool, slot.share)]
        if there:
            dealt[there.popleft()].append(slot)
    return [Bundle(division.pool.name, tuple(each), domain) for each in dealt if each]


def cost(problem: PlacementProblem, bundles: Iterable[Bundle]) -> float:
    """Return what the devices of the bundles cost, for an hour."""
    prices = {pool.name: pool.price for pool in problem.pools}
    return sum(prices[bundle.pool] for bundle in bundles)


def carries(problem: PlacementProblem, bundles: Iterable[Bundle]) -> bool:
    """Return whether the bundles carry all rates."""
    found: dict[str, float] = defaultdict(float)
    for bundle in bundles:
        for slot in bundle.slots:
            for resident in slot.residents:
                found[resident.model] += resident.capacity
    return all(found[each.model] >= each.rate * (1 - ROUNDING) for each in problem.demands)


@dataclass(frozen=True, slots=True)
class _Place:
    """The place of a replica: its slice is number `at` of the bundle number `bundle`.

    `domain`: what fails with it.
    """

    bundle: int
    at: int
    domain: Hashable
    part: float
    resident: PlacedReplica


def needed(problem: PlacementProblem, bundles: Sequence[Bundle]) -> tuple[Bundle, ...]:
    """Return the bundles without the replicas that their models do not need to carry their rates.

    Each model keeps as many replicas, in as many failure domains, as it should have. Replicas on large slices
    go first. A bundle without a domain counts as a domain of its own.
    """
    there: dict[str, list[_Place]] = defaultdict(list)
    for place, bundle in enumerate(bundles):
        domain = place if bundle.domain is None else bundle.domain
        for at, slot in enumerate(bundle.slots):
            part = slot.share.amount / max(len(slot.residents), 1)
            for resident in slot.residents:
                there[resident.model].append(_Place(place, at, domain, part, resident))
    ended = {
        (each.bundle, each.at, model)
        for model, places in there.items()
        for each in _needless(problem.demand_of[model], places)
    }
    return tuple(_without(bundles, ended)) if ended else tuple(bundles)


def _needless(demand: Demand, places: Sequence[_Place]) -> Iterator[_Place]:
    spare = sum(each.resident.capacity for each in places) - demand.rate * (1 - ROUNDING / 2)
    if all(each.resident.capacity > spare for each in places):
        return
    domains = Counter(each.domain for each in places)
    left = len(places)
    for each in sorted(places, key=lambda each: -each.part):
        last = domains[each.domain] == 1
        spread = left <= demand.domains_min or (last and len(domains) <= demand.domains_min)
        if each.resident.capacity <= spare and not spread:
            spare -= each.resident.capacity
            left -= 1
            domains[each.domain] -= 1
            if last:
                del domains[each.domain]
            yield each


def _without(bundles: Sequence[Bundle], ended: set[tuple[int, int, str]]) -> Iterator[Bundle]:
    for place, bundle in enumerate(bundles):
        slots = []
        for at, slot in enumerate(bundle.slots):
            kept = tuple(each for each in slot.residents if (place, at, each.model) not in ended)
            if kept:
                slots.append(replace(slot, residents=kept))
        if slots:
            yield replace(bundle, slots=tuple(slots))
