"""Slices that are colocated on a device divided by amounts, and slow each other down."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from loadtests.virtual.baselines.pools import NEAR
from loadtests.virtual.baselines.squishy import Session, in_turns, occupancy
from serving.policy.placement.terms.plan import ROUNDING, PlacedReplica, Slot
from serving.policy.placement.terms.problem import Parts, Pool
from serving.values.slice_specs import Share


@dataclass(frozen=True)
class ColocatedPart:
    """A slice to be, for one session alone or for several in turns.

    The rate of a session is what it has to carry there.
    """

    share: Share
    sessions: tuple[Session, ...]

    @cached_property
    def pressure(self) -> float:
        """The pressure on the other parts."""
        return max(each.option.pressure for each in self.sessions)

    @cached_property
    def load(self) -> float:
        """The least part of its time that it computes, by itself on the device."""
        return sum(each.load for each in self.sessions)

    def slot(self, pressure: float) -> Slot | None:
        """Return what runs there while parts of that pressure compute.

        Return None if a rate or an SLO is not kept.
        """
        slowdowns = [1 + each.option.sensitivity * pressure for each in self.sessions]
        loads = sum(each.load * slow for each, slow in zip(self.sessions, slowdowns, strict=True))
        if loads > 1 + ROUNDING:
            return None
        slowed = [replace(each, slowdown=slow) for each, slow in zip(self.sessions, slowdowns, strict=True)]
        if len(slowed) > 1:
            return Slot(self.share, in_turns(slowed)) if occupancy(slowed) <= 1 else None
        alone = slowed[0]
        offer = alone.option.offer(alone.bound_us / 2, alone.slowdown)
        if offer is None or offer.throughput < alone.rate * (1 - NEAR):
            return None
        return Slot(
            self.share, (PlacedReplica(alone.demand.model, offer.option, offer.rows, offer.throughput),)
        )


def settle(pool: Pool, parts: Sequence[ColocatedPart]) -> tuple[Slot, ...] | None:
    """Return what runs on a device of that pool with these parts, or None if they cannot all be there."""
    division = pool.division
    if not isinstance(division, Parts) or len(parts) > (division.slices_max or len(parts)):
        return None
    held = sum(each.option.memory_bytes for part in parts for each in part.sessions)
    amount = sum(part.share.amount for part in parts)
    if (pool.memory_bytes and held > pool.memory_bytes) or amount > division.total * (1 + ROUNDING):
        return None
    slots = []
    for place, part in enumerate(parts):
        slot = part.slot(sum(other.pressure for at, other in enumerate(parts) if at != place))
        if slot is None:
            return None
        slots.append(slot)
    return tuple(slots)


def first_fit(pool: Pool, parts: Sequence[ColocatedPart]) -> list[tuple[Slot, ...]]:
    """Put each part on the first device of the pool where it fits, and return the slots of each device.

    It fits if all parts keep their SLOs and carry what they were given. Parts that fit nowhere are left out.
    """
    devices: list[tuple[ColocatedPart, ...]] = []
    for part in parts:
        fresh = [()] if len(devices) < len(pool.devices) else []
        for index, there in enumerate((*devices, *fresh)):
            if settle(pool, (*there, part)):
                devices[index : index + 1] = [(*there, part)]
                break
    return [slots for device in devices if (slots := settle(pool, device))]
