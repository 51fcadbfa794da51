"""AIMD batching with delayed batching: Clipper (Crankshaw et al., NSDI 2017), sections 4.3.1 and 4.3.2.

The largest batch grows by a fixed step while batches that reach it stay within the latency objective, and
shrinks by a tenth when one does not. It learns from measured batches alone; here it also stays within what
the replica's profile allows. As in the paper, the objective is held against the batch's own latency, not
against queueing: under overload it serves late rather than shed.
"""

from serving.policy.batching.interface import (
    BatchingPolicy,
    BatchReport,
    Choice,
    QueueView,
    ReplicaView,
)
from serving.policy.batching.rules.due import choose_due

STEP_ROWS = 1  # the paper gives no number; the least one oscillates least
BACKOFF_TENTHS = 9  # "a small multiplicative back-off, by 10 %"


class Aimd(BatchingPolicy):
    """`slo_us`: the latency objective; `size`: a bound on the batch, or None; `delay_us`: as in `Static`.

    The learned maximum is kept per slice, variant and size bucket: their latencies have nothing in common.
    """

    __slots__ = ("_delay_us", "_rows_max", "_size", "_slo_us")

    def __init__(self, slo_us: int, size: int | None, delay_us: int) -> None:
        self._slo_us = slo_us
        self._size = size
        self._delay_us = delay_us
        self._rows_max: dict[tuple[str, str, int], int] = {}

    def on_done(self, report: BatchReport, now_us: int) -> None:  # noqa: ARG002  it keeps no time
        """Grow by a step where the maximum was reached in time, shrink where the objective was missed."""
        key = (report.slice, report.variant, report.bucket)
        rows_max = self._rows_max.get(key, 1)
        if report.compute_us > self._slo_us:
            self._rows_max[key] = max(1, rows_max * BACKOFF_TENTHS // 10)
        elif report.rows >= rows_max or (report.full and rows_max < 2 * report.rows):
            # Requests of many rows seldom fill a batch exactly: one that left a request behind was full
            # too. Twice its rows is room enough for that request, and no number to shrink from for ever.
            self._rows_max[key] = rows_max + STEP_ROWS

    def choose(self, view: QueueView, now_us: int) -> Choice:
        """Return the batch that must start soonest, among the lanes that are due."""

        def rows_worth(variant: str, replica: ReplicaView, size: int) -> int:
            rows_max = min(self._rows_max.get((view.slice, variant, size), 1), replica.rows_max(size))
            return rows_max if self._size is None else min(rows_max, self._size)

        return choose_due(view, rows_worth, self._delay_us, now_us)
