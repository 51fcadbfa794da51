"""What a model was asked and how it fared, counted: what its replicas follow (`serving.policy.scaling`)."""

from typing import Final

from serving.policy.scaling.interface import LoadReport
from serving.values.vocabulary import (
    DEADLINE_QUEUED,
    DEADLINE_RUNNING,
    DEADLINE_UNMET,
    DEADLINE_UNREACHABLE,
    NO_REPLICA,
    NOT_LOADED,
    OVERLOAD,
    QUEUE_FULL,
    QUOTA,
    WORKER_LOST,
    Outcome,
)

MISSED: Final = frozenset((
    OVERLOAD, DEADLINE_UNREACHABLE, QUEUE_FULL, QUOTA, NO_REPLICA, NOT_LOADED,
    DEADLINE_QUEUED, DEADLINE_RUNNING, DEADLINE_UNMET, WORKER_LOST,
))  # fmt: skip
"""Endings that more replicas might have spared a request. No number of them helps a client that sends
nonsense or leaves, a model that raises, a gateway that ends or holds as many bytes as it may."""


class ModelCounts:
    """Rows that came (`offered`), were answered (`completed`), and were not in time (`missed`: answered late,
    or ended by one of MISSED). `took_us`: the sum over the `answered` requests of arrival to answer;
    `busy_us`: of what batches computed. A few integer additions for a request, as all of them pass here."""

    __slots__ = (
        "_gaps_us2", "_latest_us", "answered", "busy_us", "completed", "missed", "offered", "took_us",
    )  # fmt: skip

    def __init__(self) -> None:
        self.offered = 0
        self.completed = 0
        self.missed = 0
        self.answered = 0
        self.took_us = 0
        self.busy_us = 0
        self._gaps_us2 = 0.0  # a float: squares of hours are beyond a machine word
        self._latest_us = -1  # when a request last came

    def came(self, rows: int, now_us: int) -> None:
        """Count a request that is here, whatever becomes of it."""
        self.offered += rows
        if self._latest_us >= 0:
            gap_us = float(now_us - self._latest_us)
            self._gaps_us2 += gap_us * gap_us
        self._latest_us = now_us

    def done(self, rows: int, took_us: int, late: bool) -> None:
        """Count a request that is answered with its result."""
        self.completed += rows
        self.answered += 1
        self.took_us += took_us
        if late:
            self.missed += rows

    def ended(self, rows: int, outcome: Outcome) -> None:
        """Count a request that ends without a result."""
        if outcome in MISSED:
            self.missed += rows

    def seen(self, model: str, requests: int) -> LoadReport:
        """Return the report of a model that was asked by that number of requests, without what it has at this
        moment."""
        return LoadReport(
            model, self.offered, requests, self._gaps_us2 * 1e-12, self.completed, self.missed,
            self.answered, self.took_us, self.busy_us,
        )  # fmt: skip
