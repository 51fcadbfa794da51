"""Pieces: how demands are cut for devices that are divided by amounts, and which pieces share a slice.

The cut follows Nexus (SOSP 2019, section 6.1). A model gets whole slices for what saturates them, at the
share where a row costs least. The rest of its rate is merged with the rests of other models, by squishy best
fit.
"""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from serving.policy.placement.packing.device_packing import find_limits, find_taken
from serving.policy.placement.packing.shared_slices import NEAR, Stack, Turn, batches
from serving.policy.placement.terms.plan import ROUNDING
from serving.policy.placement.terms.problem import Demand, Option, Parts, PlacementProblem, Pool
from serving.values.slice_specs import Share

TRIES = 8
"""The number of slices of each share that a piece is tried on, the fullest first."""


@dataclass(frozen=True, slots=True)
class Way:
    """A way to run a model alone on a slice.

    `throughput`: what it carries beside neighbours with pressures that come to `around`, as is to be
    expected. The slice takes `part` of a device. Such a device costs `price` where it is cheapest.
    """

    option: Option
    throughput: float
    around: float
    part: float
    price: float

    @property
    def cost(self) -> tuple[float, float]:
        """The cost of the slice, then the part of a device that it takes.

        The part decides if nothing has a price.
        """
        return self.price * self.part, self.part

    @property
    def row_cost(self) -> tuple[float, float]:
        """The same for one row a second."""
        return self.price * self.part / self.throughput, self.part / self.throughput


@dataclass(frozen=True, slots=True)
class DemandPiece:
    """A slice that is to be placed and takes `part` of a device.

    `whole`: its model needs all of it. `domain`: the failure domain where it has to be, None for any.
    """

    stack: Stack
    part: float
    whole: bool = False
    domain: str | None = None

    @property
    def order(self) -> tuple[float, float, str]:
        """A sort key that has the largest first."""
        return -self.part, -self.stack[0].rate, self.stack[0].model


def parts_pools(problem: PlacementProblem) -> list[Pool]:
    """Return the pools that are divided by amounts and have a device, the cheapest first."""
    found = [each for each in problem.pools if isinstance(each.division, Parts) and each.devices]
    return sorted(found, key=lambda pool: (pool.price, pool.name))


def find_home(pools: Iterable[Pool], option: Option, memory_bytes: int) -> Pool | None:
    """Return the first pool where a slice for that option with so much memory fits, or None."""
    homes = (each for each in pools if each.fits(option))
    return next((each for each in homes if not each.memory_bytes or memory_bytes <= each.memory_bytes), None)


def find_part(pool: Pool, stack: Stack) -> float:
    """Return the largest part that such a slice takes of a device's amount, memory or number of slices."""
    return max(taken / limit for taken, limit in zip(find_taken((stack,)), find_limits(pool), strict=True))


def find_ways(demand: Demand, pools: Sequence[Pool], crowd: Mapping[str, float]) -> list[Way]:
    """Return the demand's options that carry something on one of the pools, the cheapest slice first.

    Of slices with equal cost, the one with more throughput comes first. `pools`: the cheapest first. `crowd`:
    what the pressures on a full device come to, by kind of device.
    """
    found = []
    for option in demand.options:
        pool = find_home(pools, option, option.memory_bytes)
        if pool is None:
            continue
        part = find_part(pool, (Turn.of(demand, option, 0.0),))
        around = crowd.get(pool.kind, 0.0) * (1 - part)
        budget_us = demand.slack * demand.slo_us
        offer = option.offer(budget_us, 1 + option.sensitivity * around) or option.offer(budget_us)
        if offer is not None:
            found.append(Way(option, offer.throughput, around, part, pool.price))
    return sorted(found, key=lambda way: (*way.cost, -way.throughput))


def expect_crowd(demands: Iterable[Demand], pools: Sequence[Pool]) -> dict[str, float]:
    """Return what the pressures on a full device come to, by kind of device.

    This is the mean over the models, weighted by what each is to take of the kind where a row is cheapest for
    it. If all together take less than one device, the pressure is as much less.
    """
    overloaded: dict[str, float] = defaultdict(float)
    devices: dict[str, float] = defaultdict(float)
    for demand in demands:
        ways = find_ways(demand, pools, {})
        if ways:
            best = min(ways, key=attrgetter("row_cost"))
            slices = demand.rate / best.throughput
            overloaded[best.option.kind] += slices * best.option.pressure
            devices[best.option.kind] += slices * best.part
    return {kind: overloaded[kind] / max(devices[kind], 1.0) for kind in overloaded}


