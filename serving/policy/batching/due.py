"""The rule that size-and-delay policies share: a lane is due when it is full or has waited long enough."""

from collections.abc import Callable
from math import ceil

from serving.policy.batching.seam import (
    WAIT,
    Choice,
    LaneView,
    QueueView,
    ReplicaView,
    resident,
    take_prefix,
)
from serving.vocabulary import NEVER_US

RowsWorth = Callable[[str, ReplicaView, int], int]
"""(variant, its replica, size bucket) -> the rows that are worth a batch without further waiting."""


def choose_due(view: QueueView, rows_worth: RowsWorth, delay_us: int, now_us: int) -> Choice:
    """Of the lanes that are due, the one whose batch must start soonest; else when the first will be."""
    best, wake_us = WAIT, NEVER_US
    for lane in view.lanes:
        choice = _consider(view, lane, rows_worth, delay_us, now_us)
        if choice.lane is None:
            wake_us = min(wake_us, choice.wake_us)
        elif best.lane is None or choice.latest_start_us < best.latest_start_us:
            best = choice
    return best if best.lane is not None or wake_us == NEVER_US else Choice(wake_us=wake_us)


def _consider(view: QueueView, lane: LaneView, rows_worth: RowsWorth, delay_us: int, now_us: int) -> Choice:
    found = resident(view, lane)
    if found is None:
        return WAIT
    variant, replica = found
    rows_max = rows_worth(variant, replica, lane.size)
    if lane.rows < rows_max and not lane.closed:
        due_us = lane.oldest_us + delay_us
        if now_us < due_us:
            return Choice(wake_us=due_us)
    pieces = lane.pieces
    count, rows = take_prefix(pieces, rows_max)
    latest_us = pieces[0].deadline_us - ceil(replica.predict_us(rows, lane.size))
    return Choice(lane, pieces[:count], rows, variant, latest_us)
