"""The rule of Nanily and of Nexus's earliest-first: a batch fills the time that its head has left."""

from math import ceil

from serving.policy.batching.interface import WAIT, Choice, LaneView, QueueView, take_prefix


def fill_time(view: QueueView, lane: LaneView, now_us: int) -> Choice:
    """Return the most urgent pieces, as many as are expected to meet the deadline of the first; at least
    it."""
    here = view.answering(lane, now_us)
    if here is None:
        return WAIT
    variant, replica = here
    pieces, size = lane.pieces, lane.size
    due_us = pieces[0].deadline_us
    in_time = replica.rows_in(due_us - now_us, size)  # a later deadline than the SLO allows no larger batch
    count, rows = take_prefix(pieces, max(1, min(in_time, replica.rows_max(lane.bucket))))
    latency_us = replica.predict_us(rows, size)
    return Choice(lane, pieces[:count], rows, variant, due_us - ceil(latency_us), latency_us=latency_us)
