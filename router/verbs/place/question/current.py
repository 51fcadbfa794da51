"""What a settings file places today: its slices and the models on them, as a placement."""

from collections.abc import Mapping
from dataclasses import replace

from router.management.operations.applied import in_force, standing
from router.settings import Settings
from router.settings.machine.slices import usable_cores
from router.verbs.place.question.fleet import hosted
from serving.policy.placement.terms.check import slowdown
from serving.policy.placement.terms.geometry import place
from serving.policy.placement.terms.plan import PlacedReplica, Placement, Slot
from serving.policy.placement.terms.problem import Demand, Instances, Option, PlacementProblem
from serving.values.slice_specs import SliceSpec


def current(settings: Settings, problem: PlacementProblem) -> tuple[Placement, list[str]]:
    """Return the placement of a gateway with these settings, as `placed` does, with the placement applied to
    them."""
    found, said = standing(settings)
    placement, notes = placed(settings if found is None else in_force(settings, found), problem)
    return placement, [*notes, *([said] if said else [])]


def placed(settings: Settings, problem: PlacementProblem) -> tuple[Placement, list[str]]:
    """Return the placement that `slices:` and `models:` describe, and sentences on what it leaves out.

    The devices are this machine's CPU and GPUs, and rehearsed devices. If the problem has others, the
    placement is empty. A slice of cores has the share of its threads. Its residents are the problem's models
    that list it and were measured on that share. Each has the largest batch with which all of them keep their
    SLOs in turns, or the smallest.
    """
    hosts = hosted(problem, settings.devices, len(usable_cores()))
    if not hosts:
        return {}, ["what is placed today is not known: the devices are not this machine's"]
    found, unknown = _found(settings, problem, hosts)
    placement = {device: _filled_slots(problem, device, here) for device, here in found.items() if here}
    notes = []
    if len(problem.pool_of) > len(hosts):
        notes.append(f"what is placed today is taken to be on {', '.join(hosts)}")
    if unknown:
        notes.append(f"left out of what is placed today, as never measured: {', '.join(unknown)}")
    return placement, notes


def placed_slices(settings: Settings, problem: PlacementProblem) -> Mapping[str, tuple[SliceSpec, ...]]:
    """Return the slices of the settings that `placed` has, by device, in its order."""
    hosts = hosted(problem, settings.devices, len(usable_cores()))
    found = _found(settings, problem, hosts)[0]
    return {device: tuple(each for each, _ in here) for device, here in found.items() if here}


_Here = list[tuple[Demand, Option]]
"""The models of a slice, and how they run there."""


_OnDevice = list[tuple[SliceSpec, _Here]]
"""The slices of a device that have models."""


def _found(
    settings: Settings, problem: PlacementProblem, hosts: Mapping[str, str]
) -> tuple[dict[str, _OnDevice], list[str]]:
    """Return the slices with models by device, and what of them was never measured. Of the slices of one
    instance, the first stands for all."""
    device_of = {name: device for device, name in hosts.items()}
    found: dict[str, _OnDevice] = {device: [] for device in hosts}
    unknown: list[str] = []
    instances: set[tuple[str, str]] = set()
    for each in settings.slices:
        device = device_of.get(each.device)
        if device is None or (each.instance and (device, each.instance) in instances):
            continue
        instances.add((device, each.instance))  # its workers are one slice of the placement
        kind = problem.pool_of[device].kind
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
            found[device].append((each, here))
    return found, unknown


def _filled_slots(problem: PlacementProblem, device: str, found: _OnDevice) -> tuple[Slot, ...]:
    """Return the slots of a device. Instances are taken to lie where they leave the most room."""
    slots = [_slot(each, here) for each, here in found]
    division = problem.pool_of[device].division
    if isinstance(division, Instances) and all(slot.share.kind == "mig" for slot in slots):
        layout = place(division.geometry, [slot.share.profile for slot in slots]) or ()
        starts: dict[str, list[int]] = {}
        for start, name in layout:
            starts.setdefault(name, []).append(start)
        if layout:
            slots = [replace(slot, start=starts[slot.share.profile].pop(0)) for slot in slots]
    return tuple(
        _filled(slot, here, [*slots[:number], *slots[number + 1 :]])
        for number, (slot, (_, here)) in enumerate(zip(slots, found, strict=True))
    )


def _option(demand: Demand, kind: str, spec: SliceSpec, variant: str) -> Option | None:
    """Return the option that its workers run, None if it was never measured."""
    asked = kind, spec.share, variant
    return next(
        (each for each in demand.options if (each.kind, each.worker_share, each.variant) == asked), None
    )


def _slot(spec: SliceSpec, here: _Here) -> Slot:
    return Slot(
        spec.share.with_processes(1),
        tuple(PlacedReplica(demand.model, option, 1, 0.0) for demand, option in here),
    )


def _filled(slot: Slot, here: _Here, others: list[Slot]) -> Slot:
    """Return the slot with the batches that n residents may run in turns. A cycle and another batch are n + 1
    batches: each may take an (n + 1)-th of what the tightest SLO leaves for both."""
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
            replace(each, capacity=each.option.processes * each.rows * 1e6 / cycle_us) for each, _ in chosen
        ),
    )
