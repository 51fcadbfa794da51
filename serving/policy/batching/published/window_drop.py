"""Eager window drop: Symphony's way to give requests up (arXiv 2308.07470) without its deferral.

Whenever a slice is free, heads are given up as far as the batch behind them could not otherwise reach the
target size, and the batch goes at once (`kImmediately` with `kWindowDrop` in Symphony's code). Goodput stays
near its best in overload; while slices are plentiful, the target drops more than the load needs.
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
)
from serving.policy.batching.rules.hopeless import find_hopeless
from serving.policy.batching.rules.targets import Targets
from serving.policy.batching.rules.urgency import most_urgent
from serving.policy.batching.rules.window import target_window
from serving.policy.estimates.latency import Doubt


class WindowDrop(BatchingPolicy):
    """`slo_us`: the SLO that the target size follows from, with the rate of arrivals."""

    __slots__ = ("_doubt", "_targets")

    def __init__(self, slo_us: int) -> None:
        self._targets = Targets(slo_us)
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
        """Return the lanes' batch that must start soonest."""
        return most_urgent(self._consider(view, lane, now_us) for lane in view.lanes)

    def _consider(self, view: QueueView, lane: LaneView, now_us: int) -> Choice:
        here = view.answering(lane, now_us)
        if here is None:
            return WAIT
        variant, replica = here
        target, _ = self._targets.at(replica, lane.bucket, now_us)
        pieces, drop, rows = target_window(lane, replica, target, now_us)
        latency_us = replica.predict_us(rows, lane.size)
        latest_us = min(piece.deadline_us for piece in pieces) - ceil(latency_us)
        return Choice(lane, pieces, rows, variant, latest_us, drop=drop, latency_us=latency_us)
