"""How a GPU in MIG mode is divided at this moment, and which slice has which instance. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from serving.policy.placement.terms.geometry import Geometry, place
from serving.runtime.slicing.mig.mig_text import Instance


@dataclass(frozen=True, slots=True)
class MigLayout:
    """The instances of a GPU. `taken`: the id of the instance that each slice has; several processes in one
    instance have one name there."""

    geometry: Geometry
    instances: tuple[Instance, ...]
    taken: Mapping[str, int]


def layout_on_paper(geometry: Geometry, wanted: Mapping[str, str]) -> MigLayout | None:
    """Return where a rehearsed GPU has its instances: they leave as much room as they can.

    `wanted`: the profile of each slice. Return None if the GPU could not have them all.
    """
    known = {each.name: each for each in geometry}
    found = place(geometry, wanted.values()) if known.keys() >= {*wanted.values()} else None
    if found is None:
        return None
    instances = tuple(Instance(start, known[name].size, name, id_) for id_, (start, name) in enumerate(found))
    free = list(instances)
    taken: dict[str, int] = {}
    for slot, profile in wanted.items():
        mine = next(each for each in free if each.profile == profile)
        free.remove(mine)
        taken[slot] = mine.id
    return MigLayout(geometry, instances, taken)
