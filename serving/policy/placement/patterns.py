"""Patterns: every bundle of slices worth having on one device that is divided by amounts, for an integer
program to choose from.

A slice is one model's alone, or that of two to four in turns (groups of four: USHER, OSDI 2024). In turns
each carries all of its rate, or what replicas that are alone leave of it: so there are finitely many slices.
A bundle with a slice that would miss a budget beside the others is vetoed (gpulet, ATC 2022), and with it all
that have more slices: neighbours only slow down.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from math import inf

import numpy as np

from serving.policy.placement.plan import ROUNDING, Slot
from serving.policy.placement.problem import Demand, Option, Parts, PlacementProblem, Pool
from serving.policy.placement.shared_slices import NEAR, Stack, Turn, batches, press, settle
from serving.specs import Share

GROUP_MAX = 4
SLICES_MAX = 4_000
LOOKS = 150_000
DIGITS = 9  # of a part of a rate; what is closer is equal
"""Slices to choose from, and slices in bundles that are looked at, before there are too many: seconds."""

Patterns = tuple[tuple[Slot, ...], ...]
Parted = tuple[tuple[int, float], ...]
"""(place of a model, part of its rate) that are carried."""


def patterns(problem: PlacementProblem, pool: Pool, limit: int) -> Patterns | None:
    """The slices of one device of the pool, in every way that no other way is as good as.

    One is as good as another where it carries as much of each model; of equals that with less of the device,
    then with fewer slices. None where more than `limit` are left, or more than LOOKS had to be looked at
    before one was found that carries all. ValueError for a pool that is not divided by amounts.
    """
    if not isinstance(pool.division, Parts):
        raise ValueError(f"{pool.name} is not divided by amounts")
    asked = [each for each in problem.demands if each.rate > 0]
    rates = {each.model: each.rate for each in asked}
    slices = [_Slice(stack, rates) for stack in islice(_stacks(asked, pool), SLICES_MAX + 1)]
    if len(slices) > SLICES_MAX:
        return None
    search = _Search(_worth(slices, pool.division, len(rates)), pool, pool.division, len(rates))
    whole = search.run()
    found = search.found if whole else [each for each in search.found if min(each[0]) == 1]
    return _front(found, len(rates), limit) if whole or found else None


def _stacks(asked: Sequence[Demand], pool: Pool) -> Iterator[Stack]:
    """Every slice that carries something on a device that has nothing else."""
    pieces: dict[Share, list[list[Turn]]] = defaultdict(list)
    for demand in asked:
        options: dict[Share, list[Option]] = defaultdict(list)
        for option in demand.options:
            if pool.fits(option):
                options[option.share].append(option)
        for share, all_ways in sorted(options.items()):
            ways = [way for place, way in enumerate(all_ways) if not _useless(all_ways, place)]
            alone = [(Turn.of(demand, way, 0.0),) for way in ways]
            yield from (stack for stack in alone if settle(stack))
            pieces[share].append([turn for way in ways for turn in _pieces(demand, way)])
    for _, models in sorted(pieces.items()):
        yield from _groups(models, pool, (), 0)


def _useless(ways: Sequence[Option], place: int) -> bool:
    """Whether another option for the same share is as good in every way; of equals all but the first."""
    way = ways[place]
    return any(
        _as_good(other, way) and (at < place or not _as_good(way, other))
        for at, other in enumerate(ways)
        if at != place
    )


def _as_good(one: Option, other: Option) -> bool:
    measured, needed = ({rows for rows, _ in each.curve} for each in (one, other))
    if one.streams != other.streams or not needed <= measured:
        return False
    fast = all(us <= other.latency_us(rows) for rows, us in one.curve if rows <= max(needed))
    light = one.memory_bytes <= other.memory_bytes and one.pressure <= other.pressure
    return fast and light and one.sensitivity <= other.sensitivity


def _pieces(demand: Demand, option: Option) -> Iterator[Turn]:
    """What it may carry in turns with others, smallest first: what replicas of the best offer for the share
    leave of the rate, and the rate itself, where it carries that at all."""
    here = (option.kind, option.share)
    best = next((each for each in demand.offers if (each.option.kind, each.option.share) == here), None)
    if best is None or option.streams > 1:
        return
    for replicas in range(int(demand.rate / best.throughput), -1, -1):
        left = demand.rate - replicas * best.throughput
        turn = Turn.of(demand, option, left)
        if left <= ROUNDING * demand.rate:
            continue
        if batches((turn,)) is None:
            return
        yield turn


def _groups(models: Sequence[Sequence[Turn]], pool: Pool, stack: Stack, begin: int) -> Iterator[Stack]:
    """`stack` and more of the models from `begin` on, GROUP_MAX in all, in every way that carries."""
    for place in range(begin, len(models)):
        for turn in models[place]:
            grown = (*stack, turn)
            held = sum(each.option.memory_bytes for each in grown)
            if (pool.memory_bytes and held > pool.memory_bytes) or batches(grown) is None:
                continue
            if stack:
                yield grown
            if len(grown) < GROUP_MAX:
                yield from _groups(models, pool, grown, place + 1)


class _Slice:
    """A stack, with what it takes and carries. `worst`: that beside as much pressure as there can be."""

    def __init__(self, stack: Stack, rates: Mapping[str, float]) -> None:
        self.stack = stack
        self.amount = stack[0].option.share.amount
        self.memory_bytes = sum(turn.option.memory_bytes for turn in stack)
        self.pressure = press(stack)
        self._rates = [rates[turn.model] for turn in stack]
        self._models = [[*rates].index(turn.model) for turn in stack]
        self._settled: dict[float, tuple[Slot, Parted] | None] = {}
        self.worst: Parted = ()

    def beside(self, pressure: float) -> tuple[Slot, Parted] | None:
        """What it is and carries beside that pressure; None where that makes it miss a budget."""
        if pressure not in self._settled:
            slot = settle(self.stack, pressure)
            self._settled[pressure] = None if slot is None else (slot, self._parted(slot))
        return self._settled[pressure]

    def _parted(self, slot: Slot) -> Parted:
        pairs = zip(self._models, slot.residents, self._rates, strict=True)
        return tuple((model, min(each.capacity / rate, 1.0)) for model, each, rate in pairs)

    def carried(self, pressure: float) -> Parted:
        """Nothing where it misses a budget."""
        found = self.beside(pressure)
        return () if found is None else found[1]


def _worth(slices: Sequence[_Slice], parts: Parts, models: int) -> list[_Slice]:
    """Those worth having, the smallest first, with their `worst`: not where one that takes no more carries at
    its worst what this one does at its best."""
    dense = max((each.pressure / each.amount for each in slices), default=0.0)
    most = (parts.slices_max - 1) * max((each.pressure for each in slices), default=0.0)
    kept: list[_Slice] = []
    table = np.zeros((len(slices), models + 2))  # what is carried, then less is better
    for each in sorted(slices, key=lambda each: (each.amount, each.memory_bytes, len(each.stack))):
        around = max(dense * (parts.total - each.amount), 0.0)
        each.worst = each.carried(min(around, most) if parts.slices_max else around)
        taken = [-each.memory_bytes, -each.pressure]
        best = np.array([*_sum(models, [each.carried(0.0)]), *taken])
        if not (table[: len(kept)] >= best).all(axis=1).any():
            table[len(kept)] = [*_sum(models, [each.worst]), *taken]
            kept.append(each)
    return kept


class _Search:
    """Depth first over the multisets of slices, small slices first; `found` gets what is legal."""

    def __init__(self, slices: Sequence[_Slice], pool: Pool, parts: Parts, models: int) -> None:
        self._slices, self._parts, self._models = slices, parts, models
        self._memory_bytes = pool.memory_bytes or inf
        self._looks = 0
        self.found: list[tuple[list[float], tuple[Slot, ...]]] = []

    def run(self, chosen: tuple[_Slice, ...] = (), begin: int = 0) -> bool:
        """All that hold `chosen` and more from `begin` on; whether that was no more than LOOKS."""
        left = self._parts.total * (1 + NEAR) - sum(each.amount for each in chosen)
        room = self._memory_bytes - sum(each.memory_bytes for each in chosen)
        if self._parts.slices_max and len(chosen) == self._parts.slices_max:
            return True
        for place in range(begin, len(self._slices)):
            if self._slices[place].amount > left:
                break
            if self._slices[place].memory_bytes > room:
                continue
            self._looks += len(chosen) + 1
            if self._looks > LOOKS:
                return False
            grown = (*chosen, self._slices[place])
            if self._keep(grown) and not self.run(grown, place):
                return False
        return True

    def _keep(self, chosen: Sequence[_Slice]) -> bool:
        """False where one misses a budget, and where one is needless: even where all carry the least they
        can, its models' rates are carried without it, and the bundle that lacks it is as good."""
        worst = _sum(self._models, [each.worst for each in chosen])
        for each in chosen:
            if each.worst and all(worst[model] - part >= 1 - NEAR for model, part in each.worst):
                return False
        pressure = sum(each.pressure for each in chosen)
        slots, carried = [], []
        for each in chosen:
            beside = each.beside(max(pressure - each.pressure, 0.0))
            if beside is None:
                return False
            slots.append(beside[0])
            carried.append(beside[1])
        vector = [round(min(part, 1.0), DIGITS) for part in _sum(self._models, carried)]
        self.found.append((vector, tuple(slots)))
        return True


def _sum(models: int, parted: Iterable[Parted]) -> list[float]:
    """By place of the model."""
    found = [0.0] * models
    for each in parted:
        for model, part in each:
            found[model] += part
    return found


def _front(
    found: Sequence[tuple[Sequence[float], tuple[Slot, ...]]], models: int, limit: int
) -> Patterns | None:
    """Those that no other is as good as; None for more than `limit`.

    What carries more in all comes first, and nothing that comes later can be as good as it.
    """

    def order(place: int) -> tuple[float, float, int]:
        vector, slots = found[place]
        return -round(sum(vector), DIGITS), sum(slot.share.amount for slot in slots), len(slots)

    kept: list[tuple[Slot, ...]] = []
    table = np.zeros((min(limit, len(found)), models))
    for place in sorted(range(len(found)), key=order):
        vector, slots = found[place]
        if (table[: len(kept)] >= vector).all(axis=1).any():
            continue
        if len(kept) == limit:
            return None
        table[len(kept)] = vector
        kept.append(slots)
    return tuple(kept)
