"""Patterns: every bundle of slices worth having on one device that is divided by amounts.

An integer program chooses from them. A slice belongs to one model, or two to four models take turns on it
(groups of four: USHER, OSDI 2024). In turns, a model carries all of its rate, or what its replicas alone on
slices leave of the rate. So there are finitely many slices.

A bundle is vetoed if one of its slices would miss a budget because of the others (gpulet, ATC 2022). All
bundles that add slices to it are vetoed as well, because neighbours only slow a slice down.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from math import inf

import numpy as np

from serving.policy.placement.packing.shared_slices import NEAR, Stack, Turn, batches, press, settle
from serving.policy.placement.terms.plan import ROUNDING, Slot
from serving.policy.placement.terms.problem import Demand, Option, Parts, PlacementProblem, Pool
from serving.values.slice_specs import Share

GROUP_MAX = 4
SLICES_MAX = 4_000
LOOKS = 150_000
DIGITS = 9  # parts of a rate that are equal to so many decimal places count as equal
"""The most slices to choose from (`SLICES_MAX`), and the most slices in bundles that are looked at (`LOOKS`).
More would be too many: these take seconds."""

Patterns = tuple[tuple[Slot, ...], ...]
Parted = tuple[tuple[int, float], ...]
"""(place of a model, part of its rate) of each model that is carried."""


def patterns(problem: PlacementProblem, pool: Pool, limit: int) -> Patterns | None:
    """Return the ways to fill one device of the pool, without the ways that another is as good as.

    A way is as good as another if it carries as much of each model. Of equal ways, the one with less of the
    device wins, then the one with fewer slices.

    Return None if there are more than SLICES_MAX slices to choose from, or if more than `limit` ways are
    left. Return None also if LOOKS are used up before a way was found that carries all. Raise ValueError for
    a pool that is not divided by amounts.
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
    """Yield every slice that carries something on an otherwise empty device."""
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
    """Return whether another option for the same share is as good in every way.

    Of equal options, all but the first are useless.
    """
    way = ways[place]
    return any(
        _as_good(other, way) and (at < place or not _as_good(way, other))
        for at, other in enumerate(ways)
        if at != place
    )


def _as_good(one: Option, other: Option) -> bool:
    measured, needed = ({rows for rows, _ in each.curve} for each in (one, other))
    if one.processes != other.processes or not needed <= measured:
        return False
    fast = all(us <= other.latency_us(rows) for rows, us in one.curve if rows <= max(needed))
    light = one.memory_bytes <= other.memory_bytes and one.pressure <= other.pressure
    return fast and light and one.sensitivity <= other.sensitivity


def _pieces(demand: Demand, option: Option) -> Iterator[Turn]:
    """Yield what the model may carry in turns with others, the smallest rate first.

    A piece is what replicas of the best offer for the share leave of the rate. The last piece is the rate
    itself. No piece is more than the option carries at all.
    """
    here = (option.kind, option.share)
    best = next((each for each in demand.offers if (each.option.kind, each.option.share) == here), None)
    if best is None or option.processes > 1:
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
    """Yield `stack` with more of the models from `begin` on, in every way that carries their rates.

    A group has at most GROUP_MAX models.
    """
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
    """A stack, with what it takes and carries.

    `worst`: what it carries under as much pressure as there can be.
    """

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
        """Return the slot and what it carries under that pressure; None if that makes it miss a budget."""
        if pressure not in self._settled:
            slot = settle(self.stack, pressure)
            self._settled[pressure] = None if slot is None else (slot, self._parted(slot))
        return self._settled[pressure]

    def _parted(self, slot: Slot) -> Parted:
        pairs = zip(self._models, slot.residents, self._rates, strict=True)
        return tuple((model, min(each.capacity / rate, 1.0)) for model, each, rate in pairs)

    def carried(self, pressure: float) -> Parted:
        """Return what the slice carries under that pressure: nothing if it misses a budget."""
        found = self.beside(pressure)
        return () if found is None else found[1]


def _worth(slices: Sequence[_Slice], parts: Parts, models: int) -> list[_Slice]:
    """Return the slices worth having, the smallest first, with their `worst`.

    A slice is not worth having if another takes no more and carries at its worst what this one does at its
    best.
    """
    dense = max((each.pressure / each.amount for each in slices), default=0.0)
    most = (parts.slices_max - 1) * max((each.pressure for each in slices), default=0.0)
    kept: list[_Slice] = []
    table = np.zeros((len(slices), models + 2))  # parts carried, then memory and pressure, negated
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
    """A depth-first search over the multisets of slices, small slices first. `found` gets the legal ones."""

    def __init__(self, slices: Sequence[_Slice], pool: Pool, parts: Parts, models: int) -> None:
        self._slices, self._parts, self._models = slices, parts, models
        self._memory_bytes = pool.memory_bytes or inf
        self._looks = 0
        self.found: list[tuple[list[float], tuple[Slot, ...]]] = []

    def run(self, chosen: tuple[_Slice, ...] = (), begin: int = 0) -> bool:
        """Search all multisets that hold `chosen` and more slices from `begin` on.

        Return whether that took no more than LOOKS.
        """
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
        """Add a legal multiset to `found`; return False if a slice misses a budget or is needless.

        A slice is needless if its models' rates are carried without it, even where all slices carry the least
        they can. The bundle without it is then as good.
        """
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
    """Return the sum of the parts, by place of the model."""
    found = [0.0] * models
    for each in parted:
        for model, part in each:
            found[model] += part
    return found


def _front(
    found: Sequence[tuple[Sequence[float], tuple[Slot, ...]]], models: int, limit: int
) -> Patterns | None:
    """Return the ways that no other is as good as; None if there are more than `limit`.

    Ways that carry more in all come first, and no later way can be as good as an earlier one.
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
