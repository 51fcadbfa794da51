"""A placement as lines of a penstock.yaml that carry it out on this machine: the way back from `current`."""

import json
import os
import re
from collections.abc import Collection, Iterator, Mapping
from itertools import count

from router.settings.machine.slices import usable_cores
from router.verbs.place.question.asked import PlacementTask
from router.verbs.place.question.fleet import CPU, hosted
from serving.policy.placement.terms.plan import Placement, Slot
from serving.values.specs import ServedModel

_PLAIN = re.compile(r"[A-Za-z0-9._-]*/[A-Za-z0-9/._-]*")  # what YAML takes for text and nothing else


def as_settings(asked: PlacementTask, placement: Placement) -> str | None:
    """Return `slices:`, and `path` and `slices` of each model in it. All other settings stay.

    Return None if settings cannot say it: devices that are not this machine's, parts of cores, no slice at
    all.
    """
    slots = own_slots(asked, placement)
    if not slots:
        return None
    hosts = hosts_of(asked)
    names = free_names({})
    named = [
        (next(names[hosts[device]]), hosts[device], slot) for device, there in slots.items() for slot in there
    ]
    lines = ["slices:", *(_slice_line(*each) for each in named)]
    lines.append("models:  # other keys of a model stay as they are")
    for model in asked.settings.models:
        on = [name for name, _, slot in named if any(each.model == model.name for each in slot.residents)]
        lines += _model_lines(asked, model, on)
    return "\n".join(lines) + "\n"


def hosts_of(asked: PlacementTask) -> Mapping[str, str]:
    """Return the devices of the question that slices of this gateway can be on, and their names there."""
    return hosted(asked.problem, asked.settings.devices, len(usable_cores()))


def own_slots(asked: PlacementTask, placement: Placement) -> Mapping[str, tuple[Slot, ...]]:
    """Return the slices of the placement by device, if all can be slices of this gateway; else nothing."""
    hosts = hosts_of(asked)
    there = {device: slots for device, slots in placement.items() if slots}
    able = all(
        device in hosts and all(_workable(slot, hosts[device]) for slot in slots)
        for device, slots in there.items()
    )
    return there if able else {}


def free_names(taken: Collection[str]) -> Mapping[str, Iterator[str]]:
    """Return names for new slices by device: `cpu-1` and so on, `cuda0-1` of cuda:0."""
    return _FreeNames(taken)


class _FreeNames(dict[str, Iterator[str]]):
    """Makes the names of a device when they are first asked for."""

    def __init__(self, taken: Collection[str]) -> None:
        super().__init__()
        self._taken = taken

    def __missing__(self, device: str) -> Iterator[str]:
        prefix = device.replace(":", "")
        names = (name for number in count(1) if (name := f"{prefix}-{number}") not in self._taken)
        self[device] = names
        return names


def _workable(slot: Slot, device: str) -> bool:
    """Return whether workers can have the slot: whole cores of a CPU, or any share of a GPU."""
    able = device != CPU or (slot.share.kind == "cores" and slot.share.amount.is_integer())
    return able and bool(slot.residents) and (slot.processes == 1 or slot.share.kind == "mig")


def _slice_line(name: str, device: str, slot: Slot) -> str:
    carried = ", ".join(f"{each.model} {each.capacity:,.0f} rows/s" for each in slot.residents)
    if device != CPU:
        what = f'device: "{device}", share: "{slot.share}"'
        what += f", processes: {slot.processes}" if slot.processes > 1 else ""
        return f"  - {{name: {name}, {what}}}  # carries {carried}"
    cores = int(slot.share.amount)
    threads = f", threads: {cores}" if cores > 1 else ""
    return f"  - {{name: {name}, cores: {cores}{threads}}}  # carries {carried}"


def _model_lines(asked: PlacementTask, model: ServedModel, names: list[str]) -> Iterator[str]:
    path = os.path.relpath(model.spec.home, asked.settings.path.parent)
    quoted = path if _PLAIN.fullmatch(path) else json.dumps(path, ensure_ascii=False)
    if names:
        yield f"  - path: {quoted}"
        yield f"    slices: [{', '.join(names)}]"
    elif model.name in asked.rates:
        yield f"  # - path: {quoted}  # it has no replica here: leave it out"
    else:
        yield f"  # - path: {quoted}  # no rate was given: give it slices of these, or leave it out"
