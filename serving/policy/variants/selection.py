"""Which variant runs a batch: the most accurate that its deadlines and what waits behind it allow.

SuperServe's SlackFit (NSDI 2025), but for the buckets of latency: the slack of what waits decides, batch by
batch. Of the variants on a slice those are rungs of a ladder that are quicker than all that are as accurate;
`climbing.py` says which of them carries the load. That one, or the one above it, answers while it leaves what
waits enough time; under pressure a batch steps down, at last to the lowest rung, before anything is given up.
"""

from collections.abc import Iterable, Sequence
from math import inf
from typing import Final, TypeVar

from serving.policy.batching.interface import LaneView, PieceView, ReplicaView
from serving.values.objectives import CHEAPEST, MOST_ACCURATE

SLACK_SHARE = 0.85
"""Of its slack that what waits may take on a rung above the last: the rest is for noise, and for who comes
meanwhile. In simulation (five rungs, 8 % of noise, 1 to 6 times the capacity of the first) 1.0 answers 0.2 %
less in time and 0.7 loses a tenth of a point of accuracy."""


_ROUNDING = 1e-9
RISK = 0.005
"""Of the requests of a model that may come while batches run that are too long for them to wait for: half of
what a 99 % objective allows."""


class VariantCost:
    """What a variant costs and is worth. `row_us`: what a row takes of a slice's time in batches of the size
    that is aimed at; `merit`: its accuracy, or where that is not known of all, its place from the end."""

    __slots__ = ("merit", "row_us")

    def __init__(self, row_us: float, merit: float) -> None:
        self.row_us: Final = row_us
        self.merit: Final = merit


class Rung(VariantCost):
    """A variant on a slice. `trust`: by how much its predictions are to be corrected, where they are old."""

    __slots__ = ("replica", "trust", "variant")

    def __init__(
        self, variant: str, replica: ReplicaView, row_us: float, merit: float, trust: float = 1.0
    ) -> None:
        super().__init__(row_us, merit)
        self.variant: Final = variant
        self.replica: Final = replica
        self.trust: Final = trust

    def predict_us(self, rows: int, size: int) -> float:
        """Return what to plan with for a batch."""
        return self.replica.predict_us(rows, size) * self.trust


AnyStep = TypeVar("AnyStep", bound=VariantCost)


def frontier(found: Iterable[AnyStep]) -> list[AnyStep]:
    """Return those that are quicker than all that have as much merit, the most merit first."""
    kept: list[AnyStep] = []
    for rung in sorted(found, key=_by_time):
        if not kept or rung.merit > kept[-1].merit:
            kept.append(rung)
    kept.reverse()
    return kept


def _by_time(rung: VariantCost) -> tuple[float, float]:
    return rung.row_us, -rung.merit


def preferred(rungs: Sequence[VariantCost], optimize: str) -> int:
    """Return the rung that answers without pressure. Of the balanced ones the one that gains most accuracy
    for its time, both as shares of what lies between the ends (the knee, as of Kneedle, Satopaa et al. 2011).
    """
    last = len(rungs) - 1
    if optimize == MOST_ACCURATE or not last:
        return 0
    if optimize == CHEAPEST:
        return last
    best, most = 0, -inf
    for index, rung in enumerate(rungs):
        gain = (rung.merit - rungs[last].merit) / (rungs[0].merit - rungs[last].merit)
        price = (rung.row_us - rungs[last].row_us) / (rungs[0].row_us - rungs[last].row_us)
        if gain - price > most:
            best, most = index, gain - price
    return best


def affordable(rung: VariantCost, afford_us: float) -> bool:
    """Return whether there is time for it, but for rounding."""
    return rung.row_us <= afford_us * (1 + _ROUNDING)


def carrying(rungs: Sequence[VariantCost], first: int, afford_us: float) -> int:
    """Return the most accurate rung, from `first` on, on which a row takes no more than `afford_us`; else the
    last."""
    for index in range(first, len(rungs)):
        if affordable(rungs[index], afford_us):
            return index
    return len(rungs) - 1


