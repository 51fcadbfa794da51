"""Symphony (Chen et al., arXiv 2308.07470): deferred batch scheduling.

A candidate batch (the target size by the present rate, heads given up by the window drop) waits although the
slice is free, so that it grows. `frontrun` waits until one row more could not be served any more, D - l(b+1);
`latest` until the batch itself could not, D - l(b); `beta_lambda` goes at once where waiting for a row costs
the slice more than it saves (b >= beta * rate) and otherwise is `frontrun`. Of several candidates whose time
has come, the one with the least latest start gets the slice, and is formed anew for that instant.

Symphony's constants for messages (100 us, 50 us a request, 2 ms for the response) are measured quantities
here: the replica's planning latency holds transport, and the guard is how late wake-ups are. It plans each
model alone: where models share few slices, their candidates collide.
"""

from collections.abc import Sequence
from math import ceil

from serving.policy.batching.interface import (
    WAIT,
    ArrivalView,
    BatchingPolicy,
    BatchReport,
    Choice,
    LaneView,
    QueueView,
    ReplicaView,
)
from serving.policy.batching.rules.hopeless import find_hopeless
from serving.policy.batching.rules.targets import Targets, saving_us
from serving.policy.batching.rules.urgency import most_urgent
from serving.policy.batching.rules.window import target_window
from serving.policy.estimates.latency import Doubt

FRONTRUN, LATEST, BETA_LAMBDA = "frontrun", "latest", "beta_lambda"


class Symphony(BatchingPolicy):
    """`slo_us`: the SLO; `guard_us`: lateness of wake-ups to allow for until it has been measured; `mode`:
    FRONTRUN, LATEST or BETA_LAMBDA."""

    __slots__ = ("_doubt", "_guard_us", "_mode", "_targets")

    def __init__(self, slo_us: int, guard_us: int, mode: str = FRONTRUN) -> None:
        self._targets = Targets(slo_us)
        self._guard_us = guard_us
        self._mode = mode
        self._doubt = Doubt()

    def on_arrival(self, request: ArrivalView, now_us: int) -> None:
        """Count towards the arrival rate."""
        self._targets.count(request, now_us)

    def on_done(self, report: BatchReport, now_us: int) -> None:
        """Note a finished batch as a sign of life, and how large rows are."""
        self._targets.ran(report)
        self._doubt.heard(report.compute_us, report.typical_us, now_us)

    def hopeless(self, view: QueueView, now_us: int) -> Sequence[tuple[LaneView, int]]:
        """Return what would be late even alone."""
        return find_hopeless(view, self._doubt.at(now_us), now_us)

    def choose(self, view: QueueView, now_us: int) -> Choice:
        """Return the candidate with the least latest start, among those that are due; else a wait until the
        first is due."""
        return most_urgent(self._consider(view, lane, now_us) for lane in view.lanes)

    def _consider(self, view: QueueView, lane: LaneView, now_us: int) -> Choice:
        here = view.answering(lane, now_us)
        if here is None:
            return WAIT
        variant, replica = here
        target, rate = self._targets.at(replica, lane.bucket, now_us)
        pieces, drop, rows = target_window(lane, replica, target, now_us)
        guard_us = self._guard_us if view.lateness_us is None else view.lateness_us
        due_us = min(piece.deadline_us for piece in pieces) - guard_us
        latency_us = replica.predict_us(rows, lane.size)
        behind = lane.pieces[len(drop) + len(pieces) :][:1]
        following = behind[0].rows if behind else 1
        full = rows + following > replica.rows_max(lane.bucket)  # waiting adds nothing
        if not (full or lane.closed) and not self._pays_now(replica, lane.size, rows, (target, rate)):
            growth = 0 if self._mode == LATEST else 1
            start_us = int(due_us - replica.predict_us(rows + growth, lane.size))
            if start_us > now_us:
                # What the window gives up may still join another batch, until its own deadline.
                return Choice(wake_us=min(start_us, max(lane.pieces[0].deadline_us, now_us + 1)))
        latest_us = int(due_us) - ceil(latency_us)
        return Choice(lane, pieces, rows, variant, latest_us, drop=drop, latency_us=latency_us)

    def _pays_now(self, replica: ReplicaView, size: int, rows: int, aim: tuple[int, float]) -> bool:
        """Return whether to wait for a row more would save no device time; `aim`: target and rate."""
        if self._mode != BETA_LAMBDA:
            return False
        target, rate = aim
        return rows >= target or rows >= saving_us(replica, size, rows, target) * rate
