"""The last step of price-and-round: whole devices, and whole replicas of the demands that the mix divides."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from serving.policy.placement.formulation.choices import (
    REPLICA,
    Choices,
    add_devices,
    add_replicas,
    missing_price,
)
from serving.policy.placement.formulation.covers import Cover
from serving.policy.placement.formulation.master import CoverMix
from serving.policy.placement.programs import InfeasibleError, Program, Solution
from serving.policy.placement.terms.plan import ROUNDING

NEAR = 1e-9
LOOSE = 10
"""The demands that are settled here besides those that the mix divides: the ones that are carried most in
excess. More make the program harder and its answer no better (measured from 0 to 100)."""
LOOSE_MAX = 200
"""With so many loose demands, the largest first, something may be missing if whole devices still do not
suffice."""
NODES_MAX, NODES_SMALLER = 500, 20
"""Limits on nodes: unlike limits on time, they give the same problem the same answer."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """Whole numbers: `replicas` by choice, and `devices` by division and way.

    `missing`: the parts of demands that are not carried, in all.
    """

    replicas: Counter[int]
    devices: Sequence[Sequence[int]]
    missing: float


def settle(every: Choices, mix: CoverMix, least: float) -> Numbers:
    """Return whole numbers near the mix, which carry what it carries if whole devices suffice.

    `least`: what devices cost at least if nothing is missing.
    """
    excess = {place: _excess(every, cover) for place, cover in mix.settled.items()}
    size = {place: _size(every, cover) for place, cover in mix.settled.items()}
    loose = {*mix.divided, *sorted(excess, key=lambda place: (-excess[place], place))[:LOOSE]}
    larger = sorted(size, key=lambda place: (-size[place], place))
    short = mix.missing > ROUNDING
    while True:
        found = _Settling(every, mix, loose, None if short else least).solve()
        if found:
            return found
        more = [place for place in larger if place not in loose][: 3 * len(loose)]
        if not short and (not more or len(loose) >= LOOSE_MAX):
            short = True
        elif more:
            loose |= {*more}
        else:
            return Numbers(Counter(), [[0] * len(each.gives) for each in every.divisions], len(every.demands))


def _size(every: Choices, cover: Cover | None) -> float:
    """Return how many devices a cover takes."""
    return sum(every.each[place].taken.part * count for place, count in cover.pieces) if cover else 0.0


def _excess(every: Choices, cover: Cover | None) -> float:
    """Return how many devices a cover takes for what it carries in excess."""
    if cover is None:
        return 0.0
    carried = sum(every.each[place].offer.throughput * count for place, count in cover.pieces)
    return _size(every, cover) * (1 - every.demands[cover.demand].rate / carried)


class _Settling:
    """The program: any numbers of replicas for the loose demands, and their covers for the settled ones.

    Devices cost at least `least`. If that is None, something may be missing.
    """

    def __init__(self, every: Choices, mix: CoverMix, loose: Collection[int], least: float | None) -> None:
        self._every, self._mix, self._loose = every, mix, loose
        self._program = program = Program()
        self._devices = [
            add_devices(program, each, len(each.pool.devices), integer=True) for each in every.divisions
        ]
        self._settled = Counter(self._take_covers())
        price = missing_price(every)
        self._missing = {place: program.column(price, upper=float(least is None)) for place in sorted(loose)}
        self._replicas = {
            place: add_replicas(program, self._devices[each.division], each, integer=True)
            for place, each in enumerate(every.each)
            if each.demand in loose
        }
        self._carry()
        if least is not None:
            prices = [(column, program.costs[column]) for each in self._devices for column in each.columns]
            program.row(prices, lower=least * (1 - NEAR))

    def _take_covers(self) -> dict[int, int]:
        """Add what the covers of the settled demands take, and return their replicas by choice.

        What they take is constant, so it is a column with the value 1.
        """
        covers = [cover for place, cover in self._mix.settled.items() if cover and place not in self._loose]
        replicas = {place: count for cover in covers for place, count in cover.pieces}
        constant = self._program.column(upper=1.0)
        self._program.lower[constant] = 1.0
        for place, count in replicas.items():
            choice = self._every.each[place]
            rows = self._devices[choice.division].rows
            for resource, amount in choice.taken.resources:
                self._program.put(rows[resource], constant, -count * amount)
        return replicas

    def _carry(self) -> None:
        """Add rows that carry each loose demand, by enough replicas, except for what is missing."""
        program, demands = self._program, self._every.demands
        least = {place: demands[place].domains_min for place in self._missing}
        carried = {place: program.row([(column, 1.0)], lower=1.0) for place, column in self._missing.items()}
        spread = {
            place: program.row([(column, least[place])], lower=least[place])
            for place, column in self._missing.items()
            if least[place] > 1
        }
        for place, column in self._replicas.items():
            choice = self._every.each[place]
            part = min(choice.offer.throughput / demands[choice.demand].rate, 1.0)
            program.put(carried[choice.demand], column, part)
            if choice.demand in spread:
                program.put(spread[choice.demand], column, 1.0)

    def solve(self) -> Numbers | None:
        """Return the numbers, or None if there are none or none are found."""
        try:
            found = self._program.solve(nodes_max=NODES_MAX)
        except InfeasibleError:
            return None
        if found is None:
            return None
        found = self._smaller(found)
        loose = {place: int(found.values[column]) for place, column in self._replicas.items()}
        missing = sum(found.values[column] for column in self._missing.values())
        left_out = sum(
            cover is None for place, cover in self._mix.settled.items() if place not in self._loose
        )
        return Numbers(
            self._settled + Counter(loose),
            [[int(found.values[column]) for column in each.columns] for each in self._devices],
            float(missing) + left_out,
        )

    def _smaller(self, found: Solution) -> Solution:
        """Return a solution with replicas on as little of the devices as is found.

        It has as many devices, and no more missing.
        """
        program = self._program
        for each in self._devices:
            terms = [(column, 1.0) for column in each.columns]
            program.row(terms, upper=sum(found.values[column] for column in each.columns) + NEAR)
        missing = [*self._missing.values()]
        program.row([(column, 1.0) for column in missing], upper=sum(found.values[missing]) + NEAR)
        each_of = self._every.each
        parts = {column: each_of[place].taken.part + REPLICA for place, column in self._replicas.items()}
        program.costs = [parts.get(column, 0.0) for column in range(len(program.costs))]
        try:
            return program.solve(nodes_max=NODES_SMALLER) or found
        except InfeasibleError:  # infeasible by less than the solver's tolerance
            return found