def cut(demand: Demand, ways: Sequence[Way], slices_max: int) -> Iterator[DemandPiece]:
    """Yield the pieces of a demand: whole slices where a row is cheapest, and the cheapest for the rest.

    There are at most `slices_max` whole slices. If these would be fewer pieces than the failure domains asked
    for, the pieces are equal.
    """
    best = min(ways, key=attrgetter("row_cost"))
    count = int(demand.rate / best.throughput * (1 + NEAR))
    rest = demand.rate - count * best.throughput
    if rest <= ROUNDING * demand.rate:
        rest = 0.0
    if count + bool(rest) < demand.domains_min:
        for _ in range(demand.domains_min):
            yield _rest(demand, ways, demand.rate / demand.domains_min)
        return
    for _ in range(min(count, slices_max)):
        yield DemandPiece((Turn.of(demand, best.option, best.throughput),), best.part, whole=True)
    if rest:
        yield _rest(demand, ways, rest)


def _rest(demand: Demand, ways: Sequence[Way], rate: float) -> DemandPiece:
    enough = [each for each in ways if each.throughput >= rate * (1 - NEAR)]
    way = min(enough, key=lambda each: (*each.cost, each.option.processes))
    return DemandPiece((Turn.of(demand, way.option, rate),), way.part)


@dataclass(frozen=True, slots=True)
class _Fit:
    """A slice that a piece can join.

    It then leaves `waste` of a device unused, and `free` of its time.
    """

    waste: float
    place: int
    free: float
    stack: Stack


class Merger:
    """A merger of pieces into shared slices, the largest piece first.

    Each piece joins the slice, of any share, that it leaves least free. Slices are found by the part of their
    time that is left. A piece needs this part of it: its rate over what it would carry there alone. The cycle
    must then also be short enough for all.
    """

    def __init__(self, pools: Sequence[Pool]) -> None:
        self._pools = pools
        self._stacks: list[Stack] = []
        self._domains: list[str | None] = []
        self._left: list[float] = []
        self._free: dict[tuple[str, Share, str | None], list[tuple[float, int]]] = defaultdict(list)

    def merge(self, pieces: Iterable[DemandPiece], ways_of: Mapping[str, Sequence[Way]]) -> list[DemandPiece]:
        """Merge the pieces into as few slices as are found. `ways_of`: by model, the ways of all options."""
        for piece in sorted(pieces, key=attrgetter("order")):
            ways = [way for way in ways_of[piece.stack[0].model] if way.option.processes == 1]
            fits = [fit for way in ways if (fit := self._fullest(piece, way))]
            if fits:
                self._put(min(fits, key=attrgetter("waste", "place")))
            else:
                self._open(piece, ways)
        return [self._piece(place) for place in range(len(self._stacks))]

    def _fullest(self, piece: DemandPiece, way: Way) -> _Fit | None:
        """Return the slice of that share that is fullest with the piece, or None."""
        need = piece.stack[0].rate / way.throughput
        turn = Turn(piece.stack[0].model, way.option, piece.stack[0].rate, piece.stack[0].bound_us)
        slices = self._free[way.option.kind, way.option.share, piece.domain]
        begin = bisect_left(slices, (need, -1))
        for free, place in slices[begin : begin + TRIES]:
            grown = (*self._stacks[place], turn)
            held = sum(each.option.memory_bytes for each in grown)
            there = any(each.model == turn.model for each in self._stacks[place])
            if there or find_home(self._pools, way.option, held) is None:
                continue
            if batches(grown, way.around) is not None:
                return _Fit((free - need) * way.part, place, free - need, grown)
        return None

    def _put(self, fit: _Fit) -> None:
        option = fit.stack[0].option
        slices = self._free[option.kind, option.share, self._domains[fit.place]]
        slices.remove((self._left[fit.place], fit.place))
        insort(slices, (fit.free, fit.place))
        self._stacks[fit.place], self._left[fit.place] = fit.stack, fit.free

    def _open(self, piece: DemandPiece, ways: Iterable[Way]) -> None:
        """Open a slice for the piece.

        No other piece joins it if its option runs several batches at once.
        """
        (turn,) = piece.stack
        way = next((each for each in ways if each.option == turn.option), None)
        free = 1 - turn.rate / way.throughput if way else 0.0
        if way:
            key = turn.option.kind, turn.option.share, piece.domain
            insort(self._free[key], (free, len(self._stacks)))
        self._stacks.append(piece.stack)
        self._domains.append(piece.domain)
        self._left.append(free)

    def _piece(self, place: int) -> DemandPiece:
        stack = self._stacks[place]
        held = sum(turn.option.memory_bytes for turn in stack)
        pool = find_home(self._pools, stack[0].option, held)
        part = find_part(pool, stack) if pool else 1.0
        return DemandPiece(stack, part, domain=self._domains[place])
