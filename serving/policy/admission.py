"""Admission at arrival: whether a request may join its model's queue at all. O(1)."""

from dataclasses import dataclass

from serving.specs import Limits
from serving.vocabulary import QUEUE_FULL, Outcome


@dataclass(slots=True)
class Backlog:
    """A model's queue in figures."""

    rows: int = 0
    requests: int = 0


def refuse(backlog: Backlog, rows: int, limits: Limits) -> Outcome | None:
    """Why a request of `rows` may not join, or None.

    A request larger than the whole queue's bound is still taken by an empty queue: its own bound is
    `limits.rows_per_request`.
    """
    if backlog.requests >= limits.queue_requests:
        return QUEUE_FULL
    if backlog.requests and backlog.rows + rows > limits.queue_rows:
        return QUEUE_FULL
    return None
