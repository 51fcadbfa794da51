"""Clockwork (Gujarati et al., OSDI 2020): batches of compiled sizes, started while their prediction holds.

Models are compiled for the sizes 1, 2, 4, ... and a batch must fill its size. Of each size, the estimate is
the 99th percentile of its last ten batches (their maximum), and before them the profile: a hiccup counts for
ten batches of its size, and a size that does not run is not corrected. Every size has a queue of its own with
all requests in it, from whose head those drop that it would be late for; the largest size that its queue can
fill is run, and what stands before it is given up with it (`pass_heads`, as in the published controller).
`keep_heads` takes the largest size that the first request which could be met alone can wait for. Of
several models, the one with the least latest start goes first, deadline - estimate.

The controller commits 10 ms ahead as its workers are remote; here batches are bound one at a time when the
slice is free, so the lookahead and the workers' own windows are not needed. Its sizes end at 16 and its
batches at 25 ms; here both end where the profile and the SLO do.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from math import ceil

from serving.policy.batching.interface import (
    WAIT,
    BatchingPolicy,
    BatchReport,
    Choice,
    LaneView,
    PieceView,
    QueueView,
    ReplicaView,
    take_prefix,
)
from serving.policy.batching.rules.hopeless import find_hopeless
from serving.policy.batching.rules.urgency import most_urgent
from serving.policy.estimates.latency import Doubt

GUARD_US = 5000  # `buffer` of its controller: the internal deadline is that much earlier
MEASURED = 10  # batches of a size that its estimate looks back on


class Clockwork(BatchingPolicy):
    """`guard_us`: how much earlier than their deadlines requests are to be done; `passes`: heads that the
    largest size would be late for are given up for it."""

    __slots__ = ("_doubt", "_guard_us", "_measured", "_passes", "_seeds")

    def __init__(self, guard_us: int = GUARD_US, passes: bool = True) -> None:
        self._guard_us = guard_us
        self._passes = passes
        self._doubt = Doubt()
        # By slice, variant, size bucket, compiled size:
        self._measured: dict[tuple[str, str, int, int], deque[int]] = {}
        # A memo, by replica, size bucket, compiled size: what the profile said first.
        self._seeds: dict[tuple[int, int, int], float] = {}

    def on_done(self, report: BatchReport, now_us: int) -> None:
        """Enter what its size took."""
        self._doubt.heard(report.compute_us, report.typical_us, now_us)
        key = (report.slice, report.variant, report.bucket, compiled(report.rows))
        self._measured.setdefault(key, deque(maxlen=MEASURED)).append(report.compute_us)

    def hopeless(self, view: QueueView, now_us: int) -> Sequence[tuple[LaneView, int]]:
        """Return what would be late even alone."""

        def alone(variant: str, replica: ReplicaView, piece: PieceView, lane: LaneView) -> float:
            return self._guard_us + self._estimate(view, variant, replica, piece.rows, lane.bucket)

        return find_hopeless(view, self._doubt.at(now_us), now_us, alone)

    def choose(self, view: QueueView, now_us: int) -> Choice:
        """Return the lanes' batch with the least latest start."""
        return most_urgent(self._consider(view, lane, now_us) for lane in view.lanes)

    def _consider(self, view: QueueView, lane: LaneView, now_us: int) -> Choice:
        here = view.answering(lane, now_us)
        if here is None:
            return WAIT
        variant, replica = here
        pieces, size = lane.pieces, lane.bucket
        soonest_us = now_us + self._guard_us
        head = self._first_alone(view, lane, here, soonest_us)
        filled = compiled(min(lane.rows, replica.rows_max(size)) + 1) // 2
        while filled > 1:
            end_us = soonest_us + self._estimate(view, variant, replica, filled, size)
            first = bisect_left(pieces, end_us, key=_deadline) if self._passes else head
            if first < len(pieces) and pieces[first].deadline_us >= end_us:
                count, rows = take_prefix(pieces, filled, first)
                if rows <= filled and (rows == filled or first + count < len(pieces)):
                    break
            filled //= 2
        else:  # alone; where all are late, in hope: `hopeless` has left them because it is in doubt
            first = head if head < len(pieces) else 0
            count, rows = 1, pieces[first].rows
        latency_us = self._estimate(view, variant, replica, max(filled, rows), size)
        latest_us = pieces[first].deadline_us - ceil(self._guard_us + latency_us)
        taken = pieces[first : first + count]
        return Choice(lane, taken, rows, variant, latest_us, drop=pieces[:first], latency_us=latency_us)

    def _first_alone(
        self, view: QueueView, lane: LaneView, here: tuple[str, ReplicaView], soonest_us: int
    ) -> int:
        """Return the place of the first piece that would be in time alone; the number of pieces where none
        would."""
        for place, piece in enumerate(lane.pieces):
            if piece.deadline_us >= soonest_us + self._estimate(view, *here, piece.rows, lane.bucket):
                return place
        return len(lane.pieces)

    def _estimate(self, view: QueueView, variant: str, replica: ReplicaView, rows: int, size: int) -> float:
        """Return the microseconds to plan with for `rows`, run at the compiled size that holds them."""
        rows = compiled(rows)
        measured = self._measured.get((view.slice, variant, size, rows))
        if measured:
            return max(measured)
        key = (id(replica), size, rows)
        seed_us = self._seeds.get(key)
        if seed_us is None:
            if len(self._seeds) > 256:  # replicas come and go
                self._seeds.clear()
            seed_us = self._seeds[key] = replica.typical_us(rows, size)
        return seed_us


def compiled(rows: int) -> int:
    """Return the least compiled size that holds `rows`."""
    return 1 << (rows - 1).bit_length()


def _deadline(piece: PieceView) -> int:
    return piece.deadline_us
