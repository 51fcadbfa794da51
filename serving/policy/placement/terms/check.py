"""The rules that every placement is checked against, whichever solver made it.

A slice computes its residents' batches in turns, one batch of each resident in a cycle. A request that just
missed its batch waits for a whole cycle, then for its own batch. Both together must fit within twice the
slack of the SLO. For a resident alone on its slice, that is Nexus's two batches (SOSP 2019, section 6.1). A
resident carries its rows once a cycle.

If several replicas answer a model, a batch may take more (`pooling.py`).
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations

from serving.policy.placement.terms.plan import ROUNDING, PlacedReplica, Placement, Slot, domains, short
from serving.policy.placement.terms.pooling import pooled
from serving.policy.placement.terms.problem import Instances, Parts, PlacementProblem, Pool


def slowdown(resident: PlacedReplica, others: Iterable[Slot]) -> float:
    """Return how many times as long the resident's batches take while `others` compute; at least 1.

    `others` are the other slices of its device.
    """
    return 1 + resident.option.sensitivity * sum(slot.pressure for slot in others)


def cycle_us(slot: Slot, others: Sequence[Slot]) -> tuple[float, tuple[float, ...]]:
    """Return (the cycle, each resident's batch in it) in us, while the `others` of the device compute."""
    each = tuple(
        resident.option.latency_us(resident.rows) * slowdown(resident, others) for resident in slot.residents
    )
    return sum(each), each


def faults(problem: PlacementProblem, placement: Placement) -> list[str]:
    """Return sentences on what is wrong with the placement.

    The list is empty if every slice is legal, and every replica keeps its model's SLO and carries its
    `capacity`. `shortfalls` checks how much of the demands is carried.
    """
    problem = pooled(problem, placement)
    found: list[str] = []
    for device, slots in placement.items():
        pool = problem.pool_of.get(device)
        if pool is None:
            found.append(f"there is no device {device}")
            continue
        found += [f"{device}: {fault}" for fault in device_faults(problem, pool, slots)]
    return found


def shortfalls(problem: PlacementProblem, placement: Placement) -> list[str]:
    """Return what the demands ask for and the placement lacks, in sentences."""
    found = [
        f"{model}: {missing:.6g} of {problem.demand_of[model].rate:.6g} rows/s are not carried"
        for model, missing in short(problem, placement).items()
    ]
    spread = domains(problem, placement)
    for each in problem.demands:
        there = len(spread.get(each.model, ()))
        if there < each.domains_min and each.rate > 0:
            found.append(f"{each.model}: in {there} failure domains, not {each.domains_min}")
    return found


def device_faults(problem: PlacementProblem, pool: Pool, slots: Sequence[Slot]) -> Iterator[str]:
    """Yield what is wrong with the slices of one device of that pool."""
    if isinstance(pool.division, Parts):
        yield from _parts_faults(pool, pool.division, slots)
    else:
        yield from _instance_faults(pool.division, slots)
    for place, slot in enumerate(slots):
        others = [*slots[:place], *slots[place + 1 :]] if isinstance(pool.division, Parts) else []
        yield from _slot_faults(problem, pool, slot, others)


def _parts_faults(pool: Pool, parts: Parts, slots: Sequence[Slot]) -> Iterator[str]:
    total = sum(slot.share.amount for slot in slots)
    if total > parts.total * (1 + ROUNDING):
        yield f"{parts.kind} come to {total:g} of {parts.total:g}"
    if parts.slices_max and len(slots) > parts.slices_max:
        yield f"{len(slots)} slices, {parts.slices_max} at most"
    held = sum(slot.memory_bytes for slot in slots)
    if pool.memory_bytes and held > pool.memory_bytes:
        yield f"memory {held} of {pool.memory_bytes} bytes"


def _instance_faults(division: Instances, slots: Sequence[Slot]) -> Iterator[str]:
    profiles = [(slot, division.profile(slot.share)) for slot in slots]
    for slot, profile in profiles:
        if profile is None:
            yield f"no MIG profile {slot.share.label}"
        elif slot.start not in profile.starts:
            yield f"{profile.name} cannot begin at memory slice {slot.start}"
        elif slot.memory_bytes > profile.memory_gib * (1 << 30):
            held = f"memory {slot.memory_bytes} bytes of {profile.memory_gib:g} GiB"
            yield f"{profile.name} at {slot.start}: {held}"
    placed = [(slot, profile) for slot, profile in profiles if profile is not None]
    for (one, first), (other, second) in combinations(placed, 2):
        if one.start < other.start + second.size and other.start < one.start + first.size:
            yield f"{first.name} at {one.start} overlaps {second.name} at {other.start}"
    for profile in {profile for _, profile in placed}:
        if sum(each is profile for _, each in placed) > profile.instances_max:
            yield f"more than {profile.instances_max} instances of {profile.name}"


def _slot_faults(problem: PlacementProblem, pool: Pool, slot: Slot, others: Sequence[Slot]) -> Iterator[str]:
    if not slot.residents:
        yield f"nothing on {slot.share}"
    for resident in slot.residents:
        if resident.model not in problem.demand_of:
            yield f"nothing is asked of a model {resident.model}"
            return
        if resident.option.share != slot.share or resident.option.kind != pool.kind:
            meant = f"{resident.option.share} of {resident.option.kind}"
            yield f"{resident.model}: an option for {meant} on {slot.share}"
        if resident.option.processes > 1 and len(slot.residents) > 1:
            yield f"{resident.model}: {resident.option.processes} processes on a shared {slot.share}"
    whole_us, each_us = cycle_us(slot, others)
    for resident, own_us in zip(slot.residents, each_us, strict=True):
        demand = problem.demand_of[resident.model]
        bound_us = 2 * demand.slack * demand.slo_us
        if whole_us + own_us > bound_us * (1 + ROUNDING):
            yield f"{resident.model}: {whole_us:.6g} us and then {own_us:.6g} us are over {bound_us:.6g} us"
        carried = resident.option.processes * resident.rows * 1e6 / whole_us
        if resident.capacity > carried * (1 + ROUNDING):
            yield f"{resident.model}: carries {carried:.6g} rows/s, not {resident.capacity:.6g}"
