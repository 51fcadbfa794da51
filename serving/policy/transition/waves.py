"""The steps that make of some slices others, with what is new beside what is old in between. Pure."""

from collections.abc import Sequence

from serving.policy.transition.state import Replica, Slice
from serving.policy.transition.steps import (
    Address,
    Create,
    Destroy,
    Drain,
    Group,
    Load,
    Route,
    Sizing,
    Unload,
)

Pair = tuple[str, Slice | None, Slice | None]
"""A device, and what a slice of it is before and after; None where it is not there."""


def groups(pairs: Sequence[Pair]) -> list[Group]:
    """Make, then one edit of the routes, then break: six groups at most, and in each any order will do."""
    created = [(device, after) for device, before, after in pairs if before is None and after is not None]
    destroyed = [(device, before) for device, before, after in pairs if after is None and before is not None]
    loaded = [each for device, before, after in pairs for each in _only(device, after, before)]
    ended = [each for device, before, after in pairs for each in _only(device, before, after)]
    sized = [each for device, before, after in pairs for each in _sized(device, before, after)]
    route = Route(tuple(each for each, _ in loaded), tuple(each for each, _ in ended), tuple(sized))
    found: tuple[Group, ...] = (
        tuple(Create(device, each.number, each.share, each.start) for device, each in created),
        tuple(Load(address, replica.resident) for address, replica in loaded),
        (route,) if loaded or ended or sized else (),
        tuple(Drain(address) for address, _ in ended),
        tuple(Unload(address, replica.resident) for address, replica in ended),
        tuple(Destroy(device, each.number, each.share, each.start) for device, each in destroyed),
    )
    return [group for group in found if group]


def together(before: Slice | None, after: Slice | None) -> list[Slice]:
    """What is loaded while the one becomes the other; a replica that is sized counts with the larger side.
    Nothing where neither is there."""
    held: dict[int, Replica] = {}
    there = before or after
    if there is None:
        return []
    for each in (before, after):
        for replica in each.replicas if each else ():
            other = held.get(replica.number, replica)
            held[replica.number] = max(other, replica, key=lambda one: one.resident.option.memory_bytes)
    return [Slice(there.number, there.share, there.start, tuple(held.values()))]


def _only(device: str, one: Slice | None, other: Slice | None) -> list[tuple[Address, Replica]]:
    """The replicas of the one that the other has not."""
    if one is None:
        return []
    numbers = {each.number for each in other.replicas} if other else set()
    return [
        (Address(device, one.number, each.number), each)
        for each in one.replicas
        if each.number not in numbers
    ]


def _sized(device: str, before: Slice | None, after: Slice | None) -> list[Sizing]:
    if before is None or after is None:
        return []
    was = {each.number: each.resident for each in before.replicas}
    return [
        Sizing(Address(device, after.number, each.number), was[each.number], each.resident)
        for each in after.replicas
        if was.get(each.number, each.resident) != each.resident
    ]
