"""Keeping, for MIG pools: which device is divided how, so that most of what runs stays where it is.

A draft says only how many devices have which instances. Equal devices are one source of a transport problem:
they are divided alike, and the same of their instances are still needed. The sinks are the multisets of
instances. What stays on a device is looked up in all layouts of a multiset.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from serving.policy.placement.assignment.lots import Content, KeptBundles, Lot, Spot, content
from serving.policy.placement.assignment.transport import transport
from serving.policy.placement.terms.geometry import Geometry, Layout, Multiset, arrangements, multiset
from serving.policy.placement.terms.moves import SETTLE_US, slots_us
from serving.policy.placement.terms.plan import Placement, Slot
from serving.policy.placement.terms.problem import Instances, PlacementDevice

Instance = tuple[int, str]
"""(first memory slice, profile), as in a `Layout`."""
Held = dict[Instance, Content]
"""What the instances of a device are for."""

_BARE = 1e-3
"""An instance that stays without its replica is worth so many minutes of starting, because making one takes
no time."""


@dataclass(frozen=True, slots=True)
class Group:
    """Devices that are divided in the same way.

    `instances` may stay; those in `claimed` stay with their replicas.
    """

    instances: Layout
    claimed: frozenset[Instance]


def keep(lot: Lot, free: Sequence[PlacementDevice], current: Placement) -> KeptBundles:
    """Choose how to divide as many of the `free` devices as the lot has bundles.

    The lot has to admit the free devices. There are as many vacant spots as loose slots.
    """
    wanted = by_content(lot)
    held = {device.name: held_by(lot, current.get(device.name, ())) for device in free}
    claims = _claims(lot, held, {each: len(slots) for each, slots in wanted.items()})
    layouts = _divide(lot, _groups(free, held, claims, wanted), wanted)
    kept = KeptBundles()
    later: list[tuple[Spot, str, Content | None]] = []
    for device in free:
        for start, label in layouts.get(device.name, ()):
            spot = Spot(device.name, device.domain, start)
            there = held[device.name].get((start, label))
            if there is not None and (start, label) in claims[device.name]:
                kept.fixed.append((label, spot, (wanted[there].pop(),)))
            else:
                later.append((spot, label, there))
    for spot, label, there in later:  # a claim that could not be kept elsewhere may be met here
        if there is not None and wanted.get(there):
            kept.fixed.append((label, spot, (wanted[there].pop(),)))
        else:
            kept.vacant[label].append(spot)
    for (label, _), slots in sorted(wanted.items(), key=lambda each: -len(each[1])):
        kept.loose[label].append([(slot,) for slot in slots])
    return kept


def by_content(lot: Lot) -> dict[Content, list[Slot]]:
    """Return the slots of a MIG lot, equal ones together."""
    found: dict[Content, list[Slot]] = defaultdict(list)
    for bundle in lot.bundles:
        for slot in bundle.slots:
            found[content(slot)].append(slot)
    return found


def held_by(lot: Lot, slots: Sequence[Slot]) -> Held:
    """Return what is on a device now, without what cannot be there."""
    profiles = {profile.name: profile for profile in geometry_of(lot)}
    return {
        (slot.start, slot.share.label): content(slot)
        for slot in slots
        if slot.share.label in profiles and slot.start in profiles[slot.share.label].starts
    }


def geometry_of(lot: Lot) -> Geometry:
    """Return the geometry of a MIG lot's pool."""
    division = lot.pool.division
    return division.geometry if isinstance(division, Instances) else ()


def shapes_of(lot: Lot) -> dict[Multiset, int]:
    """Return how many devices of a MIG lot have which instances, by the names of the instances."""
    shapes = Counter(tuple(slot.share.label for slot in bundle.slots) for bundle in lot.bundles)
    geometry = geometry_of(lot)
    found: Counter[Multiset] = Counter()
    for labels, count in shapes.items():
        found[multiset(geometry, labels)] += count
    return dict(sorted(found.items()))


