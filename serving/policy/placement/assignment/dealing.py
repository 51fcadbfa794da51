"""Dealing: what need not stay goes to free spots, each model over as many failure domains as can be.

Models that have to be in several domains come first. The domains take turns: each model goes to the next one
that lacks it. If something that stays is in the way, two slices change places (`swapping.py`).
"""

from collections import Counter, defaultdict, deque
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from serving.policy.placement.assignment.lots import Slots, Spot, models

PROBES = 32
"""The domains that are searched for one without the model, if it does not ask for a number of domains."""

Spread = dict[str, Counter[str]]
"""By model, then by failure domain: in how many places the model is."""


@dataclass(slots=True)
class Unit:
    """Slices in their place, or () where the place is free.

    Units of one `kind` could be in each other's place.
    """

    kind: Hashable
    spot: Spot
    slots: Slots


def spread_of(units: Iterable[Unit]) -> Spread:
    """Return where each model is."""
    found: Spread = defaultdict(Counter)
    for unit in units:
        _count(unit, found)
    return found


class Room:
    """The free spots of one kind.

    The domains take turns, so that slices that are dealt one after the other are spread.
    """

    def __init__(self, spots: Sequence[Spot]) -> None:
        self._by_domain: dict[str, list[Spot]] = defaultdict(list)
        for spot in reversed(spots):
            self._by_domain[spot.domain].append(spot)
        self._free = {domain: len(stack) for domain, stack in self._by_domain.items()}
        self._turns = deque(reversed(self._free))
        self._taken: set[Spot] = set()
        self._by_device: dict[str, list[Spot]] = {}

    def rest(self) -> list[Spot]:
        """Return the spots that are still free."""
        return [spot for stack in self._by_domain.values() for spot in stack if spot not in self._taken]

    def turn(self, present: Sequence[Mapping[str, int]], probes: int | None = None) -> tuple[str, int]:
        """Return (domain, how many of `present` have it) for the next domain that the fewest have.

        Only the next `probes` domains with a free spot count; None means all. Raise IndexError if no spot is
        free.
        """
        passed: list[str] = []
        fewest, best = len(present) + 1, ""
        while fewest and self._turns and (probes is None or len(passed) < probes):
            domain = self._turns.popleft()
            if self._free[domain]:
                passed.append(domain)
                there = sum([domain in each for each in present])
                if there < fewest:
                    fewest, best = there, domain
        if not passed:
            raise IndexError("no spot is free")
        self._turns.extendleft(domain for domain in reversed(passed) if domain != best)
        self._turns.append(best)
        return best, fewest

    def take(self, domain: str) -> Spot:
        """Take a free spot of a domain that has one."""
        stack = self._by_domain[domain]
        while stack[-1] in self._taken:
            stack.pop()
        return self._use(stack.pop())

    def take_on(self, devices: Iterable[str], present: Sequence[Mapping[str, int]] = ()) -> Spot | None:
        """Take a free spot on one of the devices, in a domain that none of `present` has.

        Return None if there is none.
        """
        if not self._by_device:  # built late: most rooms never need it
            for spot in self.rest():
                self._by_device.setdefault(spot.device, []).append(spot)
        for device in devices:
            for spot in self._by_device.get(device, ()):
                if spot not in self._taken and not any(spot.domain in each for each in present):
                    return self._use(spot)
        return None

    def _use(self, spot: Spot) -> Spot:
        self._taken.add(spot)
        self._free[spot.domain] -= 1
        return spot


def deal(
    rooms: Mapping[Hashable, Room],
    loose: Mapping[Hashable, Sequence[Sequence[Slots]]],
    spread: Spread,
    least: Mapping[str, int],
    holders: Mapping[str, Sequence[str]],
) -> list[Unit]:
    """Deal each of `loose` to a spot in the room of its kind, and return the units.

    `loose`: by kind, with equal slots in one list. A room has at least as many spots. `spread` is kept up to
    date. `least`: in how many domains a model has to be. `holders`: the devices that have it loaded.
    """
    units: list[Unit] = []
    later: list[tuple[Hashable, list[Slots]]] = []
    for kind, many in loose.items():
        for equal in many:
            left = list(equal)
            while left and (short := _short(left[0], spread, least)):
                domain, there = rooms[kind].turn(short)
                if there == len(short):
                    break
                units.append(Unit(kind, rooms[kind].take(domain), left.pop()))
                _count(units[-1], spread)
            later.append((kind, left))
    for kind, left in later:
        if left:
            units += _deal_on(kind, left, rooms[kind], spread, holders)
    return units


def _short(slots: Slots, spread: Spread, least: Mapping[str, int]) -> list[Counter[str]]:
    """Return where each of the slots' models is that is in too few domains."""
    named = models(slots) if least else ()
    return [spread[model] for model in named if len(spread[model]) < least.get(model, 0)]


def _count(unit: Unit, spread: Spread) -> None:
    for model in models(unit.slots):
        spread[model][unit.spot.domain] += 1


def _deal_on(
    kind: Hashable, equal: Sequence[Slots], room: Room, spread: Spread, holders: Mapping[str, Sequence[str]]
) -> Iterator[Unit]:
    """Deal equal slots to domains that lack their models, if there are such.

    In each case, devices that have one of the models loaded come first.
    """
    named = models(equal[0])
    present = [spread[model] for model in named]
    loaded = [device for model in named for device in holders.get(model, ())]
    for slots in equal:
        spot = room.take_on(loaded, present) if loaded else None
        if spot is None:
            domain, there = room.turn(present, PROBES)
            spot = (room.take_on(loaded) if there and loaded else None) or room.take(domain)
        for each in present:
            each[spot.domain] += 1
        yield Unit(kind, spot, slots)
