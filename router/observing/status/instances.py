"""How a GPU is divided into MIG instances, as the status tells it."""

from collections.abc import Mapping
from typing import Final, TypedDict

from serving.policy.placement.terms.geometry import room
from serving.runtime.slicing.mig.layout import MigLayout

_GIB: Final = 1 << 30


class InstanceStatus(TypedDict):
    """A MIG instance: memory slices `start` to `start + size - 1`. `slices`: those that compute there, none
    if it is free. `memory_bytes` is None for a profile that the driver's list lacks, `memory_used_bytes`
    where nothing tells it."""

    start: int
    size: int
    profile: str
    slices: list[str]
    memory_bytes: int | None
    memory_used_bytes: int | None


class MigStatus(TypedDict):
    """The instances of a GPU with `size` memory slices, by their start. `room`: where one more instance of
    each profile could begin, the largest first; empty where the driver's list lacks a profile of the GPU."""

    size: int
    instances: list[InstanceStatus]
    room: dict[str, list[int]]


def mig_status(layout: MigLayout, slices: Mapping[str, str], used_bytes: Mapping[str, int]) -> MigStatus:
    """Return the status of a layout. `slices`: of each slice, the name in `layout.taken` of its instance.
    `used_bytes`: the memory of each slice, where that is known."""
    memory_bytes = {each.name: round(each.memory_gib * _GIB) for each in layout.geometry}
    there: dict[int, list[str]] = {}
    for name, held in slices.items():
        if held in layout.taken:
            there.setdefault(layout.taken[held], []).append(name)
    instances: list[InstanceStatus] = []
    for each in sorted(layout.instances):
        names = sorted(there.get(each.id, ()))
        known = [used_bytes[name] for name in names if name in used_bytes]
        instances.append(
            {
                "start": each.start,
                "size": each.size,
                "profile": each.profile,
                "slices": names,
                "memory_bytes": memory_bytes.get(each.profile),
                "memory_used_bytes": sum(known) if known else None,
            }
        )
    placed = tuple((each.start, each.profile) for each in sorted(layout.instances))
    free = room(layout.geometry, placed) if memory_bytes.keys() >= {name for _, name in placed} else {}
    return {
        "size": max(start + each.size for each in layout.geometry for start in each.starts),
        "instances": instances,
        "room": {name: [*starts] for name, starts in free.items()},
    }
