"""A draft held against what every plan is held against, before it is known which devices it is for."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from serving.policy.placement.terms.check import device_faults
from serving.policy.placement.terms.geometry import Geometry
from serving.policy.placement.terms.plan import ROUNDING, Draft, Slot
from serving.policy.placement.terms.problem import Demand, Instances, PlacementProblem


def carried(draft: Draft) -> dict[str, float]:
    """Rows a second by model."""
    found: dict[str, float] = defaultdict(float)
    for bundle in draft.bundles:
        for slot in bundle.slots:
            for resident in slot.residents:
                found[resident.model] += resident.capacity
    return dict(found)


def short(problem: PlacementProblem, draft: Draft) -> list[Demand]:
    """Whose rates are not carried."""
    there = carried(draft)
    return [each for each in problem.demands if there.get(each.model, 0.0) < each.rate * (1 - ROUNDING)]


def missing_and_cost(problem: PlacementProblem, draft: Draft) -> tuple[float, float]:
    """The parts of rates that are not carried, with the failure domains that models lack; and the cost."""
    pools = {pool.name: pool for pool in problem.pools}
    there = carried(draft)
    asked = [each for each in problem.demands if each.rate > 0]
    missing = sum(max(0.0, 1 - there.get(each.model, 0.0) / each.rate) for each in asked)
    spread = defaultdict(set)
    for bundle in draft.bundles:
        only = {device.domain for device in pools[bundle.pool].devices}
        for slot in bundle.slots:
            for resident in slot.residents:
                spread[resident.model].add(min(only) if len(only) == 1 else bundle.domain)
    missing += sum(
        max(0, each.domains_min - len(spread[each.model])) for each in asked if each.domains_min > 1
    )
    return missing, sum(pools[bundle.pool].price for bundle in draft.bundles)


def faults(problem: PlacementProblem, draft: Draft) -> list[str]:
    """What is wrong with it, MIG instances lying wherever they can; and more devices than there are."""
    pools = {pool.name: pool for pool in problem.pools}
    used = Counter(bundle.pool for bundle in draft.bundles)
    found = [f"{name}: {count} devices" for name, count in used.items() if count > len(pools[name].devices)]
    for bundle in draft.bundles:
        pool = pools[bundle.pool]
        ways = [bundle.slots]
        if isinstance(pool.division, Instances):
            ways = [*islice(_laid_out(pool.division.geometry, bundle.slots, 0), 1)]
        found += [fault for slots in ways for fault in device_faults(problem, pool, slots)]
        found += [] if ways else [f"{[str(slot.share) for slot in bundle.slots]} cannot lie on a device"]
    return found


def _laid_out(geometry: Geometry, slots: tuple[Slot, ...], taken: int) -> Iterator[tuple[Slot, ...]]:
    """Where they may lie beside the memory slices `taken` (bits), each wherever there is room."""
    if not slots:
        yield ()
        return
    profile = next(each for each in geometry if each.name == slots[0].share.label)
    for start in profile.starts:
        covered = sum(1 << place for place in range(start, start + profile.size))
        if not taken & covered:
            for rest in _laid_out(geometry, slots[1:], taken | covered):
                yield (replace(slots[0], start=start), *rest)
