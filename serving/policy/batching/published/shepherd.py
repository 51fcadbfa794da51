"""FLEX, the online algorithm of SHEPHERD (Zhang et al., NSDI 2023), as its author corrected it for the
authors of Symphony: a batch grows by what it would take with one row more.

Heads that would be late even alone are given up; the batch of a model is the longest prefix, by deadline,
that still meets its own head's deadline; of the models the one with the largest batch goes. So a model that
few ask for starves beside one that many do, and in overload the head keeps batches small.

The paper interrupts a batch for one that is 3.03 times as large. Nothing here can interrupt one: a kernel
that runs can only be ended with its process. In simulation that never gained more than 1 % of capacity over
serving by earliest deadline on the rows of `tests/simulation/catalogue.py`, and FLEX as a whole lost 9 % with
ten models on eight slices. Its periodic planner (HERCULES) places models and is no batching policy.
"""

from collections.abc import Sequence

from serving.policy.batching.interface import (
    WAIT,
    BatchingPolicy,
    BatchReport,
    Choice,
    LaneView,
    QueueView,
)
from serving.policy.batching.rules.fill import fill_time
from serving.policy.batching.rules.hopeless import find_hopeless
from serving.policy.estimates.latency import Doubt

RULE = "shepherd"


class Shepherd(BatchingPolicy):
    """FLEX without preemption."""

    __slots__ = ("_doubt",)

    def __init__(self) -> None:
        self._doubt = Doubt()

    def on_done(self, report: BatchReport, now_us: int) -> None:
        """Note a finished batch as a sign that predictions hold."""
        self._doubt.heard(report.compute_us, report.typical_us, now_us)

    def hopeless(self, view: QueueView, now_us: int) -> Sequence[tuple[LaneView, int]]:
        """Return what would be late even alone."""
        return find_hopeless(view, self._doubt.at(now_us), now_us)

    def choose(self, view: QueueView, now_us: int) -> Choice:
        """Return the largest batch of a lane that meets its head's deadline, and ranked so between models."""
        batches = (fill_time(view, lane, now_us) for lane in view.lanes)
        best = max(batches, key=lambda choice: choice.rows, default=WAIT)
        return best if best.lane is None else best.ranked(RULE, -best.rows)
