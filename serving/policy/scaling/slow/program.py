"""The slow plan as an integer program, exact: for few models, and for the last few of many.

Rows and columns are Proteus's (ASPLOS 2024, section 4), linear as devices are counted by kind. It has one
rate for a variant on a device; here n replicas off one queue carry more than n times one (`Capacity`), which
is not linear. So the size of a model's pool is chosen too, out of classes of sizes, and within a class each
replica has the pace of the class's least pool: of up to SINGLE replicas every size is a class of its own, so
there nothing is lost; beyond, where pools of n and 5/4 n differ little, a class holds a quarter more.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from serving.policy.placement.programs import Program
from serving.policy.scaling.slow.covers import Covers
from serving.policy.scaling.slow.problem import ScalingProblem
from serving.policy.scaling.slow.tables import Ints

SINGLE = 8
WIDER = 1.25


@dataclass(frozen=True, slots=True)
class Left:
    """What may be used: `count` of slices by kind, and `cost` of an hour."""

    count: Ints
    cost: float


@dataclass(frozen=True, slots=True)
class Size:
    """A class of sizes of a model's pool: `least` to `most` replicas, each at the pace of `pool` of them."""

    least: int
    most: int
    pool: int


Sizes = Mapping[int, Sequence[Size]]
"""Of the pools of those claims that are planned."""


def columns(problem: ScalingProblem, sizes: Sizes) -> int:
    """Return how many integers the program has."""
    return sum((len(problem.of(claim)) + 1) * len(here) for claim, here in sizes.items())


def solve_exact(
    problem: ScalingProblem, sizes: Sizes, left: Left, nodes_max: int | None = None
) -> Ints | None:
    """Return the replicas of these claims by offer, at least cost; None where `nodes_max` branches found
    nothing.

    With a limit it may be dearer than it has to be. Deterministic: nothing depends on time.
    """
    draft = ProgramDraft(problem, left)
    for claim, here in sizes.items():
        draft.add(claim, here, problem.of(claim))
    return draft.solve(nodes_max)


def every_size(problem: ScalingProblem, claim: int) -> list[Size]:
    """Return the sizes of all pools that may be of use to a claim."""
    found: list[Size] = []
    size, most = 1, useful(problem, claim)
    while size <= most:
        last = min(most, size if size <= SINGLE else int(size * WIDER))
        found.append(Size(size, last, size))
        size = last + 1
    return found


def useful(problem: ScalingProblem, claim: int) -> int:
    """Return how many replicas a claim can use: that many of any mixture carry all its rows. If some may be
    lost, they include its least replicas, which may not."""
    places = problem.of(claim)
    kinds, claims = problem.kinds, problem.claims
    needed = problem.offers.needed(places, np.full(len(places), claims.rate[claim]))
    most, least = int(needed.max(initial=0)), int(claims.least[claim])
    here = np.unique(problem.offers.kind[places])
    both = claims.firm[claim] and kinds.spot[here].any()
    return min(
        most + least if both else max(most, least), int(claims.most[claim]), int(kinds.count[here].sum())
    )


