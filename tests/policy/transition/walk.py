"""A transition carried out step by step, and what is promised of every state, said another way than in
`invariants.py`: the check of placements does most of it."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace

from serving.policy.placement.terms.check import device_faults
from serving.policy.placement.terms.plan import PlacedReplica, Placement, Slot
from serving.policy.placement.terms.problem import PlacementProblem
from serving.policy.transition import State, Transition
from serving.policy.transition.state import TransitionSlice

Contents = dict[str, Counter[tuple[object, ...]]]


def states(start: State, transition: Transition) -> list[State]:
    """The first, and the one after each step."""
    found = [start]
    for step in transition.steps:
        found.append(found[-1].apply(step))
    return found


def contents(placement: Placement) -> Contents:
    """What matters of it: on a device slices have no order, nor replicas on a slice."""
    return {
        device: Counter((each.share, each.start, *sorted(map(_key, each.residents))) for each in slots)
        for device, slots in placement.items()
        if slots
    }


def is_at_rest(state: State, placement: Placement) -> bool:
    """Whether that is there, routed, and nothing else."""
    loaded = {
        device: tuple(Slot(each.share, _residents(each), each.start) for each in slices)
        for device, slices in state.devices.items()
    }
    return contents(loaded) == contents(placement) == contents(state.routed)


def broken(problem: PlacementProblem, state: State, old: Placement, new: Placement) -> Iterator[str]:
    """What is not as promised."""
    lenient = replace(problem, demands=tuple(replace(each, slo_us=1e15) for each in problem.demands))
    for device, slices in state.devices.items():
        pool = problem.pool_of[device]
        held = [Slot(each.share, _idle(each), each.start) for each in slices]
        yield from (
            fault for fault in device_faults(lenient, pool, held) if not fault.startswith("nothing on")
        )
        yield from device_faults(problem, pool, state.routed.get(device, ()))
    carried, spread = _carried(problem, state.routed)
    before, there = _carried(problem, old)
    after, then = _carried(problem, new)
    for demand in problem.demands:
        model = demand.model
        if carried[model] < min(before[model], after[model]) * (1 - 1e-6):
            yield f"{model}: {carried[model]} rows/s"
        if len(spread[model]) < min(len(there[model]), len(then[model]), demand.domains_min):
            yield f"{model}: {spread[model]}"


def _carried(problem: PlacementProblem, placement: Placement) -> tuple[dict[str, float], dict[str, set[str]]]:
    rates: dict[str, float] = defaultdict(float)
    domains: dict[str, set[str]] = defaultdict(set)
    for device, slots in placement.items():
        for slot in slots:
            for each in slot.residents:
                rates[each.model] += each.capacity
                domains[each.model].add(problem.domain_of[device])
    return rates, domains


def _key(each: PlacedReplica) -> tuple[object, ...]:
    return each.model, each.option.variant, each.option.processes, each.rows, each.capacity


def _residents(each: TransitionSlice) -> tuple[PlacedReplica, ...]:
    return tuple(one.resident for one in each.replicas)


def _idle(each: TransitionSlice) -> tuple[PlacedReplica, ...]:
    """What is loaded, as though nothing were asked of it: only its memory counts."""
    return tuple(
        replace(one, rows=1, capacity=0.0, option=replace(one.option, processes=1))
        for one in _residents(each)
    )
