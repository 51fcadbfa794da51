"""Admission at arrival: whether a request may join its model's queue at all. O(1) a request.

In overload the slices' time is allotted max-min fair (Bertsekas and Gallager, Data Networks, 6.5.2) and each
flow of requests is thinned to its allotment by an accumulator, not by a draw: those turned away learn it in
microseconds instead of at their deadline. The window drop of the batching policy stays as the exact backstop.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import Final

from serving.values.specs import Limits
from serving.values.vocabulary import QUEUE_FULL, Outcome


class QueueLength:
    """A model's queue in figures."""

    __slots__ = ("requests", "rows")

    def __init__(self, rows: int = 0, requests: int = 0) -> None:
        self.rows = rows
        self.requests = requests


class FlowDemand:
    """`need`: slices' worth of time that a flow of requests asks for, above 0."""

    __slots__ = ("need", "priority", "weight")

    def __init__(self, need: float, weight: float = 1.0, priority: int = 0) -> None:
        self.need: Final = need
        self.weight: Final = weight
        self.priority: Final = priority


def queue_fault(backlog: QueueLength, rows: int, limits: Limits) -> Outcome | None:
    """Return why a request of `rows` may not join the queue, or None.

    A request larger than the whole queue's bound is still taken by an empty queue: its own bound is
    `limits.rows_per_request`.
    """
    if backlog.requests >= limits.queue_requests:
        return QUEUE_FULL
    if backlog.requests and backlog.rows + rows > limits.queue_rows:
        return QUEUE_FULL
    return None


def allot(demands: Sequence[FlowDemand], room: float) -> list[float]:
    """Return how much of `room` slices each demand gets, in their order: never more than its need.

    Serve the highest priority first, and within a priority by water-filling. A demand that needs less than
    its weighted share gets its need. The others split the rest by weight.
    """
    given = [0.0] * len(demands)
    by_priority = sorted(range(len(demands)), key=lambda i: -demands[i].priority)
    for _, level in groupby(by_priority, key=lambda i: demands[i].priority):
        members = sorted(level, key=lambda i: demands[i].need / demands[i].weight)
        weights = sum((demands[i].weight for i in members), 0.0)
        for i in members:
            share = min(demands[i].weight / weights, 1.0)  # rounding must not leave less than nothing
            given[i] = min(demands[i].need, room * share)
            room -= given[i]
            weights -= demands[i].weight
    return given


class Thinning:
    """Admits a share of a flow's rows, as evenly as can be: error diffusion, no randomness."""

    __slots__ = ("_credit",)

    def __init__(self) -> None:
        self._credit = 0.0

    def admit(self, rows: int, share: float) -> bool:
        """Return whether this request may pass, if `share` (0..1) of its flow may; count the request."""
        self._credit += share * rows
        if self._credit <= 0:
            return False
        self._credit -= rows
        return True