class LaneBacklog:
    """What waits for a slice when a batch of `lane` is formed, and what may come. `slices` take from the
    model's queue. In it, `kin_rows` wait in lanes that may share the batch, and `others_rows` in others.
    `requests` of it come a microsecond; `guard_us` is for late wake-ups.

    `others`: the lanes of any model that wait here too. Each is given by the latest start of its first piece,
    and when another slice of its model is free. `comers`: by model here, how long its requests of late could
    have waited (`Comers`), and when another of its slices is free.
    """

    __slots__ = (
        "comers", "guard_us", "kin_rows", "lane", "now_us", "others", "others_rows", "requests", "slices",
    )  # fmt: skip

    def __init__(self, lane: LaneView, slices: int, guard_us: float, now_us: int) -> None:
        self.lane: Final = lane
        self.slices: Final = slices
        self.guard_us: Final = guard_us
        self.now_us: Final = now_us
        self.kin_rows = 0
        self.others_rows = 0
        self.others: Sequence[tuple[float, int]] = ()
        self.comers: Sequence[tuple[Sequence[float], int]] = ()
        self.requests = 0.0

    @property
    def quiet(self) -> bool:
        """Whether nothing waits but one request."""
        return len(self.lane.pieces) == 1 and not (self.others or self.others_rows or self.kin_rows)

    def rows(self, rung: Rung) -> int:
        """Return the rows of a batch of the rung: this slice's part of what waits, as far as large batches
        pay."""
        part = -(-(self.lane.rows + self.kin_rows) // self.slices)
        return max(self.lane.pieces[0].rows, min(part, rung.replica.rows_worth(self.lane.bucket)))

    def spare_us(self, rung: Rung, pace: Rung) -> float:
        """Return how much later a batch of the rung could start and all deadlines are met. These are its own
        deadlines, those of other lanes and, at the pace of another rung, those of what waits behind it. It is
        below 0 if they are not met even now, or if too many requests that come meanwhile could not be
        answered."""
        lane, start_us = self.lane, self.now_us + self.guard_us
        pieces, rows = lane.pieces, self.rows(rung)
        head = pieces[0]
        batch_us = rung.predict_us(rows, lane.size)
        spare_us = (_due_us(head) if rows > head.rows else head.deadline_us) - start_us - batch_us
        for latest_us, elsewhere_us in self.others:
            spare_us = min(spare_us, latest_us - min(start_us + batch_us, elsewhere_us))
        if spare_us < 0 or self._shuts_out(batch_us):
            return -1.0
        step = max(1, pace.replica.rows_worth(lane.bucket))
        row_us = pace.row_us / self.slices
        left_rows = self.others_rows + max(self.kin_rows - max(rows - lane.rows, 0), 0)
        away_us = start_us + batch_us / self.slices + left_rows * row_us
        behind = max(lane.rows - rows, 0)
        place, done = _skip(pieces, 0, rows), 0
        while place < len(pieces) and spare_us >= 0:
            piece = pieces[place]
            end_us = away_us + min(done + step, behind) * row_us
            alone_us = away_us + pace.predict_us(piece.rows, piece.size)
            spare_us = min(spare_us, _due_us(piece) - max(end_us, alone_us))
            place = _skip(pieces, place, step)
            done += step
        return spare_us

    def _shuts_out(self, batch_us: float) -> bool:
        """Return whether, of any model here, more than RISK of the requests would come too late to wait for
        the end of such batches. Their share is the share of time in which such a batch runs, times the share
        of requests that come too late in it."""
        often = min(self.requests, 1 / batch_us)
        for patience_us, elsewhere_us in self.comers:
            wait_us = min(batch_us, float(elsewhere_us - self.now_us))
            missed_us = sum([wait_us - each for each in patience_us if each < wait_us], 0.0)
            if missed_us * often > RISK * len(patience_us):
                return True
        return False


def _due_us(piece: PieceView) -> float:
    """Return when a piece is to be back, with what is kept in reserve."""
    return piece.deadline_us - (1 - SLACK_SHARE) * (piece.deadline_us - piece.arrived_us)


def _skip(pieces: Sequence[PieceView], place: int, rows: int) -> int:
    """Return the place after the pieces that make up `rows` rows from `place` on; at least one piece."""
    left = rows - pieces[place].rows
    place += 1
    while place < len(pieces) and pieces[place].rows <= left:
        left -= pieces[place].rows
        place += 1
    return place


def choose(backlog: LaneBacklog, rungs: Sequence[Rung], first: int, afford_us: float) -> tuple[int, float]:
    """Return the rung that runs the batch, and how long it stays the choice while no request comes or goes.

    `first`: the rung that answers without pressure; a row may take `afford_us` of a slice's time.

    The rung above the one that carries the load is used while the backlog is short. Mixed with its neighbour,
    it carries the same load for more accuracy than any two rungs farther apart. (The frontier is concave, or
    nearly.) This does not hold if even the last rung cannot carry the load. A rung that has not run for long
    is tried if nothing else waits. Its figures may date from a time when the machine was busy otherwise.
    """
    last = len(rungs) - 1
    carries = carrying(rungs, first, afford_us)
    carried = affordable(rungs[carries], afford_us)
    tried = max(first, carries - 1) if carried else carries
    for index in range(first if carried and backlog.quiet else tried, last):
        rung = rungs[index]
        if index >= tried or rung.replica.untried(backlog.now_us):
            spare_us = backlog.spare_us(rung, rungs[max(carries, index + 1)])
            if spare_us >= 0:
                return index, spare_us
    return last, inf
