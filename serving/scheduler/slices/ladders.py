"""The variants that may answer on a slice, as a ladder, and why one further down has run a batch."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from types import MappingProxyType
from typing import Final

from serving.policy.batching.interface import PieceView
from serving.policy.variants.climbing import Allowance, Climber
from serving.policy.variants.selection import (
    LaneBacklog,
    Rung,
    VariantCost,
    carrying,
    choose,
    frontier,
    preferred,
)
from serving.scheduler.slices.replicas import Replica
from serving.scheduler.waiting.lanes import Queue
from serving.scheduler.waiting.requests import Wants
from serving.values.objectives import MOST_ACCURATE
from serving.values.vocabulary import NEVER_US, Downgrade

HOUR_S = 3600
KEPT = 64  # ladders of a slice
ANY_ROWS = 1 << 30
_UNLIMITED = Allowance()


class Ladder:
    """`rungs`, the most accurate first; `first` answers without pressure. `variants`: all that may, rungs or
    not. `lacks`: why no better one answers that would, "" where there is none. `dear`: all cost more than
    they may."""

    __slots__ = ("dear", "first", "lacks", "rungs", "variants")

    def __init__(
        self, variants: Sequence[str], rungs: Sequence[Rung], first: int, lacks: str, dear: bool
    ) -> None:
        self.dear: Final = dear
        self.variants: Final = variants
        self.rungs: Final = rungs
        self.first: Final = first
        self.lacks: Final = lacks


class Selector:
    """Chooses which variant of a model answers on one slice. `row_us`: what a row takes here, by variant, in
    batches of the aimed size; `trust` as in `Rung`. The last choice is for batches of up to `rows_most`. A
    choice since `until_us` was set to NEVER_US holds until then, while no replica comes or goes."""

    __slots__ = (
        "_guard_us", "_ladders", "_queue", "_usual", "replicas", "row_us", "rows_most", "trust", "until_us",
    )  # fmt: skip

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self.replicas: dict[str, Replica] = {}
        self.row_us: dict[str, float] = {}
        self.trust: dict[str, float] = {}
        self.rows_most = ANY_ROWS
        self.until_us = NEVER_US
        self._ladders: dict[Wants, Ladder] = {}
        self._usual: Wants | None = None  # of the last answered request
        self._guard_us = 0.0

    def forget(self) -> None:
        """Forget the ladders, as replicas, or what is known of them, have changed."""
        self._ladders.clear()

    def renew(self, row_us: dict[str, float], now_us: int) -> None:
        """Take what rows take by now, by what is known of each replica."""
        self.trust = learn(self.replicas, row_us, now_us)
        self.row_us = row_us
        self._ladders.clear()

    def ladder(self, wants: Wants) -> Ladder:
        """Return the ladder for requests with these wants."""
        ladder = self._ladders.get(wants)
        if ladder is None:
            if len(self._ladders) > KEPT:  # clients state floors
                self._ladders.clear()
            ladder = self._ladders[wants] = build(wants, self.replicas, self.row_us, self.trust)
        return ladder

    def answering(self, backlog: LaneBacklog, wants: Wants) -> tuple[str, Replica] | None:
        """Return the variant that would run a batch of a lane with these `wants` by now. None if no variant
        that may is here. Return the quickest if the ladder's variant would be late for the first piece even
        alone."""
        ladder = self.ladder(wants)
        rungs, now_us = ladder.rungs, backlog.now_us
        self._usual = wants
        self._guard_us = backlog.guard_us
        if not rungs:
            return None
        index, spare_us = 0, inf
        if len(rungs) > 1:
            index, spare_us = choose(backlog, rungs, ladder.first, self._allowance(wants).afford_us)
        if spare_us < self.until_us - now_us:
            self.until_us = now_us + int(spare_us)
        self.rows_most = backlog.rows(rungs[index]) if index < len(rungs) - 1 else ANY_ROWS
        variant = rungs[index].variant
        head, start_us = backlog.lane.pieces[0], now_us + backlog.guard_us
        if index == len(rungs) - 1 and self._late(variant, head, start_us):
            return self.quickest(ladder.variants, head.size, head.rows)
        return variant, self.replicas[variant]

    def _late(self, variant: str, piece: PieceView, start_us: float) -> bool:
        """Return whether a piece that starts then would be late even alone."""
        took_us = self.replicas[variant].predict_us(piece.rows, piece.size) * self.trust.get(variant, 1.0)
        return start_us + took_us > piece.deadline_us

    def carrying(self, wants: Wants) -> int:
        """Return the place of the rung that carries the load of requests with these `wants`."""
        ladder = self.ladder(wants)
        return carrying(ladder.rungs, ladder.first, self._allowance(wants).afford_us)

    def _allowance(self, wants: Wants) -> Allowance:
        return self._queue.allowances.get(wants, _UNLIMITED)

    def is_dear(self, wants: Wants) -> bool:
        """Return whether all that may answer cost more here than those want to spend."""
        return self.ladder(wants).dear

    def accuracy(self, wants: Wants) -> float | None:
        """Return the accuracy of the rung that carries the load of requests with these `wants`; None if it is
        unknown."""
        rungs = self.ladder(wants).rungs
        return self.replicas[rungs[self.carrying(wants)].variant].accuracy if rungs else None

    @property
    def usual(self) -> Replica | None:
        """The replica that carries the load of the requests that wait here, or waited last; else any replica
        there is."""
        for lane in self._queue.lanes:
            if not self.replicas.keys().isdisjoint(lane.variants):
                self._usual = lane.wants
                break
        replica = None if self._usual is None else self._steady(self._usual)
        return next(iter(self.replicas.values()), None) if replica is None else replica

    @property
    def last_resort(self) -> Replica | None:
        """The quickest replica that the requests which wait here, or waited last, allow; else any replica
        there is."""
        usual = self.usual
        if usual is None or self._usual is None or len(self._usual[0]) < 2:
            return usual
        quickest = self.quickest(self._usual[0], usual.size_max)
        return usual if quickest is None else quickest[1]

    def _steady(self, wants: Wants) -> Replica | None:
        if len(wants[0]) == 1:
            return self.replicas.get(wants[0][0])
        rungs = self.ladder(wants).rungs
        return self.replicas[rungs[self.carrying(wants)].variant] if rungs else None

    def quickest(self, variants: Sequence[str], size: int, rows: int = 1) -> tuple[str, Replica] | None:
        """Return, of these variants, the variant that computes that number of rows in the least time; None if
        none is here."""
        found: tuple[str, Replica] | None = None
        least_us = inf
        for name in variants:
            replica = self.replicas.get(name)
            if replica is not None:
                took_us = replica.typical_us(rows, size) if len(variants) > 1 else 0.0
                if found is None or took_us < least_us:
                    found, least_us = (name, replica), took_us
        return found

    def downgrade(self, wants: Wants, variant: str, first: PieceView, start_us: int) -> str:
        """Return why a batch that starts with that piece is run by this variant: a Downgrade, "" for the one
        that answers without pressure."""
        ladder = self.ladder(wants)
        rungs = ladder.rungs
        if rungs[ladder.first].variant == variant:
            return ladder.lacks
        carries = self.carrying(wants)
        if variant in [rung.variant for rung in rungs[: carries + 1]]:
            return Downgrade.LOAD.value
        late = self._late(rungs[carries].variant, first, start_us + self._guard_us)
        return (Downgrade.DEADLINE if late else Downgrade.BACKLOG).value


def learn(replicas: Mapping[str, Replica], row_us: dict[str, float], now_us: int) -> dict[str, float]:
    """Correct `row_us`, and the estimates of replicas that have not run lately, by the times of the other
    replicas. Load from neighbours may have begun or ended to slow the slice. Return the correction of each
    replica (`Rung.trust`)."""
    lately = {name for name, replica in replicas.items() if not replica.untried(now_us)}
    if not lately:
        return {}  # nothing is known of the slice: what each policy has learnt is the best estimate
    common = max([replicas[name].slowness for name in lately])
    trust: dict[str, float] = {}
    for name, replica in replicas.items():
        if name not in lately:
            trust[name] = common / replica.factor
        if name in row_us:
            row_us[name] *= (replica.slowness if name in lately else common) / replica.factor
    return trust


def build(
    wants: Wants,
    replicas: Mapping[str, Replica],
    row_us: Mapping[str, float],
    trust: Mapping[str, float] = MappingProxyType({}),
) -> Ladder:
    """Return the ladder of a slice. `row_us`: what a row takes of its time, by variant.

    Of variants that all cost more than they may, in full batches, the cheapest is left, for where no slice
    has a cheaper one: what cannot be met is refused when settings are checked, not request after request.
    """
    variants, optimize, cost_max = wants
    here = [(name, replicas[name]) for name in variants if name in replicas]
    within = [each for each in here if cost(each[1]) <= cost_max]
    dear = bool(here) and not within
    if dear:
        within = [min(here, key=lambda each: cost(each[1]))]
    merits = _merits([(name, replica.accuracy) for name, replica in within])
    found = [
        Rung(name, replica, row_us.get(name) or full_row_us(replica), merits[name], trust.get(name, 1.0))
        for name, replica in within
    ]
    rungs = frontier(found)
    lacks = ""
    if rungs and within[0][0] != variants[0] and optimize == MOST_ACCURATE:
        lacks = Downgrade.ABSENT.value if here[0][0] != variants[0] else Downgrade.COST.value
    first = preferred(rungs, optimize) if rungs else 0
    return Ladder([name for name, _ in within], rungs, first, lacks, dear)


def climber(
    wants: Wants, rate: float, row_us: Mapping[str, float], accuracy: Callable[[str], float | None]
) -> Climber | None:
    """Return the load of requests with these `wants`, on slices with these mean row times. None if no
    variant's row time is known."""
    variants, optimize, _ = wants
    known = [name for name in variants if name in row_us]
    if not known:
        return None
    merits = _merits([(name, accuracy(name)) for name in known])
    steps = frontier([VariantCost(row_us[name], merits[name]) for name in known])
    return Climber(rate, [(step.row_us, step.merit) for step in steps[preferred(steps, optimize) :]])


def cost(replica: Replica) -> float:
    """Return the cost of a million rows in full batches: a row's microseconds equal a million rows'
    seconds."""
    return full_row_us(replica) * replica.price / HOUR_S if replica.price else 0.0


def full_row_us(replica: Replica) -> float:
    """Return the time of a row in full batches, in us."""
    rows = replica.rows_worth(replica.size_max)
    return replica.typical_us(rows, replica.size_max) / rows


def _merits(accuracies: Iterable[tuple[str, float | None]]) -> dict[str, float]:
    """Return the accuracies. If not all are known, return a point for each place instead. So loads with known
    accuracies and loads without can share slices."""
    listed = list(accuracies)
    if all(accuracy is not None for _, accuracy in listed):
        return {name: accuracy for name, accuracy in listed if accuracy is not None}
    return {name: -place / 100 for place, (name, _) in enumerate(listed)}
