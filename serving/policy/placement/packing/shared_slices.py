"""Shared slices: whether several models may take turns on one slice, and in what batches.

The module also says what the slices of a device carry while all of them compute. One batch of each model runs
in a cycle (Nexus, SOSP 2019, section 6.1: squishy bin packing). A longer cycle needs larger batches, and
these make the cycle longer. The fixed point is found from below. The rules are those that `check.py` checks
every plan against.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import starmap
from math import ceil

from serving.policy.placement.terms.plan import PlacedReplica, Slot
from serving.policy.placement.terms.problem import Demand, Option

NEAR = 1e-9
"""A relative tolerance: a bound that is missed by less counts as met. It is well within what `check.py`
forgives."""
FINE = 7
"""How often `stretch` halves the range of its factor: to 1 %."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What one slice carries of a model: `rate` rows a second, as `option` runs it.

    The slice's cycle and the model's own batch after it take at most `bound_us`.
    """

    model: str
    option: Option
    rate: float
    bound_us: float

    @staticmethod
    def of(demand: Demand, option: Option, rate: float) -> "Turn":
        """Return the turn of a demand, with a bound of twice its slack.

        A request that just missed its batch waits for a cycle, then for its own batch.
        """
        return Turn(demand.model, option, rate, 2 * demand.slack * demand.slo_us)


Stack = tuple[Turn, ...]
"""The models of one slice, each once, all with options for the same share. One alone has the slice for
itself."""


def batches(stack: Stack, pressure: float = 0.0) -> tuple[int, ...] | None:
    """Return the smallest rows of each model with which all carry their rates within their bounds.

    `pressure`: the sum over the other slices of the device. Return None if no rows do.

    Rows b carry the rates when b >= F(b) = ceil(cycle(b) * rate), and F does not fall when b grows. Let b* be
    any solution. The first guess, 1 of each, is within b*. If b is within b*, so is F(b) <= F(b*) <= b*. So
    no guess is beyond any solution. The guess that stays, F(b) = b, is the smallest solution. If a guess
    breaks a bound or is more than was measured, there is no solution. Guesses only grow, so the search ends.
    """
    if len(stack) > 1 and any(turn.option.processes > 1 for turn in stack):
        return None
    slowdowns = [1 + turn.option.sensitivity * pressure for turn in stack]
    rows = [1] * len(stack)
    while True:
        each_us = [
            turn.option.latency_us(count) * slow
            for turn, count, slow in zip(stack, rows, slowdowns, strict=True)
        ]
        whole_us = sum(each_us)
        wanted = []
        for turn, count, own_us in zip(stack, rows, each_us, strict=True):
            if whole_us + own_us > turn.bound_us * (1 + NEAR):
                return None
            more = ceil(whole_us * turn.rate * 1e-6 / turn.option.processes * (1 - NEAR))
            if more > turn.option.curve[-1][0]:
                return None
            wanted.append(more if more > count else count)
        if wanted == rows:
            return tuple(rows)
        rows = wanted


def stretch(stack: Stack, pressure: float = 0.0) -> tuple[int, ...] | None:
    """Return the rows with which all models carry the same multiple of their rates, the largest to 1 %.

    The multiple is at least 1: what is left of the cycle's bounds is shared out. Return None if not even the
    rates are carried.
    """
    best = batches(stack, pressure)
    if best is None or not any(turn.rate for turn in stack):
        return best
    low, high = 1.0, 2.0
    while (found := batches(_scaled(stack, high), pressure)) is not None:
        best, low, high = found, high, 2 * high
    for _ in range(FINE):
        middle = (low + high) / 2
        found = batches(_scaled(stack, middle), pressure)
        if found is None:
            high = middle
        else:
            best, low = found, middle
    return best


def _scaled(stack: Stack, factor: float) -> Stack:
    return tuple(Turn(each.model, each.option, factor * each.rate, each.bound_us) for each in stack)


def press(stack: Stack) -> float:
    """Return the pressure of the stack on the other slices of the device, as `Slot.pressure` does."""
    return max(turn.option.pressure for turn in stack)


def settle(stack: Stack, pressure: float = 0.0, stretched: bool = False) -> Slot | None:
    """Return the slice, with what each model carries under `pressure`; None if one misses its rate.

    A model alone runs the measured batch with the most throughput. Models in turns run the smallest batches
    that carry their rates. If `stretched`, they run the largest batches that serve all in equal measure.
    """
    share = stack[0].option.share
    if len(stack) == 1:
        (turn,) = stack
        slow = 1 + turn.option.sensitivity * pressure
        offer = turn.option.offer(turn.bound_us / 2, slow)
        if offer is None or offer.throughput < turn.rate * (1 - NEAR):
            return None
        return Slot(share, (PlacedReplica(turn.model, turn.option, offer.rows, offer.throughput),))
    rows = (stretch if stretched else batches)(stack, pressure)
    if rows is None:
        return None
    pairs = [*zip(stack, rows, strict=True)]
    whole_us = sum(
        turn.option.latency_us(count) * (1 + turn.option.sensitivity * pressure) for turn, count in pairs
    )

    def resident(turn: Turn, count: int) -> PlacedReplica:
        return PlacedReplica(turn.model, turn.option, count, count * 1e6 / whole_us)

    return Slot(share, tuple(starmap(resident, pairs)))


def settle_all(stacks: Sequence[Stack], stretched: bool = False) -> tuple[Slot | None, ...]:
    """Return the slices of one device in this order, with what each carries while the others compute.

    None stands for a slice that would not carry its rates.
    """
    pressures = [*map(press, stacks)]
    total = sum(pressures)
    return tuple(
        settle(stack, max(total - own, 0.0), stretched) for stack, own in zip(stacks, pressures, strict=True)
    )
