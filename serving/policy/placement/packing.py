"""Packing: a greedy placement on devices that are divided by amounts, for fleets of any size.

Demands are cut and merged to slices (`pieces.py`), which go to devices, the largest first (`shelves.py`).
Then devices are emptied whose slices fit elsewhere, dear ones are exchanged for cheap ones that do, and what
turned out needless goes.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from operator import attrgetter
from typing import Any

from serving.policy.placement.demand_pieces import (
    DemandPiece,
    Merger,
    Way,
    expect_crowd,
    find_ways,
    parts_pools,
)
from serving.policy.placement.device_packing import ShareLadder, find_limits
from serving.policy.placement.open_devices import OpenDevices
from serving.policy.placement.plan import ROUNDING, Bundle, Draft, Slot
from serving.policy.placement.problem import PlacementProblem, Pool
from serving.policy.placement.shared_slices import Stack, Turn
from serving.policy.placement.spread import Spread

CAUTIONS = (1.0, 0.0, 1.5, 0.5, 2.0)
"""How much of the expected pressure of neighbours slices are made for. None is best everywhere: the best of
all five takes 5 % fewer devices than the first alone, on small fleets with much interference."""
ATTEMPTS = 500
"""Demands that are packed in all: small fleets in many ways, large ones in the first."""
CLEARED = 64
"""Devices that are tried to be emptied, the emptiest first."""


def pack(problem: PlacementProblem) -> Draft:
    """A placement on the pools that are divided by amounts. What does not fit there is not carried
    (`plan.short`), nor is a model without an option there."""
    rank = partial(_rank, problem)
    ways = [*islice(_ways(problem), max(1, ATTEMPTS // max(len(problem.demands), 1)))]
    best = min((_put_all(problem, each, attrgetter("order")) for each in ways), key=rank)
    if rank(best)[0] > 0:
        others = (_put_all(problem, each, partial(_worth, problem)) for each in ways)
        best = min((best, *others), key=rank)
    shelves = [best.shelves[place] for place in sorted(best.shelves)]
    return Draft(tuple(Bundle(each.pool.name, each.slots, each.domain) for each in shelves), "packing")


WaysOf = Mapping[str, Sequence[Way]]
"""By model; those without any are left out."""


def _ways(problem: PlacementProblem) -> Iterator[WaysOf]:
    """How models may be run, with more and less caution; then with each kind of device where it can be."""
    pools = parts_pools(problem)
    asked = [each for each in problem.demands if each.rate > 0]
    crowd = expect_crowd(asked, pools)

    def find(caution: float, kinds: Container[str]) -> WaysOf:
        cautious = {kind: caution * pressure for kind, pressure in crowd.items()}
        found = {each.model: find_ways(each, pools, cautious) for each in asked}
        return {
            model: [way for way in every if way.option.kind in kinds] or every
            for model, every in found.items()
            if every
        }

    kinds = sorted({pool.kind for pool in pools})
    for caution in CAUTIONS if any(crowd.values()) else CAUTIONS[:1]:
        yield find(caution, kinds)
    for kind in kinds if len(kinds) > 1 else ():
        yield find(CAUTIONS[0], (kind,))


def _rank(problem: PlacementProblem, shelves: OpenDevices) -> tuple[float, float, float]:
    """The least is the best: parts of rates and domains that are missing, cost, what is taken of devices."""
    there = shelves.shelves.values()
    carried = _carried(slot for shelf in there for slot in shelf.slots)
    domains = {(turn.model, shelf.domain) for shelf in there for stack in shelf.stacks for turn in stack}
    count = Counter(model for model, domain in domains if domain is not None)
    asked = [each for each in problem.demands if each.rate > 0]
    missing = sum(max(1 - carried[each.model] / each.rate, 0.0) for each in asked)
    missing += sum(max(each.domains_min - count[each.model], 0) for each in asked if each.domains_min > 1)
    return (
        round(missing, 6),
        sum(shelf.pool.price for shelf in there),
        sum(map(shelves.fullness, shelves.shelves)),
    )


def _worth(problem: PlacementProblem, piece: DemandPiece) -> tuple[float, str]:
    """For fleets that are too small: what carries most of demands for what it takes first."""
    parts = sum(turn.rate / problem.demand_of[turn.model].rate for turn in piece.stack)
    return -parts / piece.part, piece.stack[0].model


def _put_all(
    problem: PlacementProblem, ways: WaysOf, order: Callable[[DemandPiece], tuple[Any, ...]]
) -> OpenDevices:
    pools = parts_pools(problem)
    spread = Spread(pools)
    pieces = [
        piece
        for model, each in ways.items()
        for piece in spread.apart(problem.demand_of[model], each, _most(each, pools))
    ]
    merged = Merger(pools).merge((each for each in pieces if not each.whole), ways)
    shelves = OpenDevices(pools, ShareLadder(problem.demand_of))
    late = [
        piece
        for piece in sorted([*(each for each in pieces if each.whole), *merged], key=order)
        if not shelves.place(piece.stack, piece.domain)
    ]
    for piece in late:
        for turn in piece.stack:
            squeeze(shelves, ways[turn.model], turn, spread.instead(turn, piece.domain))
    for place in sorted(shelves.shelves, key=shelves.fullness)[:CLEARED]:
        shelves.clear(place)
    for place in sorted(shelves.shelves):
        shelves.cheapen(place)
    drop_needless(shelves, problem)
    return shelves


def _most(ways: Sequence[Way], pools: Iterable[Pool]) -> int:
    """Slices that there can be of a model at all."""
    smallest = min(way.option.share.amount for way in ways)
    return sum(len(pool.devices) * int(find_limits(pool)[0] / smallest + 1) for pool in pools)


def squeeze(shelves: OpenDevices, ways: Sequence[Way], turn: Turn, domains: Iterable[str | None]) -> None:
    """Carries on slices of its own, of any share, on any kind of device, what it can of that, in the first of
    the domains that has room, and what is left in the next."""
    left = turn.rate
    for domain in domains:
        if left <= ROUNDING * turn.rate:
            return
        for way in sorted(ways, key=attrgetter("row_cost")):
            while left > ROUNDING * turn.rate:
                rate = min(left, way.throughput)
                if not shelves.place((replace(turn, option=way.option, rate=rate),), domain):
                    break
                left -= rate


def drop_needless(shelves: OpenDevices, problem: PlacementProblem) -> None:
    """Takes away slices whose models are all carried without them, on the emptiest devices first and the
    smallest of each; none of a model that has to be in several domains."""
    total = _carried(slot for shelf in shelves.shelves.values() for slot in shelf.slots)
    for place in sorted(shelves.shelves, key=shelves.fullness):
        shelf = shelves.shelves[place]
        kept = []
        for stack, slot in sorted(zip(shelf.stacks, shelf.slots, strict=True), key=_amount):
            demands = [problem.demand_of[turn.model] for turn in stack]
            without = {each.model: total[each.model] - each.capacity for each in slot.residents}
            if all(each.domains_min < 2 and without[each.model] >= each.rate for each in demands):
                total.update(without)
            else:  # what it carries, not what it was to carry, is counted on now
                pairs = zip(stack, slot.residents, strict=True)
                kept.append(tuple(replace(turn, rate=each.capacity) for turn, each in pairs))
        if len(kept) < len(shelf.stacks):
            shelves.keep(place, kept)


def _amount(pair: tuple[Stack, Slot]) -> float:
    return pair[1].share.amount


def _carried(slots: Iterable[Slot]) -> dict[str, float]:
    """By model, rows a second."""
    found: dict[str, float] = defaultdict(float)
    for slot in slots:
        for resident in slot.residents:
            found[resident.model] += resident.capacity
    return found
