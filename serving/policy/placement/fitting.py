"""Best-fit decreasing: slices onto devices that are divided by amounts.

The largest slice comes first. Each goes on the fullest device that has room for it (Johnson et al., SIAM
Journal on Computing, 1974).
"""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from math import inf

from serving.policy.placement.plan import ROUNDING, Bundle, Slot
from serving.policy.placement.problem import Demand, Parts, PlacementProblem, Pool

TRIES = 64
"""The number of devices with room by amount that a slice is tried on before it gets another device."""


def fit(problem: PlacementProblem, pool: Pool, parts: Parts, slots: Iterable[Slot]) -> list[Bundle]:
    """Return at most as many bundles as the pool has devices; slices that find no room are left out.

    Each slice has one replica. No slice misses its budget because of others on its device. A slice carries
    less if they slow it down. If a model should be in several failure domains, its replicas are on as many
    devices.
    """
    fitting = _Fitting(problem, pool, parts)
    there = sorted(slots, key=lambda slot: -fitting.part(slot))
    memory_least = min((each.memory_bytes for each in there), default=0)
    for slot in there:
        fitting.add(slot, memory_least)
    return [Bundle(pool.name, each.settled()) for each in fitting.devices]


@dataclass(slots=True)
class _Device:
    """A device with slices; `left` and `memory_left` are what it has left.

    `pressure`: the sum over its slices. `bearable`: with more pressure, one of its slices misses its budget.
    """

    left: float
    memory_left: float
    slots: list[Slot] = field(default_factory=list)
    pressure: float = 0.0
    bearable: float = inf

    def suits(self, slot: Slot, bearable: float) -> bool:
        """Return whether the device has room for a slice that bears so much pressure, its own included."""
        pressure = self.pressure + slot.pressure
        return slot.memory_bytes <= self.memory_left and pressure <= min(self.bearable, bearable)

    def add(self, slot: Slot, bearable: float) -> None:
        """Add a slice."""
        self.slots.append(slot)
        self.left -= slot.share.amount
        self.memory_left -= slot.memory_bytes
        self.pressure += slot.pressure
        self.bearable = min(self.bearable, bearable)

    def settled(self) -> tuple[Slot, ...]:
        """Return the slices, with what each carries while the others compute."""
        found = []
        for slot in self.slots:
            (resident,) = slot.residents
            slowdown = 1 + resident.option.sensitivity * max(self.pressure - slot.pressure, 0.0)
            carried = resident.capacity / slowdown
            found.append(replace(slot, residents=(replace(resident, capacity=carried),)))
        return tuple(found)


class _Fitting:
    """Devices that are being filled. `devices`: those that have any slices."""

    def __init__(self, problem: PlacementProblem, pool: Pool, parts: Parts) -> None:
        self.devices: list[_Device] = []
        self._demand_of, self._pool, self._parts = problem.demand_of, pool, parts
        self._open: list[tuple[float, int]] = []  # (amount left, device), ascending
        self._there: dict[str, set[int]] = defaultdict(set)  # devices by model

    def part(self, slot: Slot) -> float:
        """Return the part of a device that the slice takes, by amount or by memory, whichever is more."""
        memory = slot.memory_bytes / self._pool.memory_bytes if self._pool.memory_bytes else 0.0
        return max(slot.share.amount / self._parts.total, memory)

    def add(self, slot: Slot, memory_least: int) -> None:
        """Put the slice on a device, if there is one for it.

        Slices to come hold at least `memory_least`.
        """
        demand = self._demand_of[slot.residents[0].model]
        bearable = _bearable(demand, slot)
        place = self._place(demand, slot, bearable)
        if place is None:
            if len(self.devices) == len(self._pool.devices):
                return
            place = len(self.devices)
            total = self._parts.total * (1 + ROUNDING / 2)
            self.devices.append(_Device(total, self._pool.memory_bytes or inf))
        device = self.devices[place]
        device.add(slot, bearable)
        self._there[demand.model].add(place)
        if len(device.slots) != self._parts.slices_max and device.memory_left >= memory_least:
            insort(self._open, (device.left, place))

    def _place(self, demand: Demand, slot: Slot, bearable: float) -> int | None:
        """Return the fullest device that the slice can join, taken off the open ones, or None."""
        there = self._there[demand.model]
        spread = len(there) < demand.domains_min
        first = bisect_left(self._open, (slot.share.amount, -1))
        for at, (_, place) in enumerate(self._open[first : first + TRIES], first):
            if not (spread and place in there) and self.devices[place].suits(slot, bearable):
                del self._open[at]
                return place
        return None


def _bearable(demand: Demand, slot: Slot) -> float:
    """Return the pressure at which the slice's batch is just in time.

    It is the pressure of all slices of a device, this slice included.
    """
    (resident,) = slot.residents
    took_us = resident.option.latency_us(resident.rows)
    slowdown = demand.slack * demand.slo_us * (1 + ROUNDING / 2) / took_us
    sensitivity = resident.option.sensitivity
    return slot.pressure + (slowdown - 1) / sensitivity if sensitivity else inf