def _claims(
    lot: Lot, held: Mapping[str, Held], wanted: Mapping[Content, int]
) -> dict[str, frozenset[Instance]]:
    """Return, by device, the instances with replicas that the lot needs there.

    If there are more of a kind than the lot needs, the next claim goes to the device that could stay most as
    it is.
    """
    geometry = geometry_of(lot)
    left, shapes = Counter(wanted), Counter(shapes_of(lot))
    shape_of = {
        device: multiset(geometry, [label for _, label in there]) for device, there in held.items() if there
    }

    def misfit(device: str) -> tuple[bool, int]:
        asked = Counter(held[device].values())
        return shapes[shape_of[device]] <= 0, sum(max(0, asked[each] - left[each]) for each in asked)

    queue = [(misfit(device), place, device) for place, device in enumerate(shape_of)]
    heapify(queue)
    found: dict[str, frozenset[Instance]] = {}
    while queue:
        was, place, device = heappop(queue)
        now = misfit(device)  # it only rises, because what others claimed is gone
        if now > was:
            heappush(queue, (now, place, device))
            continue
        shapes[shape_of[device]] -= 1
        claimed = []
        for instance, each in held[device].items():
            if left[each] > 0:
                left[each] -= 1
                claimed.append(instance)
        found[device] = frozenset(claimed)
    return found


def _groups(
    free: Sequence[PlacementDevice],
    held: Mapping[str, Held],
    claims: Mapping[str, frozenset[Instance]],
    wanted: Mapping[Content, Sequence[Slot]],
) -> dict[Group, list[PlacementDevice]]:
    """Return the devices by how they are divided, in each group those with the most at stake first.

    Of equal devices, the domains take turns, so that a few devices are in many domains.
    """
    rounds: Counter[str] = Counter()
    turns: dict[str, int] = {}
    for device in free:
        turns[device.name] = rounds[device.domain]
        rounds[device.domain] += 1
    found: dict[Group, list[PlacementDevice]] = defaultdict(list)
    for device in sorted(free, key=lambda each: turns[each.name]):
        group = Group(tuple(sorted(held[device.name])), claims.get(device.name, frozenset()))
        found[group].append(device)
    worth = {each: slots_us(slots[:1]) for each, slots in wanted.items()}
    for group, devices in found.items():
        if group.claimed:
            devices.sort(key=lambda each: -sum(worth[held[each.name][one]] for one in group.claimed))
    return found


def _divide(
    lot: Lot, groups: Mapping[Group, Sequence[PlacementDevice]], wanted: Mapping[Content, Sequence[Slot]]
) -> dict[str, Layout]:
    """Return a layout for as many devices as there are bundles, with as many of each shape as the lot has."""
    shapes = shapes_of(lot)
    ways = [arrangements(geometry_of(lot), shape) for shape in shapes]
    first = np.cumsum([0, *map(len, ways)])
    worth = _worth(lot, list(groups), [way for each in ways for way in each], wanted)
    best = np.maximum.reduceat(worth, first[:-1], axis=1)
    every = np.indices(best.shape).reshape(2, -1)
    supply = [len(devices) for devices in groups.values()]
    flows = transport((every[0], every[1], 1 + best.ravel()), supply, list(shapes.values()))
    found: dict[str, Layout] = {}
    for row, devices in enumerate(groups.values()):
        given = 0
        for shape in map(int, np.argsort(-best[row], kind="stable")):
            way = ways[shape][int(worth[row, first[shape] : first[shape + 1]].argmax())]
            count = int(flows[row * len(ways) + shape])
            for device in devices[given : given + count]:
                found[device.name] = way
            given += count
    return found


def _worth(
    lot: Lot, groups: Sequence[Group], ways: Sequence[Layout], wanted: Mapping[Content, Sequence[Slot]]
) -> NDArray[np.float64]:
    """Return what stays of each group's instances (rows) in each layout (columns), in minutes of starting.

    A replica counts as the mean of the replicas that its size of instance is for.
    """
    settled: dict[str, list[float]] = defaultdict(list)
    for (label, _), slots in wanted.items():
        settled[label].append(slots_us(slots[:1]) / SETTLE_US)
    mean = {label: fmean(each) for label, each in settled.items()}
    instances = [(start, profile.name) for profile in geometry_of(lot) for start in profile.starts]
    weights = [
        [
            _BARE * (one in group.instances) + (mean[one[1]] if one in group.claimed else 0.0)
            for one in instances
        ]
        for group in groups
    ]
    among = [[one in way for one in instances] for way in ways]
    return np.array(weights) @ np.array(among, dtype=np.float64).T
