"""Packing: a greedy placement on devices that are divided by amounts, for fleets of any size.

It cuts demands and merges the pieces into slices (`demand_pieces.py`). The slices go to devices, the largest
first (`open_devices.py`). Then it empties devices if their slices fit elsewhere, and replaces expensive
devices by cheaper ones that carry the same. At last it drops slices that turned out needless.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from operator import attrgetter
from typing import Any

from serving.policy.placement.packing.demand_pieces import (
    DemandPiece,
    Merger,
    Way,
    expect_crowd,
    find_ways,
    parts_pools,
)
from serving.policy.placement.packing.device_packing import ShareLadder, find_limits
from serving.policy.placement.packing.open_devices import OpenDevices
from serving.policy.placement.packing.shared_slices import Stack, Turn
from serving.policy.placement.packing.spread import Spread
from serving.policy.placement.terms.plan import ROUNDING, Bundle, Draft, Slot
from serving.policy.placement.terms.problem import PlacementProblem, Pool

CAUTIONS = (1.0, 0.0, 1.5, 0.5, 2.0)
"""The multiple of the expected pressure of neighbours that slices are made for. No single one is best
everywhere. The best of all five takes 5 % fewer devices than the first alone, on small fleets with much
interference."""
ATTEMPTS = 500
"""The number of demands that are packed in all: small fleets in many ways, large ones in the first."""
CLEARED = 64
"""The number of devices that the packing tries to empty, the emptiest first."""


def pack(problem: PlacementProblem) -> Draft:
    """Return a draft on the pools that are divided by amounts.

    It does not carry what does not fit there (`plan.short`), nor a model without an option there.
    """
    rank = partial(_rank, problem)
    ways = [*islice(_ways(problem), max(1, ATTEMPTS // max(len(problem.demands), 1)))]
    best = min((_put_all(problem, each, attrgetter("order")) for each in ways), key=rank)
    if rank(best)[0] > 0:
        others = (_put_all(problem, each, partial(_worth, problem)) for each in ways)
        best = min((best, *others), key=rank)
    shelves = [best.shelves[place] for place in sorted(best.shelves)]
    return Draft(tuple(Bundle(each.pool.name, each.slots, each.domain) for each in shelves), "packing")


WaysOf = Mapping[str, Sequence[Way]]
"""The ways to run each model, by model. Models without any are left out."""


def _ways(problem: PlacementProblem) -> Iterator[WaysOf]:
    """Yield how models may be run, with more and less caution.

    At last, yield how they may be run with each kind of device where possible.
    """
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
    """Return a sort key, least is best: the missing parts, the cost, and the share of devices that is taken.

    Missing parts are parts of rates and failure domains.
    """
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
    """Return a sort key for fleets that are too small.

    First comes the piece that carries most of demands for what it takes.
    """
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
    """Return the number of slices that there can be of a model at all."""
    smallest = min(way.option.share.amount for way in ways)
    return sum(len(pool.devices) * int(find_limits(pool)[0] / smallest + 1) for pool in pools)


def squeeze(shelves: OpenDevices, ways: Sequence[Way], turn: Turn, domains: Iterable[str | None]) -> None:
    """Carry what is possible of `turn` on slices of its own, of any share, on any kind of device.

    The slices go to the first of the domains that has room, and what is left goes to the next.
    """
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
    """Drop slices if all of their models are carried without them.

    The emptiest devices come first, and of each device the smallest slices. A model that has to be in several
    domains keeps its slices.
    """
    total = _carried(slot for shelf in shelves.shelves.values() for slot in shelf.slots)
    for place in sorted(shelves.shelves, key=shelves.fullness):
        shelf = shelves.shelves[place]
        kept = []
        for stack, slot in sorted(zip(shelf.stacks, shelf.slots, strict=True), key=_amount):
            demands = [problem.demand_of[turn.model] for turn in stack]
            without = {each.model: total[each.model] - each.capacity for each in slot.residents}
            if all(each.domains_min < 2 and without[each.model] >= each.rate for each in demands):
                total.update(without)
            else:  # from now on, all that it carries is counted on, not only what was planned
                pairs = zip(stack, slot.residents, strict=True)
                kept.append(tuple(replace(turn, rate=each.capacity) for turn, each in pairs))
        if len(kept) < len(shelf.stacks):
            shelves.keep(place, kept)


def _amount(pair: tuple[Stack, Slot]) -> float:
    return pair[1].share.amount


def _carried(slots: Iterable[Slot]) -> dict[str, float]:
    """Return what the slots carry of each model, in rows a second."""
    found: dict[str, float] = defaultdict(float)
    for slot in slots:
        for resident in slot.residents:
            found[resident.model] += resident.capacity
    return found
