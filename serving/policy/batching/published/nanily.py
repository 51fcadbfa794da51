"""Nanily (Tang et al., HPCC 2019): a batch as large as the remaining time of its most urgent request allows.

For a server that becomes free after W, T_rem = min(D) - now - W and B = l^-1(T_rem); it runs min(B, all that
waits) at once. W is 0 here: a policy is asked for the instant at which the slice is free. The paper gives
nothing up and so serves late in overload, where T_rem and with it B shrink to nothing: `shed` gives up what
would be late even alone.
"""

from collections.abc import Sequence

from serving.policy.batching.interface import (
    BatchingPolicy,
    BatchReport,
    Choice,
    LaneView,
    QueueView,
)
from serving.policy.batching.rules.fill import fill_time
from serving.policy.batching.rules.hopeless import find_hopeless
from serving.policy.batching.rules.urgency import most_urgent
from serving.policy.estimates.latency import Doubt


class Nanily(BatchingPolicy):
    """`shed`: give up what would be late even alone."""

    __slots__ = ("_doubt", "_shed")

    def __init__(self, shed: bool = False) -> None:
        self._shed = shed
        self._doubt = Doubt()

    def on_done(self, report: BatchReport, now_us: int) -> None:
        """Note a finished batch as a sign of life."""
        self._doubt.heard(report.compute_us, report.typical_us, now_us)

    def hopeless(self, view: QueueView, now_us: int) -> Sequence[tuple[LaneView, int]]:
        """Return what would be late even alone, if it sheds."""
        return find_hopeless(view, self._doubt.at(now_us), now_us) if self._shed else ()

    def choose(self, view: QueueView, now_us: int) -> Choice:
        """Return the lanes' batch that must start soonest."""
        return most_urgent(fill_time(view, lane, now_us) for lane in view.lanes)
