"""The master program: the cheapest mix of covers of all demands on all devices.

The program mixes the covers that it knows, and so gives slices prices. A demand with a cheaper cover at those
prices adds it (column generation; Gilmore and Gomory 1961, Dantzig and Wolfe 1960). A vertex divides no more
demands between covers than there are scarce resources. These are a few dozen, for a fleet of any size.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from serving.policy.placement.formulation.choices import Choices, Prices, add_devices, missing_price
from serving.policy.placement.formulation.covers import Cover, Item, Search, cover, items
from serving.policy.placement.programs import Program

COVERS_MAX = 2
"""The covers of a demand that a round adds. With 6 the answer is no better, and takes twice the time
(measured)."""
ROUNDS_MAX = 20
WORTH = 1e-6
"""How much cheaper, relatively, a cover has to be to be added."""
NEAR = 1e-9
"""The part of a rate that may be missing, so that two replicas carry twice what one does."""
WHOLE = 1 - 1e-6


@dataclass(frozen=True, slots=True)
class CoverMix:
    """The result of the master program.

    - `settled`: the one cover of each demand that has one, None if a demand is not carried at all.
    - `divided`: the other demands.
    - `missing`: the parts of demands that are not carried, in all.
    - `prices`: the prices of the last round.
    """

    settled: Mapping[int, Cover | None]
    divided: tuple[int, ...]
    missing: float
    prices: Prices


def mix(every: Choices, prices: Prices, tiny: float) -> CoverMix:
    """Return the cheapest mix.

    `prices`: the prices to begin with. `tiny`: as in `items`. If the devices do not suffice, the mix carries
    as much as can be, by parts of demands.
    """
    master = _Master(every, tiny)
    paid = [inf] * len(every.demands)
    for _ in range(ROUNDS_MAX):
        if not master.add(_cheapest(every, items(every, prices, tiny), paid)):
            break
        prices, paid = master.solve()
    return master.mix()


def _cheapest(every: Choices, known: Sequence[Sequence[Item]], paid: Sequence[float]) -> Iterator[Cover]:
    """Yield the covers of each demand that cost least, and less than is paid."""
    for place, (demand, each, now) in enumerate(zip(every.demands, known, paid, strict=True)):
        search = Search(each, COVERS_MAX, now * (1 - WORTH)).run(demand.rate * (1 - NEAR), demand.domains_min)
        for _, counts in search.found:
            yield cover(place, each, counts)


class _Master:
    """The linear program of the mix.

    Call `add` with at least one cover before `solve`, and `solve` before `mix`.
    """

    def __init__(self, every: Choices, tiny: float) -> None:
        self._every, self._tiny = every, tiny
        self._program = program = Program()
        self._devices = [add_devices(program, each, len(each.pool.devices)) for each in every.divisions]
        self._rows = [program.row(lower=1.0) for _ in every.demands]
        price = missing_price(every)
        self._missing = [program.column(price) for _ in every.demands]
        for row, column in zip(self._rows, self._missing, strict=True):
            program.put(row, column, 1.0)
        self._columns: dict[Cover, int] = {}

    def add(self, covers: Iterable[Cover]) -> bool:
        """Add the covers; return whether any of them is new."""
        known = len(self._columns)
        for each in covers:
            if each not in self._columns:
                self._columns[each] = self._column(each)
        return len(self._columns) > known

    def _column(self, new: Cover) -> int:
        program, every = self._program, self._every
        pieces = [(every.each[place], count) for place, count in new.pieces]
        column = program.column(self._tiny * sum(choice.taken.part * count for choice, count in pieces))
        program.put(self._rows[new.demand], column, 1.0)
        for choice, count in pieces:
            rows = self._devices[choice.division].rows
            for resource, amount in choice.taken.resources:
                program.put(rows[resource], column, -count * amount)
        return column

    def solve(self) -> tuple[Prices, list[float]]:
        """Solve the program; return (prices, what is paid for each demand)."""
        self._found = found = self._program.relax()
        return self._prices(), [float(found.prices[row]) for row in self._rows]

    def _prices(self) -> Prices:
        """Return the prices of slices. A solver's rounding may make one negative: then it is 0."""
        found = self._found.prices
        return tuple(tuple(max(float(found[row]), 0.0) for row in each.rows) for each in self._devices)

    def mix(self) -> CoverMix:
        """Return the mix that was last solved."""
        values = self._found.values
        settled: dict[int, Cover | None] = {
            place: None for place, column in enumerate(self._missing) if values[column] >= WHOLE
        }
        for each, column in self._columns.items():
            if column < len(values) and values[column] >= WHOLE:
                settled[each.demand] = each
        divided = tuple(place for place in range(len(self._rows)) if place not in settled)
        return CoverMix(settled, divided, float(values[self._missing].sum()), self._prices())
