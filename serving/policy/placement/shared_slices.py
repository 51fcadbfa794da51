"""Turns: whether several models may share one slice, and in what batches; what the slices of a device then
carry beside each other.

One batch of each model in a cycle (Nexus, SOSP 2019, section 6.1: squishy bin packing). A longer cycle needs
larger batches, which make the cycle longer; the fixed point is found from below. What must hold is what
`check.py` holds every plan against.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import starmap
from math import ceil

from serving.policy.placement.plan import PlacedReplica, Slot
from serving.policy.placement.problem import Demand, Option

NEAR = 1e-9
"""Relative: a bound that is missed by less is met. Well within what `check.py` forgives."""
FINE = 7
"""Halvings of what batches may be stretched by: to 1 %."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What one slice carries of a model: `rate` rows a second, as `option` runs it; the slice's cycle and its
    own batch after that take at most `bound_us`."""

    model: str
    option: Option
    rate: float
    bound_us: float

    @staticmethod
    def of(demand: Demand, option: Option, rate: float) -> "Turn":
        """A request that just missed its batch waits for a cycle, then for its own: two of the slack."""
        return Turn(demand.model, option, rate, 2 * demand.slack * demand.slo_us)


Stack = tuple[Turn, ...]
"""The models of one slice, each once, all with options for the same share; one alone has the slice for
itself."""


def batches(stack: Stack, pressure: float = 0.0) -> tuple[int, ...] | None:
    """The smallest rows of each with which all carry their rates within their bounds, beside other slices
    whose pressures come to `pressure`; None where there are none.

    Rows b carry the rates when b >= F(b) = ceil(cycle(b) * rate), and F does not fall when b grows. Let b* be
    any solution. The first guess, 1 of each, is within b*; and where b is, so is F(b) <= F(b*) <= b*. So no
    guess is beyond any solution: the one that stays, F(b) = b, is the smallest there is, and where a guess
    breaks a bound or is more than was measured there is no solution. Guesses only grow, so it ends.
    """
    if len(stack) > 1 and any(turn.option.streams > 1 for turn in stack):
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
            more = ceil(whole_us * turn.rate * 1e-6 / turn.option.streams * (1 - NEAR))
            if more > turn.option.curve[-1][0]:
                return None
            wanted.append(more if more > count else count)
        if wanted == rows:
            return tuple(rows)
        rows = wanted


def stretch(stack: Stack, pressure: float = 0.0) -> tuple[int, ...] | None:
    """The rows with which all carry the most that is the same multiple, at least 1, of their rates, to 1 %:
    what is left of the cycle's bounds is shared out. None where not even the rates are carried."""
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
    """Its pressure on the other slices of the device, as `Slot.pressure`."""
    return max(turn.option.pressure for turn in stack)


def settle(stack: Stack, pressure: float = 0.0, stretched: bool = False) -> Slot | None:
    """The slice with what each carries beside that pressure, at least its rate; None where one would not.

    A model alone runs the measured batch with the most throughput. Others run the smallest that carry their
    rates, or if `stretched` the largest that serve all alike.
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
    """The slices of one device beside each other, in this order; None for each that would not carry its
    rates."""
    pressures = [*map(press, stacks)]
    total = sum(pressures)
    return tuple(
        settle(stack, max(total - own, 0.0), stretched) for stack, own in zip(stacks, pressures, strict=True)
    )
