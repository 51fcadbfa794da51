"""Static batching: a batch goes when it has `size` rows or its oldest request has waited `delay_us`.

The rule of Triton's dynamic batcher (`max_queue_delay_microseconds`) and of TensorFlow Serving
(`batch_timeout_micros`); with a delay of 0 it is work-conserving: an idle slice takes what is there.
"""

from serving.policy.batching.interface import (
    BatchingPolicy,
    Choice,
    QueueView,
    ReplicaView,
)
from serving.policy.batching.rules.due import choose_due


class Static(BatchingPolicy):
    """`size`: rows worth going for, None for the largest that may go; `delay_us`: the longest wait."""

    __slots__ = ("_delay_us", "_size")

    def __init__(self, size: int | None, delay_us: int) -> None:
        self._size = size
        self._delay_us = delay_us

    def choose(self, view: QueueView, now_us: int) -> Choice:
        """Return the batch that must start soonest, among the lanes that are due."""
        return choose_due(view, self._rows_worth, self._delay_us, now_us)

    def _rows_worth(self, variant: str, replica: ReplicaView, size: int) -> int:  # noqa: ARG002  a RowsWorth
        rows_max = replica.rows_max(size)
        return rows_max if self._size is None else min(rows_max, self._size)
