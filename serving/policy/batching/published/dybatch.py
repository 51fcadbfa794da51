"""DyBatch (Zhang et al., CCGRID 2020): models share a slice by the time they take of it, not by their
requests.

An idle slice goes to the model with the least U = slice time used lately / weight of those that have
something waiting; its batch is what waits, up to the largest that the profile allows within the SLO. So
models that are backlogged are slowed down alike, however long their batches take. It knows no deadlines: a
model of a tight SLO waits its turn, and one that has been quiet has the slice to itself until it has caught
up.
"""

from math import exp

from serving.policy.batching.interface import (
    BatchingPolicy,
    BatchReport,
    Choice,
    QueueView,
    ReplicaView,
)
from serving.policy.batching.rules.due import choose_due

RULE = "dybatch"
WINDOW_US = 5e6
"""Mean life of what is counted as used lately; what the paper used is not known here. The longer, the nearer
shares come to the weights (batches of 100 ms are favoured by 1 %), and the longer a model that was quiet has
the slice to itself (up to .7 of it, against one other)."""


class _Used:
    """Time of a slice that a model has used, decayed exponentially."""

    __slots__ = ("_as_of_us", "_used_us")

    def __init__(self) -> None:
        self._used_us = 0.0
        self._as_of_us = 0

    def add(self, took_us: int, now_us: int) -> None:
        """Add a batch that took `took_us` and has just ended."""
        self._used_us = self.at(now_us) + took_us
        self._as_of_us = now_us

    def at(self, now_us: int) -> float:
        """Return the microseconds used, as of now."""
        return self._used_us * exp((self._as_of_us - now_us) / WINDOW_US)


class DyBatch(BatchingPolicy):
    """`weight`: the model's share of a slice, against those of the others on it; above 0."""

    __slots__ = ("_used", "_weight")

    def __init__(self, weight: float = 1.0) -> None:
        if weight <= 0:
            raise ValueError(f"a weight must be above 0, got {weight:g}")
        self._weight = weight
        self._used: dict[str, _Used] = {}  # by slice

    def on_done(self, report: BatchReport, now_us: int) -> None:
        """Charge the model for the slice's time."""
        used = self._used.get(report.slice)
        if used is None:
            used = self._used[report.slice] = _Used()
        used.add(report.compute_us, now_us)

    def choose(self, view: QueueView, now_us: int) -> Choice:
        """Return the waiting rows, as many as may go; models are ranked by the slice time that they have
        used."""
        choice = choose_due(view, _as_much_as_may_go, 0, now_us)
        if choice.lane is None:
            return choice
        used = self._used.get(view.slice)
        return choice.ranked(RULE, used.at(now_us) / self._weight if used is not None else 0.0)


def _as_much_as_may_go(variant: str, replica: ReplicaView, size: int) -> int:  # noqa: ARG001  a RowsWorth
    return replica.rows_max(size)
