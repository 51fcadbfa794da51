"""The rule that size-and-delay policies share: a lane is due when it is full or has waited long enough."""

from collections.abc import Callable
from math import ceil

from serving.policy.batching.interface import (
    WAIT,
    Choice,
    LaneView,
    QueueView,
    ReplicaView,
    take_prefix,
)
from serving.policy.batching.rules.urgency import most_urgent

RowsWorth = Callable[[str, ReplicaView, int], int]
"""(variant, its replica, size bucket) -> the rows that are worth a batch without further waiting."""


def choose_due(view: QueueView, rows_worth: RowsWorth, delay_us: int, now_us: int) -> Choice:
    """Return the batch that must start soonest, among the lanes that are due; else a wait until the first is
    due."""
    return most_urgent(_consider(view, lane, rows_worth, delay_us, now_us) for lane in view.lanes)


def wait_or_run(
    lane: LaneView, here: tuple[str, ReplicaView], rows_max: int, delay_us: int, now_us: int
) -> Choice:
    """Return the lane's batch of up to `rows_max` rows, `here` (a variant, its replica), if it is due; else
    when."""
    if lane.rows < rows_max and not lane.closed:
        due_us = lane.oldest_us + delay_us
        if now_us < due_us:
            return Choice(wake_us=due_us)
    return run(lane, here, rows_max)


def run(lane: LaneView, here: tuple[str, ReplicaView], rows_max: int) -> Choice:
    """Return the lane's most urgent pieces, up to `rows_max` rows and at least one."""
    variant, replica = here
    pieces = lane.pieces
    count, rows = take_prefix(pieces, rows_max)
    latency_us = replica.predict_us(rows, lane.size)
    latest_us = pieces[0].deadline_us - ceil(latency_us)
    return Choice(lane, pieces[:count], rows, variant, latest_us, latency_us=latency_us)


def _consider(view: QueueView, lane: LaneView, rows_worth: RowsWorth, delay_us: int, now_us: int) -> Choice:
    here = view.answering(lane, now_us)
    if here is None:
        return WAIT
    return wait_or_run(lane, here, rows_worth(*here, lane.bucket), delay_us, now_us)
