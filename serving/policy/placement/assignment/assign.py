"""The assignment of a draft to named devices, with the fewest replicas started.

First, each pool is assigned by itself. It keeps what can stay (`assignment/keeping.py`,
`assignment/matching.py`), then the rest is dealt (`assignment/dealing.py`). The result cannot be better if
two things hold. It starts no more than has to be started in any case, and every model is in as many failure
domains as it should be.

Otherwise a small fleet is assigned once more, exactly (`assignment/program.py`).
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence

from serving.policy.placement.assignment.dealing import Room, Unit, deal, spread_of
from serving.policy.placement.assignment.keeping import keep
from serving.policy.placement.assignment.lots import Lot, Slots, Spot, lots, spread_least
from serving.policy.placement.assignment.matching import match
from serving.policy.placement.assignment.program import name
from serving.policy.placement.assignment.swapping import repair
from serving.policy.placement.terms.moves import replica, slots_us, start_us, stays_us
from serving.policy.placement.terms.plan import Draft, Placement, Slot, residents
from serving.policy.placement.terms.problem import Instances, PlacementProblem


def assign(problem: PlacementProblem, draft: Draft, current: Placement) -> Placement:
    """Return the draft's slots on devices of its pools, MIG instances with their starts.

    The devices are in the problem's order. The result lacks the fewest failure domains
    (`Demand.domains_min`). Among such results, it has the least time until the started replicas can be
    counted on. On small fleets this is exact; on large fleets it is the best that was found.

    Raises ValueError if the problem's devices cannot hold the draft.
    """
    made = lots(problem, draft)
    least = spread_least(problem, made)
    holders = _holders(current)
    units = _settle(made, current, least, holders)
    found = _placement(problem, units)
    lacks = _lacks(units, least)
    if not current and not lacks:
        return found
    started_us = _started_us(current, found)
    if not lacks and started_us == _unavoidable_us(problem, made, current):
        return found
    named = name(made, current, least, holders)
    if named is None:
        return found
    exact = _placement(problem, named)
    better = (_lacks(named, least), _started_us(current, exact)) < (lacks, started_us)
    return exact if better else found


def _holders(current: Placement) -> dict[str, list[str]]:
    """Return the devices that have each model loaded, by model."""
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for device, _, resident in residents(current):
        found[resident.model][device] = None
    return {model: list(devices) for model, devices in found.items()}


def _settle(
    made: Sequence[Lot],
    current: Placement,
    least: Mapping[str, int],
    holders: Mapping[str, Sequence[str]],
) -> list[Unit]:
    """Return every slot of the lots in its place, one lot after the other."""
    units: list[Unit] = []
    rooms: dict[Hashable, Room] = {}
    loose: dict[Hashable, list[list[Slots]]] = {}
    used: set[str] = set()
    for place, lot in enumerate(made):
        free = [device for device in lot.pool.devices if lot.admits(device) and device.name not in used]
        kept = (keep if isinstance(lot.pool.division, Instances) else match)(lot, free, current)
        units += [Unit((place, label), spot, slots) for label, spot, slots in kept.fixed]
        rooms |= {(place, label): Room(spots) for label, spots in kept.vacant.items()}
        loose |= {(place, label): slots for label, slots in kept.loose.items()}
        used |= {spot.device for _, spot, _ in kept.fixed}
        used |= {spot.device for spots in kept.vacant.values() for spot in spots}
    spread = spread_of(units)
    units += deal(rooms, loose, spread, least, holders)
    if any(len(spread[model]) < count for model, count in least.items()):
        empty = [Unit(kind, spot, ()) for kind, room in rooms.items() for spot in room.rest()]
        repair([*units, *empty], spread, least, lambda spot, slots: _stays_us(current, spot, slots))
        units += [unit for unit in empty if unit.slots]
    return [unit for unit in units if unit.slots]


def _at(spot: Spot, slots: Slots) -> Slots:
    """Return the slots as they are at that spot."""
    return slots if spot.start < 0 else tuple(Slot(each.share, each.residents, spot.start) for each in slots)


def _stays_us(current: Placement, spot: Spot, slots: Slots) -> int:
    return stays_us(current.get(spot.device, ()), _at(spot, slots))


def _placement(problem: PlacementProblem, units: Iterable[Unit]) -> Placement:
    there: dict[str, list[Slot]] = defaultdict(list)
    for unit in units:
        there[unit.spot.device] += _at(unit.spot, unit.slots)
    return {
        device: tuple(sorted(there[device], key=lambda slot: slot.start))
        for device in problem.pool_of
        if device in there
    }


def _lacks(units: Iterable[Unit], least: Mapping[str, int]) -> int:
    """Return how many failure domains the models are short of, all together."""
    spread = spread_of(units) if least else {}
    return sum(max(0, count - len(spread.get(model, ()))) for model, count in least.items())


def _started_us(current: Placement, placement: Placement) -> int:
    stay = sum(stays_us(current[device], slots) for device, slots in placement.items() if device in current)
    return sum(map(slots_us, placement.values())) - stay


def _unavoidable_us(problem: PlacementProblem, made: Iterable[Lot], current: Placement) -> int:
    """Return the starting time that no assignment can avoid, in us.

    A pool has to start the replicas that the draft has more of than the pool has now.
    """
    there: Counter[Hashable] = Counter()
    pool_of = problem.pool_of
    for device, slot, resident in residents(current):
        if device in pool_of:
            there[pool_of[device].name, slot.share, replica(resident)] += 1
    wanted: Counter[Hashable] = Counter()
    least_us: dict[Hashable, int] = {}
    for lot in made:
        for bundle in lot.bundles:
            for slot in bundle.slots:
                for resident in slot.residents:
                    key = lot.pool.name, slot.share, replica(resident)
                    wanted[key] += 1
                    us = start_us(resident.option)
                    least_us[key] = min(us, least_us.get(key, us))
    return sum(count * least_us[key] for key, count in (wanted - there).items())
