"""What holds in every state of a transition, not only at its end. Pure.

- Each model keeps the capacity that both placements have, and lies in as many failure domains as both have
  and it asks for.
- What is loaded fits where it is, whether it computes already, still, or not at all.
- What is routed keeps its SLO and carries what it says beside all else that is routed on its device, or has
  no more beside it than in the old placement. What loads or drains is not counted: it computes for a moment,
  not in a row.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from serving.policy.placement.terms.check import cycle_us
from serving.policy.placement.terms.plan import ROUNDING, Placement, Slot, capacities, domains
from serving.policy.placement.terms.problem import Demand, Instances, PlacementProblem, Pool
from serving.policy.transition.state import Slices, State, TransitionSlice


@dataclass(frozen=True, slots=True)
class Floors:
    """By model: the rows a second that are carried, and the failure domains in which it is, at any moment."""

    capacity: Mapping[str, float]
    spread: Mapping[str, int]


def floors(problem: PlacementProblem, old: Placement, new: Placement) -> Floors:
    """Return the capacity and the spread over failure domains that both placements have."""
    before, after, demand_of = capacities(old), capacities(new), problem.demand_of
    here, there = domains(problem, old), domains(problem, new)
    return Floors(
        {model: min(rate, after[model]) for model, rate in sorted(before.items()) if model in after},
        {
            model: min(len(here[model]), len(there[model]), demand_of[model].domains_min)
            for model in sorted(here)
            if model in there and model in demand_of
        },
    )


def violations(
    problem: PlacementProblem, state: State, old: Placement, new: Placement, devices_in_flight: int = 0
) -> list[str]:
    """Return a sentence for each invariant that the state violates. `devices_in_flight`: how many devices may
    change at a time, 0 for any number. A fault that the old placement already had is not counted."""
    found: list[str] = []
    pool_of, demand_of = problem.pool_of, problem.demand_of
    for device, slices in sorted(state.devices.items()):
        pool, slots = pool_of[device], old.get(device, ())
        crowded = "" if nothing_added(slices, slots) else crowding(pool, slices)
        strained = strain(demand_of, pool, slices, slots)
        found += [f"{device}: {fault}" for fault in (crowded, strained) if fault]
    least, routed = floors(problem, old, new), state.routed
    carried, spread = capacities(routed), domains(problem, routed)
    for model, rate in least.capacity.items():
        if carried.get(model, 0.0) < rate * (1 - ROUNDING):
            found.append(f"{model}: {carried.get(model, 0.0):.6g} rows/s are carried, not {rate:.6g}")
    for model, count in least.spread.items():
        if len(spread.get(model, ())) < count:
            found.append(f"{model}: in {len(spread.get(model, ()))} failure domains, not {count}")
    changing = state.changing
    if devices_in_flight and len(changing) > devices_in_flight:
        found.append(f"{', '.join(changing)} are changed at once, {devices_in_flight} at most")
    return found


def crowding(pool: Pool, slices: Sequence[TransitionSlice]) -> str:
    """Return why what is loaded does not fit on a device of that pool; "" where it does."""
    if isinstance(pool.division, Instances):
        return _overlap(pool.division, slices)
    parts = pool.division
    total = sum(each.share.amount for each in slices)
    if total > parts.total * (1 + ROUNDING):
        return f"{parts.kind} come to {total:g} of {parts.total:g}"
    if parts.slices_max and len(slices) > parts.slices_max:
        return f"{len(slices)} slices, {parts.slices_max} at most"
    held = sum(each.memory_bytes for each in slices)
    if pool.memory_bytes and held > pool.memory_bytes:
        return f"memory {held} of {pool.memory_bytes} bytes"
    return ""


def _overlap(division: Instances, slices: Sequence[TransitionSlice]) -> str:
    placed = []
    for each in slices:
        profile = division.profile(each.share)
        if profile is None or each.start not in profile.starts:
            return f"no MIG instance {each.share.label} begins at memory slice {each.start}"
        if each.memory_bytes > profile.memory_gib * (1 << 30):
            return f"memory {each.memory_bytes} bytes of {profile.memory_gib:g} GiB in {each.share.label}"
        placed.append((each.start, profile))
    for (start, profile), (other, second) in combinations(placed, 2):
        if start < other + second.size and other < start + profile.size:
            return f"{profile.name} at {start} overlaps {second.name} at {other}"
    for _, profile in placed:
        if sum(each is profile for _, each in placed) > profile.instances_max:
            return f"more than {profile.instances_max} instances of {profile.name}"
    return ""


def strain(demand_of: Mapping[str, Demand], pool: Pool, slices: Slices, before: Sequence[Slot]) -> str:
    """Return which of what is routed on a device is too slow or carries too little; "" where none. `before`:
    the device's slices in the old placement, which the first numbers name."""
    isolated = isinstance(pool.division, Instances)
    routed = [(each.number, slot) for each in slices if (slot := each.routed).residents]
    for number, slot in routed:
        others = [] if isolated else [other for place, other in routed if place != number]
        if number < len(before) and _eased(before, number, slot, others, isolated):
            continue
        fault = _overload(demand_of, slot, others)
        if fault:
            return fault
    return ""


def _eased(before: Sequence[Slot], number: int, slot: Slot, others: Sequence[Slot], isolated: bool) -> bool:
    """Return whether a slice computes no more, beside no more, than it did."""
    was = before[number]
    if any(slot.residents.count(each) > was.residents.count(each) for each in slot.residents):
        return False
    beside = 0.0 if isolated else sum(each.pressure for each in before) - was.pressure
    return sum(each.pressure for each in others) <= beside * (1 + ROUNDING)


def _overload(demand_of: Mapping[str, Demand], slot: Slot, others: Sequence[Slot]) -> str:
    whole_us, each_us = cycle_us(slot, others)
    for resident, own_us in zip(slot.residents, each_us, strict=True):
        demand = demand_of.get(resident.model)
        if demand is None:
            continue  # nothing is promised of it any more
        bound_us = 2 * demand.slack * demand.slo_us
        if whole_us + own_us > bound_us * (1 + ROUNDING):
            return f"{resident.model}: {whole_us:.6g} us and then {own_us:.6g} us are over {bound_us:.6g} us"
        if resident.option.processes > 1 and len(slot.residents) > 1:
            return f"{resident.model}: {resident.option.processes} processes on a shared {slot.share}"
        carried = resident.option.processes * resident.rows * 1e6 / whole_us
        if resident.capacity > carried * (1 + ROUNDING):
            return f"{resident.model}: carries {carried:.6g} rows/s, not {resident.capacity:.6g}"
    return ""


def nothing_added(slices: Sequence[TransitionSlice], before: Sequence[Slot]) -> bool:
    """Return whether nothing is loaded that the old placement had not, whatever that is thought to hold
    now."""
    return all(
        each.number < len(before)
        and (each.share, each.start) == (before[each.number].share, before[each.number].start)
        and all(one.number < len(before[each.number].residents) for one in each.replicas)
        for each in slices
    )
