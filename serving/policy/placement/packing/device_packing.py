"""The slices on one device that is divided by amounts, with shares large enough for all of them.

iGniter (F. Xu et al., TPDS 2023) raises the share of every workload that a newcomer makes miss its SLO, step
by step. Shares only grow, so this ends.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from serving.policy.placement.packing.shared_slices import NEAR, Stack, Turn, press, settle, settle_all
from serving.policy.placement.terms.plan import Slot
from serving.policy.placement.terms.problem import Demand, Option, Parts, Pool
from serving.values.slice_specs import Share


def find_parts(pool: Pool) -> Parts:
    """Return how the pool's devices are divided; raise ValueError if that is not by amounts."""
    if not isinstance(pool.division, Parts):
        raise ValueError(f"{pool.name} is not divided by amounts")
    return pool.division


Amounts = tuple[float, float, float]
"""Of a device: (amount of what it is divided by, bytes of memory, number of slices)."""


def find_taken(stacks: Iterable[Stack]) -> Amounts:
    """Return what the stacks take of a device."""
    amount, held, count = 0.0, 0, 0
    for stack in stacks:
        amount += stack[0].option.share.amount
        held += sum(turn.option.memory_bytes for turn in stack)
        count += 1
    return amount, held, count


def find_limits(pool: Pool) -> Amounts:
    """Return the amounts that a device of the pool has; inf stands for no limit."""
    parts = find_parts(pool)
    return parts.total, pool.memory_bytes or inf, parts.slices_max or inf


def has_room(pool: Pool, stacks: Iterable[Stack]) -> bool:
    """Return whether a device of the pool has as much as these stacks take."""
    pairs = zip(find_taken(stacks), find_limits(pool), strict=True)
    return all(taken <= limit * (1 + NEAR) for taken, limit in pairs)


def find_strain(stacks: Iterable[Stack]) -> tuple[float, float]:
    """Return (pressure on others, sensitivity to them) of all stacks together.

    The sensitivity of a stack is the mean of its models'.
    """
    pressure, sensitivity = 0.0, 0.0
    for stack in stacks:
        pressure += press(stack)
        sensitivity += sum(turn.option.sensitivity for turn in stack) / len(stack)
    return pressure, sensitivity


class ShareLadder:
    """The larger shares that models have options for.

    A shared slice needs options that run one batch at a time.
    """

    def __init__(self, demand_of: Mapping[str, Demand]) -> None:
        self._demand_of = demand_of
        self._options: dict[tuple[str, str, bool], dict[Share, Option]] = {}

    def options(self, model: str, pool: Pool, shared: bool) -> Mapping[Share, Option]:
        """Return the options that fit the pool, the smallest share first.

        Each share has the option with the most throughput.
        """
        key = model, pool.name, shared
        if key not in self._options:
            demand = self._demand_of[model]
            best: dict[Share, tuple[float, Option]] = {}
            for option in demand.options:
                offer = option.offer(demand.slack * demand.slo_us)
                if offer is None or not pool.fits(option) or (shared and option.processes > 1):
                    continue
                if option.share not in best or offer.throughput > best[option.share][0]:
                    best[option.share] = offer.throughput, option
            self._options[key] = {share: best[share][1] for share in sorted(best)}
        return self._options[key]

    def step(self, stack: Stack, pool: Pool) -> Stack | None:
        """Return the stack on the next larger share for which all of its models have an option, or None."""
        ways = [self.options(turn.model, pool, len(stack) > 1) for turn in stack]
        amount = stack[0].option.share.amount
        for share in ways[0]:
            if share.amount > amount and all(share in each for each in ways):
                pairs = zip(stack, ways, strict=True)
                return tuple(Turn(turn.model, way[share], turn.rate, turn.bound_us) for turn, way in pairs)
        return None


@dataclass(frozen=True, slots=True)
class DevicePacking:
    """A device in use, before it is known which one.

    `domain`: it has to be in this failure domain; None means any. `slots`: what the stacks become while they
    compute on one device.
    """

    pool: Pool
    domain: str | None = None
    stacks: tuple[Stack, ...] = ()
    slots: tuple[Slot, ...] = ()

    @property
    def left(self) -> Amounts:
        """What may still be taken of the device."""
        amount, held, count = find_taken(self.stacks)
        total, memory_bytes, slices = find_limits(self.pool)
        return total - amount, memory_bytes - held, slices - count


def hold(shelf: DevicePacking, stacks: Iterable[Stack], ladder: ShareLadder) -> DevicePacking | None:
    """Return the device with these stacks, or None if it has too little for them.

    Shares are raised until each stack carries its rates within its budgets while the others compute.
    """
    there = [*stacks]
    while has_room(shelf.pool, there):
        slots = _settle_all(shelf, there)
        if None not in slots:
            return DevicePacking(
                shelf.pool, shelf.domain, tuple(there), tuple(slot for slot in slots if slot)
            )
        for place, slot in enumerate(slots):
            if slot is None:
                raised = ladder.step(there[place], shelf.pool)
                if raised is None:
                    return None
                there[place] = raised
    return None


def _settle_all(shelf: DevicePacking, stacks: Sequence[Stack]) -> tuple[Slot | None, ...]:
    """Settle the stacks as `settle_all` does.

    If one stack joins that presses on no other, the others keep their slots.
    """
    count = len(shelf.stacks)
    if len(stacks) == count + 1 and not press(stacks[count]) and tuple(stacks[:count]) == shelf.stacks:
        return (*shelf.slots, settle(stacks[count], sum(map(press, shelf.stacks))))
    return settle_all(stacks)
