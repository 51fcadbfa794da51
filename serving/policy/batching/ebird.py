"""Elastic batching: Ebird (Cui et al., ICCD 2019; TPDS 2020), with the schedule of its published code.

A slice computes several batches at once, each of a fixed size, a power of two here. What waits is cut into
such batches, the largest first (13 rows are 8, 4 and 1), and each goes at once while the rows in flight on
the slice stay within a bound: nobody waits for company, and none waits for a large batch to end. Ebird looks
every millisecond; here it is asked when something arrives or ends. It knows no deadlines and gives nothing
up.

How many batches may run at once is the profile's `streams`; in Ebird each CUDA stream keeps its own size,
here any may run any. With `streams: 1`, which is all that the workers here measure as they compute one batch
at a time, it is an eager policy whose batches are powers of two. More comes only from a profile that says so.
"""

from serving.policy.batching.due import run
from serving.policy.batching.interface import (
    WAIT,
    BatchingPolicy,
    Choice,
    LaneView,
    QueueView,
)
from serving.policy.batching.urgency import most_urgent


class Ebird(BatchingPolicy):
    """`size`: rows in flight on a slice at most; None for as many as the largest batch that may go."""

    __slots__ = ("_size",)

    def __init__(self, size: int | None) -> None:
        self._size = size

    def choose(self, view: QueueView, now_us: int) -> Choice:
        """Return the largest fixed size that waits and fits beside what runs; of the lanes, the most
        urgent."""
        return most_urgent(self._consider(view, lane, now_us) for lane in view.lanes)

    def _consider(self, view: QueueView, lane: LaneView, now_us: int) -> Choice:
        here = view.answering(lane, now_us)
        if here is None:
            return WAIT
        rows_max = here[1].rows_max(lane.bucket)
        running = view.running_rows
        room = (rows_max if self._size is None else self._size) - running
        if running and lane.pieces[0].rows > room:
            return WAIT  # until some of it is back; larger than the bound, it goes alone
        rows = min(rows_max, lane.rows, max(room, 1))
        return run(lane, here, 1 << rows.bit_length() - 1)
