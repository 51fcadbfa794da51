"""How GPUs are divided: the MIG instances at their places, and the MPS shares side by side."""

import re
from collections.abc import Iterable, Sequence
from typing import Final, TypedDict

from serving.policy.placement.terms.geometry import Geometry, known_geometry, place
from serving.values.slice_specs import SliceSpec

_START: Final = re.compile(r"@(\d+)$")
"""In the name of a slice that a placement has made: the memory slice where its instance begins."""
PERCENT: Final = 100.0


class PartStatus(TypedDict):
    """A part of a GPU: it begins at `start` of the layout's `width`. `share`: as slices state it."""

    start: float
    size: float
    share: str
    slices: list[str]


class LayoutStatus(TypedDict):
    """How a GPU is divided. `width`: memory slices of MIG instances (`how`: "mig"), or percent of its threads
    ("mps"). `placed`: the places are the GPU's own; else they are where the instances fit."""

    device: str
    kind: str
    how: str
    width: float
    placed: bool
    parts: list[PartStatus]


def layouts_of(specs: Iterable[tuple[SliceSpec, str]]) -> list[LayoutStatus]:
    """Return the layouts of the GPUs that have MIG or MPS shares, by device. `specs`: with the kind of each
    device."""
    by_device: dict[tuple[str, str], list[SliceSpec]] = {}
    for spec, kind in specs:
        if spec.share.kind in ("mig", "mps"):
            by_device.setdefault((spec.domain, kind), []).append(spec)
    found = (_layout(device, kind, slices) for (device, kind), slices in sorted(by_device.items()))
    return [each for each in found if each is not None]


def _layout(device: str, kind: str, slices: Sequence[SliceSpec]) -> LayoutStatus | None:
    if all(each.share.kind == "mps" for each in slices):
        return _side_by_side(device, kind, slices)
    geometry = known_geometry(kind)
    return None if geometry is None else _instances(device, kind, slices, geometry)


def _side_by_side(device: str, kind: str, slices: Sequence[SliceSpec]) -> LayoutStatus:
    parts: list[PartStatus] = []
    used = 0.0
    for each in slices:
        parts.append(
            {"start": used, "size": each.share.amount, "share": str(each.share), "slices": [each.name]}
        )
        used += each.share.amount
    width = max(used, PERCENT)
    return {"device": device, "kind": kind, "how": "mps", "width": width, "placed": True, "parts": parts}


def _instances(
    device: str, kind: str, slices: Sequence[SliceSpec], geometry: Geometry
) -> LayoutStatus | None:
    """Return the instances; None where they are of profiles that the tables do not have, or do not fit."""
    instances: dict[str, list[SliceSpec]] = {}
    for each in slices:
        instances.setdefault(each.instance or each.name, []).append(each)
    size = {profile.name: profile.size for profile in geometry}
    profiles = [several[0].share.profile for several in instances.values()]
    if any(each not in size for each in profiles):
        return None
    starts = {name: int(found[1]) for name in instances if (found := _START.search(name))}
    kept = [(start, instances[name][0].share.profile) for name, start in starts.items()]
    layout = place(geometry, profiles, kept)
    if layout is None:
        return None
    free = list(layout)
    parts: list[PartStatus] = []
    for name in sorted(instances, key=lambda name: name not in starts):
        several, profile = instances[name], instances[name][0].share.profile
        at = (starts[name], profile) if name in starts else next(each for each in free if each[1] == profile)
        free.remove(at)
        slots = [each.name for each in several]
        parts.append({"start": at[0], "size": size[profile], "share": f"mig:{profile}", "slices": slots})
    parts.sort(key=lambda part: part["start"])
    width = max(profile.starts[-1] + profile.size for profile in geometry)
    placed = len(starts) == len(instances)
    return {"device": device, "kind": kind, "how": "mig", "width": width, "placed": placed, "parts": parts}
