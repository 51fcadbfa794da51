"""How much of a GPU is lost with some of its slices: what is left of it can be planned with."""

from collections.abc import Collection, Sequence

from serving.policy.placement.terms.geometry import Layout, place
from serving.policy.placement.terms.problem import Instances, Parts
from serving.values.slice_specs import SliceSpec


def lost_part(
    division: Parts | Instances, slices: Sequence[SliceSpec], lost: Collection[str]
) -> float | Layout | None:
    """Return the lost amount of a GPU, or its lost MIG instances; None if all of it is lost.

    `slices`: all of the GPU. With all of them the GPU is lost. So it is if its slices have another kind of
    share than the plan would divide it into: then it is unknown which part is left. Slices in turns reserve
    nothing, so none takes a part along. Instances are taken to lie where they leave the most room.
    """
    gone = [each for each in slices if each.name in lost]
    kinds = {each.share.kind for each in slices}
    if len(gone) == len(slices):
        return None
    if kinds == {"time"}:
        return 0.0
    if kinds != {division.kind}:
        return None
    if isinstance(division, Parts):
        amount = sum(each.share.amount for each in gone)
        return amount if amount < division.total else None
    return _lost_instances(division, slices, lost)


def _lost_instances(division: Instances, slices: Sequence[SliceSpec], lost: Collection[str]) -> Layout | None:
    instances = {each.instance or each.name: each for each in slices}
    profiles = {each.name for each in division.geometry}
    wanted = [each.share.profile for each in instances.values()]
    layout = place(division.geometry, wanted) if profiles.issuperset(wanted) else None
    if layout is None:
        return None
    starts: dict[str, list[int]] = {}
    for start, name in layout:
        starts.setdefault(name, []).append(start)
    lying = [(starts[each.share.profile].pop(0), each) for each in instances.values()]
    return tuple(sorted((start, each.share.profile) for start, each in lying if each.name in lost))
