"""SLAB, the self-learning adaptive batching of GSLICE (Dhakal et al., SoCC 2020; in the form that iGniter's
authors compare with, TPDS 2023).

t is the mean latency of batches of the present size b. While t is below the objective by less than a tenth, b
stays; else b' = ceil(b (1 + sign(SLO - t) |SLO - t| / t)), which is ceil(b SLO / t). An idle slice takes what
waits, up to b. A mean says nothing of tails, and queueing is not reckoned with: under overload it serves
late. Rounded up, b can come to rest one row above the objective: what the profile allows bounds it here, as
Bmax does in the paper, so that happens only where the profile is too low.
"""

from math import ceil

from serving.policy.batching.interface import (
    BatchingPolicy,
    BatchReport,
    Choice,
    QueueView,
    ReplicaView,
)
from serving.policy.batching.rules.due import choose_due

DEAD_BAND = 0.1  # of the objective, below it
ROUND_BATCHES = 10  # their mean is t: noise of 20 % a batch leaves it 6 %, less than the dead band


class _Round:
    """A size, and the batches of it that are being measured."""

    __slots__ = ("batches", "most_rows", "rows", "took_us")

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.batches = self.took_us = self.most_rows = 0


class Slab(BatchingPolicy):
    """`slo_us`: the latency objective. What is learned is kept per slice, variant and size bucket."""

    __slots__ = ("_rounds", "_slo_us")

    def __init__(self, slo_us: int) -> None:
        self._slo_us = slo_us
        self._rounds: dict[tuple[str, str, int], _Round] = {}

    def on_done(self, report: BatchReport, now_us: int) -> None:  # noqa: ARG002  it keeps no time
        """Measure a batch of the present size; after a round of them, the next size."""
        key = (report.slice, report.variant, report.bucket)
        now = self._rounds.get(key)
        if now is None:
            now = self._rounds[key] = _Round(1)
        if report.rows < now.rows and not report.full:
            return  # a smaller batch says nothing of this size
        now.batches += 1
        now.took_us += report.compute_us
        now.most_rows = max(now.most_rows, report.rows)
        if now.batches == ROUND_BATCHES:
            self._rounds[key] = _Round(self._next_rows(now))

    def choose(self, view: QueueView, now_us: int) -> Choice:
        """Return the waiting rows, up to the learned size, of the lane with the batch that must start
        soonest."""

        def rows_worth(variant: str, replica: ReplicaView, size: int) -> int:
            learned = self._rounds.get((view.slice, variant, size))
            return min(1 if learned is None else learned.rows, replica.rows_max(size))

        return choose_due(view, rows_worth, 0, now_us)

    def _next_rows(self, ended: _Round) -> int:
        took_us = max(ended.took_us / ended.batches, 1.0)
        if 0 < self._slo_us - took_us < DEAD_BAND * self._slo_us:
            return ended.rows
        rows = max(1, ceil(ended.rows * self._slo_us / took_us))
        if ended.most_rows < ended.rows:
            # No batch was as large: requests of many rows did not fit, or the profile allows no more. Twice
            # that is room enough for such a request, and no number to shrink from for ever.
            rows = min(rows, 2 * ended.most_rows)
        return rows