class ProgramDraft:
    """The program while it is written, claim by claim."""

    def __init__(self, problem: ScalingProblem, left: Left) -> None:
        self.program = Program()
        self._problem = problem
        self._counts = [self.program.row(upper=float(count)) for count in left.count]
        self._paid = self.program.row(upper=left.cost) if left.cost < inf else None
        self._numbers: list[tuple[int, int, int]] = []  # an offer, a column of replicas, so many each

    def add(self, claim: int, sizes: Sequence[Size], places: Ints) -> None:
        """Add the columns and rows of one more claim, for these of its offers."""
        claims = self._problem.claims
        shares = self._shares(claim, places)
        numbers: list[tuple[int, int]] = []
        one = self.program.row(upper=1.0)
        for size in sizes:
            pace = self._problem.offers.pace(places, np.full(len(places), size.pool))
            here = [(int(place), self._number(int(place))) for place in places]
            chosen = self.program.column(upper=1.0, integer=True)
            self.program.put(one, chosen, 1.0)
            self.program.row([(chosen, -size.least), *((column, 1.0) for _, column in here)], lower=0.0)
            self.program.row([(chosen, -size.most), *((column, 1.0) for _, column in here)], upper=0.0)
            for (_, column), row, rate in zip(here, shares, pace, strict=True) if shares else ():
                self.program.put(row, column, min(1.0, float(rate / claims.rate[claim])))
            numbers += here
        self._keep_least(claim, numbers)
        self._keep_current(claim, numbers)

    def pick(self, every: Covers, places: Ints) -> None:
        """Add the choice of one of these covers, all of one claim, or of none if there is room for none.
        Without a cover all its rows are shed, and its least is lacking."""
        claims, claim = self._problem.claims, int(every.claim[places[0]])
        nothing = float(claims.shed_price[claim]) * (1.0 + 2.0 * float(claims.least[claim]))
        one = self.program.row([(self.program.column(nothing, upper=1.0), 1.0)], lower=1.0, upper=1.0)
        main, side = every.main[places].tolist(), every.side[places].tolist()
        parts = zip(main, every.count[places].tolist(), side, every.beside[places].tolist(), strict=True)
        for cost, (first, count, second, beside) in zip(every.cost[places].tolist(), parts, strict=True):
            column = self.program.column(cost, upper=1.0, integer=True)
            self.program.put(one, column, 1.0)
            self._use(column, first, count)
            self._use(column, second, beside)

    def solve(self, nodes_max: int | None) -> Ints | None:
        """Return the replicas by offer of all claims that were added; None where none were found so far."""
        solved = self.program.solve(nodes_max=nodes_max)
        if solved is None:
            return None
        found = np.zeros(len(self._problem.offers.keys), np.int64)
        for place, column, factor in self._numbers:
            found[place] += factor * round(solved.values[column])
        return found

    def _number(self, place: int) -> int:
        """Return the column of replicas of an offer."""
        kind = self._problem.offers.kind[place]
        column = self.program.column(float(self._problem.kinds.price[kind]), integer=True)
        self._use(column, place, 1)
        return column

    def _use(self, column: int, place: int, count: int) -> None:
        """Enter that each of a column means `count` replicas of an offer, in the rows that all claims
        share."""
        if not count:
            return
        kind = int(self._problem.offers.kind[place])
        self.program.put(self._counts[kind], column, count)
        if self._paid is not None:
            self.program.put(self._paid, column, count * float(self._problem.kinds.paid[kind]))
        self._numbers.append((place, column, count))

    def _shares(self, claim: int, places: Ints) -> list[int]:
        """Return a row for each offer: what it answers, as a share of all, is carried. Return [] if nothing
        comes."""
        claims = self._problem.claims
        if claims.rate[claim] <= 0:
            return []
        whole = self.program.row(lower=1.0, upper=1.0)
        self.program.put(whole, self.program.column(float(claims.shed_price[claim])), 1.0)
        rows = []
        for place in places:
            loss = float(claims.loss_price[claim] * self._problem.offers.loss[place])
            column = self.program.column(loss, upper=1.0)
            self.program.put(whole, column, 1.0)
            rows.append(self.program.row([(column, -1.0)], lower=0.0))
        return rows

    def _keep_least(self, claim: int, numbers: Sequence[tuple[int, int]]) -> None:
        claims = self._problem.claims
        least = int(claims.least[claim])
        if least == 0 or not numbers:
            return
        lacking = self.program.column(2.0 * float(claims.shed_price[claim]), upper=least)
        here = self._firm(numbers) if claims.firm[claim] else (column for _, column in numbers)
        self.program.row([(lacking, 1.0), *((column, 1.0) for column in here)], lower=least)

    def _firm(self, numbers: Sequence[tuple[int, int]]) -> Iterator[int]:
        for place, column in numbers:
            if not self._problem.kinds.spot[self._problem.offers.kind[place]]:
                yield column

    def _keep_current(self, claim: int, numbers: Sequence[tuple[int, int]]) -> None:
        """Charge the load of replicas beyond those that there are of a kind."""
        load = float(self._problem.claims.load[claim])
        by_kind: dict[int, list[int]] = {}
        for place, column in numbers:
            by_kind.setdefault(int(self._problem.offers.kind[place]), []).append(column)
        for kind, here in by_kind.items():
            more = self.program.column(load * float(self._problem.kinds.price[kind]))
            terms = [(more, -1.0), *((column, 1.0) for column in here)]
            self.program.row(terms, upper=float(self._problem.claims.current[claim, kind]))
