"""Fill: what a placement leaves of a device that is divided by amounts goes to models with little headroom.

That part of the device is paid for in any case. The method is max-min, device by device. The model that
carries the smallest multiple of its rate gets a larger share or one more replica. For a violated SLO, iGniter
(TPDS 2023) raises shares in this way; here it is for headroom. All other models there keep what they carry.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from serving.policy.placement.packing.device_packing import DevicePacking, ShareLadder, find_taken
from serving.policy.placement.packing.shared_slices import NEAR, Stack, Turn, press, settle, settle_all
from serving.policy.placement.terms.plan import ROUNDING, Bundle, Slot
from serving.policy.placement.terms.problem import Parts, PlacementProblem

NEWCOMERS = 8
"""The number of models that are tried on a device without being there: those with the least headroom."""


def fill(problem: PlacementProblem, bundles: Sequence[Bundle]) -> tuple[Bundle, ...]:
    """Return the same devices with larger shares and more replicas where there is room.

    No replica carries less, and nothing costs more. Devices divided into instances stay as they are.
    """
    filler = _Filler(problem)
    shelves = {
        place: shelf for place, each in enumerate(bundles) if (shelf := filler.shelve(each)) is not None
    }
    filled = [shelves[place].slots if place in shelves else each.slots for place, each in enumerate(bundles)]
    filler.headroom = Headroom(problem, (slot for slots in filled for slot in slots))
    while shelves:
        for place, shelf in [*shelves.items()]:
            grown = filler.grow(shelf)
            if grown is None:
                del shelves[place]
            else:
                filler.headroom.change(shelf.slots, grown.slots)
                shelves[place], filled[place] = grown, grown.slots
    return tuple(replace(each, slots=slots) for each, slots in zip(bundles, filled, strict=True))


class Headroom:
    """The models with a rate, by the multiple of it that is carried."""

    def __init__(self, problem: PlacementProblem, slots: Iterable[Slot]) -> None:
        self._rates = {each.model: each.rate for each in problem.demands if each.rate > 0}
        self._carried = dict.fromkeys(self._rates, 0.0)
        self._count(slots, 1)
        self._least = sorted(map(self._key, self._rates))

    def _key(self, model: str) -> tuple[float, str]:
        return self._carried[model] / self._rates[model], model

    def _count(self, slots: Iterable[Slot], sign: int) -> None:
        for slot in slots:
            for each in slot.residents:
                if each.model in self._carried:
                    self._carried[each.model] += sign * each.capacity

    def change(self, before: Iterable[Slot], after: Sequence[Slot]) -> None:
        """Count the slices `after` instead of `before`, on one device."""
        models = sorted({each.model for slot in after for each in slot.residents} & self._rates.keys())
        for model in models:
            del self._least[bisect_left(self._least, self._key(model))]
        self._count(before, -1)
        self._count(after, 1)
        for model in models:
            insort(self._least, self._key(model))

    def least(self) -> Iterator[str]:
        """Return the models, the one with the least headroom first."""
        return (model for _, model in self._least)


class _Filler:
    def __init__(self, problem: PlacementProblem) -> None:
        self._problem = problem
        self._pools = {pool.name: pool for pool in problem.pools}
        self._ladder = ShareLadder(problem.demand_of)
        self.headroom = Headroom(problem, ())

    def shelve(self, bundle: Bundle) -> DevicePacking | None:
        """Return the device as one where every slice has to carry what it carries now.

        Return None if the device is not divided by amounts, or does not run as `shared_slices.py` would have
        it.
        """
        pool = self._pools[bundle.pool]
        models = {each.model for slot in bundle.slots for each in slot.residents}
        if not isinstance(pool.division, Parts) or not models <= self._problem.demand_of.keys():
            return None
        return self._kept(
            DevicePacking(pool, bundle.domain), settle_all([*map(self._stack, bundle.slots)], True)
        )

    def _stack(self, slot: Slot) -> Stack:
        demand_of = self._problem.demand_of
        return tuple(Turn.of(demand_of[each.model], each.option, each.capacity) for each in slot.residents)

    def _kept(self, shelf: DevicePacking, slots: Sequence[Slot | None]) -> DevicePacking | None:
        """Return the device with these slices, or None if one is None.

        Each slice has to carry what it carries from now on.
        """
        whole = tuple(slot for slot in slots if slot is not None)
        if len(whole) < len(slots):
            return None
        return replace(shelf, stacks=tuple(map(self._stack, whole)), slots=whole)

    def grow(self, shelf: DevicePacking) -> DevicePacking | None:
        """Return the device after one step for the model with the least headroom that there is a step for.

        The step is the one that brings this model most for the amount that it takes. Return None if no model
        has a step.
        """
        left = shelf.left
        for model in self._models(shelf, left[0]):
            carried = _carried(shelf.slots, model)
            best, worth = None, 0.0
            for place, stack in self._steps(shelf, model):
                had = find_taken(shelf.stacks[place : place + 1])
                more = [new - old for new, old in zip(find_taken((stack,)), had, strict=True)]
                if any(each > limit * (1 + NEAR) for each, limit in zip(more, left, strict=True)):
                    continue
                slots = self._settled(shelf, place, stack)
                gain = _carried((slot for slot in slots if slot), model) - carried
                if None not in slots and gain > ROUNDING * carried and gain / more[0] > worth:
                    best, worth = slots, gain / more[0]
            if best is not None:
                return self._kept(shelf, best)
        return None

    def _models(self, shelf: DevicePacking, amount: float) -> Iterator[str]:
        """Yield the models on the device and some others that would fit, the least headroom first.

        Yield none if nothing of the device is left.
        """
        there = {turn.model for stack in shelf.stacks for turn in stack}
        tried = 0
        for model in self.headroom.least() if amount > 0 else ():
            if model in there:
                yield model
            elif tried < NEWCOMERS:
                options = self._ladder.options(model, shelf.pool, shared=False)
                if any(share.amount <= amount for share in options):
                    tried += 1
                    yield model

    def _steps(self, shelf: DevicePacking, model: str) -> Iterator[tuple[int, Stack]]:
        """Yield (place of a slice, its stack after a step).

        Equal slices come once. The place after the last stands for one more slice.
        """
        seen = set()
        for place, stack in enumerate(shelf.stacks):
            if stack not in seen and any(turn.model == model for turn in stack):
                seen.add(stack)
                higher = self._ladder.step(stack, shelf.pool)
                while higher is not None:
                    yield place, higher
                    higher = self._ladder.step(higher, shelf.pool)
        demand = self._problem.demand_of[model]
        for option in self._ladder.options(model, shelf.pool, shared=False).values():
            yield len(shelf.stacks), (Turn.of(demand, option, 0.0),)

    def _settled(self, shelf: DevicePacking, place: int, stack: Stack) -> tuple[Slot | None, ...]:
        """Return all slices of the device when the one at `place` has this stack.

        The others stay as they are if the stack presses no more than before.
        """
        stacks = (*shelf.stacks[:place], stack, *shelf.stacks[place + 1 :])
        before = press(shelf.stacks[place]) if place < len(shelf.stacks) else 0.0
        if press(stack) > before:
            return settle_all(stacks, stretched=True)
        others = sum(press(each) for at, each in enumerate(stacks) if at != place)
        return (*shelf.slots[:place], settle(stack, others, True), *shelf.slots[place + 1 :])


def _carried(slots: Iterable[Slot], model: str) -> float:
    return sum(each.capacity for slot in slots for each in slot.residents if each.model == model)
