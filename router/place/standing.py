"""A placement as lines of a penstock.yaml that carry it out on this machine: the way back from `current`."""

import json
import os
import re
from collections.abc import Iterator

from router.place.asked import PlacementTask
from router.place.fleet import own_device
from router.settings.slices import usable_cores
from serving.policy.placement.plan import Placement, Slot
from serving.specs import ServedModel

_PLAIN = re.compile(r"[A-Za-z0-9._-]*/[A-Za-z0-9/._-]*")  # what YAML takes for text and nothing else


def as_settings(asked: PlacementTask, placement: Placement) -> str | None:
    """`slices:` and the `path` and `slices` of each model in it; everything else of the settings stays.

    None where it cannot be said so: slices of other devices than this machine's CPU, parts of cores, several
    batches at once (a worker runs one), no slice at all.
    """
    slots = own_slots(asked, placement)
    if not slots:
        return None
    names = [f"cpu-{number}" for number in range(1, len(slots) + 1)]
    lines = ["slices:", *map(_slice_line, names, slots), "models:  # other keys of a model stay as they are"]
    for model in asked.settings.models:
        lines += _model_lines(asked, model, [
            name
            for name, slot in zip(names, slots, strict=True)
            if any(each.model == model.name for each in slot.residents)
        ])  # fmt: skip
    return "\n".join(lines) + "\n"


def own_slots(asked: PlacementTask, placement: Placement) -> tuple[Slot, ...]:
    """Return the slices of the placement, where they can be slices of this gateway; () where they cannot all
    be."""
    device = own_device(asked.problem, len(usable_cores()))
    slots = placement.get(device, ()) if device else ()
    elsewhere = any(there for name, there in placement.items() if name != device)
    return slots if not elsewhere and all(map(_workable, slots)) else ()


def _workable(slot: Slot) -> bool:
    whole = slot.share.kind == "cores" and slot.share.amount.is_integer()
    return whole and bool(slot.residents) and all(each.option.streams == 1 for each in slot.residents)


def _slice_line(name: str, slot: Slot) -> str:
    cores = int(slot.share.amount)
    threads = f", threads: {cores}" if cores > 1 else ""
    carried = ", ".join(f"{each.model} {each.capacity:,.0f} rows/s" for each in slot.residents)
    return f"  - {{name: {name}, cores: {cores}{threads}}}  # carries {carried}"


def _model_lines(asked: PlacementTask, model: ServedModel, names: list[str]) -> Iterator[str]:
    path = os.path.relpath(model.spec.folder, asked.settings.path.parent)
    quoted = path if _PLAIN.fullmatch(path) else json.dumps(path, ensure_ascii=False)
    if names:
        yield f"  - path: {quoted}"
        yield f"    slices: [{', '.join(names)}]"
    elif model.name in asked.rates:
        yield f"  # - path: {quoted}  # it has no replica here: leave it out"
    else:
        yield f"  # - path: {quoted}  # no rate was given: give it slices of these, or leave it out"
