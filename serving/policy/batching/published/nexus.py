"""Nexus (Shen et al., SOSP 2019): the batch executor with its two ways to give requests up.

`sliding` (early drop, the default) aims at the largest batch within half the SLO, as a request may wait for
one batch and then be in the next. In the order of deadlines it drops whatever such a batch would be late
for, and aims lower when what is left cannot fill it. `earliest_first` (lazy drop) drops what is late even
alone and fills the time that the head then has. The models of a slice take turns.

Nexus's profile (1.15 times mean plus deviation) is the replica's planning latency here; its duty cycles
(which model is on which device, and for how long) are placement, not batching.
"""

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
)
from serving.policy.batching.rules.fill import fill_time
from serving.policy.batching.rules.hopeless import find_hopeless
from serving.policy.batching.rules.urgency import most_urgent
from serving.policy.estimates.latency import Doubt

TARGET_SHARE = 0.5  # of the SLO: "half of time will spend in batching"
TURNS = "turns"
"""The rule between models: the one whose latest batch on the slice ended the longest ago goes first."""


class Nexus(BatchingPolicy):
    """`slo_us`: the SLO that the target follows from; `sliding`: early drop, else earliest first."""

    __slots__ = ("_doubt", "_ran_us", "_sliding", "_target_us")

    def __init__(self, slo_us: int, sliding: bool = True) -> None:
        self._target_us = TARGET_SHARE * slo_us
        self._sliding = sliding
        self._doubt = Doubt()
        self._ran_us: dict[str, int] = {}  # by slice, when its latest batch ended

    def on_done(self, report: BatchReport, now_us: int) -> None:
        """Note that the model has had its turn on the slice."""
        self._doubt.heard(report.compute_us, report.typical_us, now_us)
        self._ran_us[report.slice] = now_us

    def hopeless(self, view: QueueView, now_us: int) -> Sequence[tuple[LaneView, int]]:
        """Return what would be late even alone."""
        return find_hopeless(view, self._doubt.at(now_us), now_us)

    def choose(self, view: QueueView, now_us: int) -> Choice:
        """Return the lanes' batch that must start soonest."""
        best = most_urgent(self._consider(view, lane, now_us) for lane in view.lanes)
        if best.lane is None:
            return best
        return best.ranked(TURNS, self._ran_us.get(view.slice, 0))

    def _consider(self, view: QueueView, lane: LaneView, now_us: int) -> Choice:
        here = view.answering(lane, now_us)
        if here is None:
            return WAIT
        variant, replica = here
        if not self._sliding:
            return fill_time(view, lane, now_us)
        pieces, drop, rows = slide(lane, replica, self._target_us, now_us)
        if not pieces:  # by the plan all are late; typically they are not, or they had been given up
            return fill_time(view, lane, now_us)
        latency_us = replica.predict_us(rows, lane.size)
        latest_us = pieces[0].deadline_us - ceil(latency_us)
        return Choice(lane, pieces, rows, variant, latest_us, drop=drop, latency_us=latency_us)


def slide(
    lane: LaneView, replica: ReplicaView, target_us: float, now_us: int
) -> tuple[list[PieceView], list[PieceView], int]:
    """Return the pieces to take, the pieces for which a batch of the desired size would be late, and the rows
    taken. There are no pieces to take if every piece is late."""
    size, left = lane.size, lane.rows
    target = max(1, min(replica.rows_max(lane.bucket), replica.rows_in(target_us, size)))
    expected = min(target, left)
    finish_us = now_us + replica.predict_us(expected, size)
    taken: list[PieceView] = []
    drop: list[PieceView] = []
    rows = 0
    for piece in lane.pieces:
        large = rows + piece.rows > expected
        if large and rows:
            break
        end_us = now_us + replica.predict_us(piece.rows, size) if large else finish_us
        left -= piece.rows
        if piece.deadline_us < end_us:
            drop.append(piece)
        else:
            taken.append(piece)
            rows += piece.rows
        if rows >= expected or not left:
            break
        if rows + left < expected:  # what is left cannot fill it any more
            expected = rows + left
            finish_us = now_us + replica.predict_us(expected, size)
    return taken, drop, rows
