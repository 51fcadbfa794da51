"""Matching, for pools divided by amounts: which device takes which bundle, so that most of what runs stays.

A bundle is fixed, with its slices as they were computed; only its device is open. If a device has exactly
this bundle already, the bundle stays there. No other choice starts less: what another bundle has in common
with that device, it has in common with this bundle. For the rest, equal bundles are one source of a transport
problem and equal devices one sink.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from serving.policy.placement.assignment.lots import KeptBundles, Lot, Spot
from serving.policy.placement.assignment.transport import Arcs, transport
from serving.policy.placement.terms.moves import SETTLE_US, replica, start_us, stays_us
from serving.policy.placement.terms.plan import Bundle, Placement, Slot
from serving.policy.placement.terms.problem import PlacementDevice

if TYPE_CHECKING:
    from scipy.sparse import csr_array

WAYS_MAX = 16
"""The kinds of devices that are looked at for a bundle: those that have most in common with it."""
_ROWS = 256  # kinds of bundles compared with all devices at a time: this bounds the memory

Pairs = list[tuple[PlacementDevice, Bundle]]


def match(lot: Lot, free: Sequence[PlacementDevice], current: Placement) -> KeptBundles:
    """Choose which bundles go to which of the `free` devices, because some of their replicas run there.

    The lot has to admit the free devices. Those that get no bundle are vacant. If the lot is of one domain,
    only as many are vacant as bundles are loose.
    """
    bundles: dict[Hashable, list[Bundle]] = defaultdict(list)
    for bundle in lot.bundles:
        bundles[alike(bundle.slots)].append(bundle)
    devices: dict[Hashable, list[PlacementDevice]] = defaultdict(list)
    for device in free:
        if current.get(device.name):
            devices[alike(current[device.name])].append(device)
    found: Pairs = []
    for key, group in bundles.items():
        found += _pair(group, devices.get(key, []), len(group))
    some = [group for group in bundles.values() if group]
    there = [group for group in devices.values() if group]
    arcs = ways([group[0].slots for group in some], [current[group[0].name] for group in there])
    flows = transport(arcs, [len(group) for group in some], [len(group) for group in there])
    for source, sink, flow in zip(arcs[0].tolist(), arcs[1].tolist(), flows.tolist(), strict=True):
        found += _pair(some[source], there[sink], flow)
    used = {device.name for device, _ in found}
    bare = sorted((each for each in free if each.name not in used), key=lambda each: each.name in current)
    loose = [[bundle.slots for bundle in group] for group in sorted(some, key=len, reverse=True)]
    vacant = bare if lot.domain is None else bare[: sum(map(len, loose))]
    return KeptBundles(
        [("", Spot(device.name, device.domain), bundle.slots) for device, bundle in found],
        {"": [Spot(device.name, device.domain) for device in vacant]},
        {"": loose},
    )


def alike(slots: Sequence[Slot]) -> Hashable:
    """Return a key that is equal for slots that are the same slices with the same replicas."""
    return tuple(
        sorted((slot.share, slot.start, tuple(sorted(map(replica, slot.residents)))) for slot in slots)
    )


def ways(bundles: Sequence[Sequence[Slot]], devices: Sequence[Sequence[Slot]]) -> Arcs:
    """Return (bundle, device, minutes of starting that it saves) for each way on which something stays."""
    columns: dict[Hashable, int] = {}
    after = _replicas(bundles, columns)
    before = _replicas(devices, columns)[:, : after.shape[1]]
    before.data[:] = 1
    shared = any(len(slot.residents) > 1 for slots in (*bundles, *devices) for slot in slots)
    sources: list[int] = []
    sinks: list[int] = []
    saved: list[float] = []
    for first in range(0, len(bundles), _ROWS):
        both = (after[first : first + _ROWS] @ before.T).toarray()
        for row, common in enumerate(both, start=first):
            near = np.flatnonzero(common)
            if len(near) > WAYS_MAX:
                near = np.sort(near[np.argpartition(-common[near], WAYS_MAX)[:WAYS_MAX]])
            for sink in near.tolist():
                worth = float(stays_us(devices[sink], bundles[row]) if shared else common[sink])
                if worth > 0:
                    sources.append(row)
                    sinks.append(sink)
                    saved.append(worth / SETTLE_US)
    return np.array(sources, np.int64), np.array(sinks, np.int64), np.array(saved)


def _replicas(many: Sequence[Sequence[Slot]], columns: dict[Hashable, int]) -> "csr_array":
    """Return a matrix with a row for each of `many`, of the times to start its replicas, in us.

    A column stands for a (share, start, replica) and how many of it there are. So rows have in common what
    multisets have.
    """
    from scipy.sparse import csr_array  # see `placement.programs`

    rows, places, values = [], [], []
    for row, slots in enumerate(many):
        count: Counter[Hashable] = Counter()
        for slot in slots:
            for resident in slot.residents:
                key = slot.share, slot.start, replica(resident)
                count[key] += 1
                rows.append(row)
                places.append(columns.setdefault((key, count[key]), len(columns)))
                values.append(start_us(resident.option))
    return csr_array((values, (rows, places)), shape=(len(many), len(columns)), dtype=np.float64)


def _pair(bundles: list[Bundle], devices: list[PlacementDevice], count: int) -> Pairs:
    """Take up to `count` pairs off both lists, and return them."""
    pairs = list(zip(devices[:count], bundles[:count], strict=False))
    del devices[: len(pairs)], bundles[: len(pairs)]
    return pairs
