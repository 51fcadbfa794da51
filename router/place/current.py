"""What a settings file places today: its slices and the models on them, as a placement."""

from dataclasses import replace

from router.operations.applied import in_force, standing
from router.place.fleet import own_device
from router.settings import Settings
from router.settings.slices import usable_cores
from serving.policy.placement.check import slowdown
from serving.policy.placement.plan import PlacedReplica, Placement, Slot
from serving.policy.placement.problem import Demand, Option, PlacementProblem
from serving.specs import SliceSpec


def current(settings: Settings, problem: PlacementProblem) -> tuple[Placement, list[str]]:
    """Return what a gateway with these settings has in place: as `placed`, with what was applied to them."""
    found, said = standing(settings)
    placement, notes = placed(settings if found is None else in_force(settings, found), problem)
    return placement, [*notes, *([said] if said else [])]


def placed(settings: Settings, problem: PlacementProblem) -> tuple[Placement, list[str]]:
    """(the placement that `slices:` and `models:` describe, sentences on what of it is not in it).

    It is of this machine's CPU, and empty where the problem's devices are others. A slice has the share of
    its threads. Its residents are those models of the problem that list it and were measured on that share,
    each in the largest batch with which all of them keep their SLOs in turns, or in the smallest.
    """
    device = own_device(problem, len(usable_cores()))
    if device is None:
        return {}, ["what is placed today is not known: the devices are not this machine's CPU"]
    found, unknown = _found(settings, problem, device)
    slots = [_slot(each, here) for each, here in found]
    filled = tuple(
        _filled(slot, here, [*slots[:place], *slots[place + 1 :]])
        for place, (slot, (_, here)) in enumerate(zip(slots, found, strict=True))
    )
    notes = [f"what is placed today is taken to be on {device}"] if len(problem.pool_of) > 1 else []
    if unknown:
        notes.append(f"left out of what is placed today, as never measured: {', '.join(unknown)}")
    return ({device: filled} if filled else {}), notes


def placed_slices(settings: Settings, problem: PlacementProblem) -> tuple[SliceSpec, ...]:
    """Return the slices of the settings that `placed` has, in its order."""
    device = own_device(problem, len(usable_cores()))
    return tuple(each for each, _ in _found(settings, problem, device)[0]) if device else ()


_Here = list[tuple[Demand, Option]]
"""The models of a slice, and how they run there."""


def _found(
    settings: Settings, problem: PlacementProblem, device: str
) -> tuple[list[tuple[SliceSpec, _Here]], list[str]]:
    """(the slices on which there is anybody, who was never measured where)."""
    kind = problem.pool_of[device].kind
    found: list[tuple[SliceSpec, _Here]] = []
    unknown: list[str] = []
    for each in settings.slices:
        here: _Here = []
        for model in settings.models:
            demand = problem.demand_of.get(model.name)
            if demand is None or each.name not in model.slices:
                continue
            option = _option(demand, kind, each, model.answering_variant)
            if option is None:
                unknown.append(f"{model.name} on {each.share} ({each.name})")
            else:
                here.append((demand, option))
        if here:
            found.append((each, here))
    return found, unknown


def _option(demand: Demand, kind: str, place: SliceSpec, variant: str) -> Option | None:
    """As its worker runs it: one batch at a time, or as many as were measured at least."""
    found = [
        each
        for each in demand.options
        if (each.kind, each.share, each.variant) == (kind, place.share, variant)
    ]
    return min(found, key=lambda each: each.streams, default=None)


def _slot(place: SliceSpec, here: _Here) -> Slot:
    return Slot(place.share, tuple(PlacedReplica(demand.model, option, 1, 0.0) for demand, option in here))


def _filled(slot: Slot, here: _Here, others: list[Slot]) -> Slot:
    """With the batches that n residents may run in turns: a cycle and one batch more are n + 1 of them, so
    each may take an (n + 1)-th of what the tightest SLO leaves for both."""
    budget_us = min(2 * demand.slack * demand.slo_us for demand, _ in here) / (len(here) + 1)
    chosen: list[tuple[PlacedReplica, float]] = []
    for resident in slot.residents:
        factor = slowdown(resident, others)
        offer = resident.option.offer(budget_us, factor)
        rows = offer.rows if offer else resident.option.curve[0][0]
        us = resident.option.latency_us(rows) * factor
        chosen.append((replace(resident, rows=rows), us))
    cycle_us = sum(us for _, us in chosen)
    return replace(
        slot,
        residents=tuple(
            replace(each, capacity=each.option.streams * each.rows * 1e6 / cycle_us) for each, _ in chosen
        ),
    )
