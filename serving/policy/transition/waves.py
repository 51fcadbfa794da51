"""The steps that make of some slices others, with what is new beside what is old in between. Pure."""

from collections.abc import Sequence

from serving.policy.transition.state import TransitionReplica, TransitionSlice
from serving.policy.transition.steps import (
    Address,
    Create,
    Destroy,
    Drain,
    Group,
    LoadStep,
    RouteStep,
    Sizing,
    UnloadStep,
)

Pair = tuple[str, TransitionSlice | None, TransitionSlice | None]
"""A device, and what a slice of it is before and after; None where it is not there."""


def groups(pairs: Sequence[Pair]) -> list[Group]:
    """Make, then one edit of the routes, then break: six groups at most, and in each any order will do."""
    created = [(device, after) for device, before, after in pairs if before is None and after is not None]
    destroyed = [(device, before) for device, before, after in pairs if after is None and before is not None]
    loaded = [each for device, before, after in pairs for each in _only(device, after, before)]
    ended = [each for device, before, after in pairs for each in _only(device, before, after)]
    sized = [each for device, before, after in pairs for each in _sized(device, before, after)]
    route = RouteStep(tuple(each for each, _ in loaded), tuple(each for each, _ in ended), tuple(sized))
    found: tuple[Group, ...] = (
        tuple(Create(device, each.number, each.share, each.start) for device, each in created),
        tuple(LoadStep(address, replica.resident) for address, replica in loaded),
        (route,) if loaded or ended or sized else (),
        tuple(Drain(address) for address, _ in ended),
        tuple(UnloadStep(address, replica.resident) for address, replica in ended),
        tuple(Destroy(device, each.number, each.share, each.start) for device, each in destroyed),
    )
    return [group for group in found if group]


def together(before: TransitionSlice | None, after: TransitionSlice | None) -> list[TransitionSlice]:
    """Return the slices loaded while `before` becomes `after`; a replica that changes its size counts with
    its larger side. Return an empty list if both are None."""
    held: dict[int, TransitionReplica] = {}
    there = before or after
    if there is None:
        return []
    for each in (before, after):
        for replica in each.replicas if each else ():
            other = held.get(replica.number, replica)
            held[replica.number] = max(other, replica, key=lambda one: one.resident.option.memory_bytes)
    return [TransitionSlice(there.number, there.share, there.start, tuple(held.values()))]


def _only(
    device: str, one: TransitionSlice | None, other: TransitionSlice | None
) -> list[tuple[Address, TransitionReplica]]:
    """Return the replicas of the one that the other has not."""
    if one is None:
        return []
    numbers = {each.number for each in other.replicas} if other else set()
    return [
        (Address(device, one.number, each.number), each)
        for each in one.replicas
        if each.number not in numbers
    ]


def _sized(device: str, before: TransitionSlice | None, after: TransitionSlice | None) -> list[Sizing]:
    if before is None or after is None:
        return []
    was = {each.number: each.resident for each in before.replicas}
    return [
        Sizing(Address(device, after.number, each.number), was[each.number], each.resident)
        for each in after.replicas
        if was.get(each.number, each.resident) != each.resident
    ]
