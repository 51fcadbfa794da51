"""Static batching: a batch goes when it has `size` rows or its oldest request has waited `delay_us`.

The rule of Triton's dynamic batcher (`max_queue_delay_microseconds`) and of TensorFlow Serving
(`batch_timeout_micros`); with a delay of 0 it is work-conserving: an idle slice takes what is there.
"""

from collections.abc import Hashable
from math import ceil

from serving.policy.batching.seam import WAIT, BatchReport, Choice, LaneView, QueueView, take_prefix
from serving.vocabulary import NEVER_US


class Static:
    """`size`: rows worth going for, None for the largest that may go; `delay_us`: the longest wait."""

    __slots__ = ("_delay_us", "_size")

    def __init__(self, size: int | None, delay_us: int) -> None:
        self._size = size
        self._delay_us = delay_us

    def on_arrival(self, rows: int, lane: Hashable, now_us: int) -> None:
        """Nothing to learn."""

    def on_done(self, report: BatchReport, now_us: int) -> None:
        """Nothing to learn."""

    def choose(self, view: QueueView, now_us: int) -> Choice:
        """Of the lanes that are due, the one whose batch must start soonest."""
        best, wake_us = WAIT, NEVER_US
        for lane in view.lanes:
            choice = self._consider(view, lane, now_us)
            if choice.lane is None:
                wake_us = min(wake_us, choice.wake_us)
            elif best.lane is None or choice.latest_start_us < best.latest_start_us:
                best = choice
        return best if best.lane is not None or wake_us == NEVER_US else Choice(wake_us=wake_us)

    def _consider(self, view: QueueView, lane: LaneView, now_us: int) -> Choice:
        for variant in lane.variants:
            replica = view.replica(variant)
            if replica is not None:
                break
        else:
            return WAIT
        rows_max = replica.rows_max(lane.size)
        if self._size is not None:
            rows_max = min(rows_max, self._size)
        if lane.rows < rows_max:
            due_us = lane.oldest_us + self._delay_us
            if now_us < due_us:
                return Choice(wake_us=due_us)
        pieces = lane.pieces
        count, rows = take_prefix(pieces, rows_max)
        latest_us = pieces[0].deadline_us - ceil(replica.predict_us(rows, lane.size))
        return Choice(lane, count, rows, variant, latest_us)
