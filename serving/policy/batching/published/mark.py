"""MArk's batching (Zhang et al., USENIX ATC 2019): how large a batch may be and how long it may be filled
follow from the profile and the measured rate.

Of the sizes b that the rate fills soon enough, W + T_b <= SLO with W = b / rate, and that are quicker by the
row than no batching, b / T_b > 1 / T_1, the one of most throughput; a batch goes with b rows, or when its
oldest has waited W. As in the paper what waits for a busy slice is not reckoned with and nothing is given up:
MArk starts more instances instead. Its published code has no W and waits until b requests are there: at a low
rate for ever. That is not copied; nor are its fixed sizes by instance type.
"""

from typing import NamedTuple

from serving.policy.batching.interface import (
    WAIT,
    ArrivalView,
    BatchingPolicy,
    Choice,
    LaneView,
    QueueView,
    ReplicaView,
)
from serving.policy.batching.rules.due import wait_or_run
from serving.policy.batching.rules.urgency import most_urgent
from serving.policy.estimates.rates import Rate

REVIEW_US = 50_000
"""The rate is read at most so often, and at arrivals only: what was announced then holds while none comes."""


class Knobs(NamedTuple):
    """The largest batch, in rows, and how long its oldest row waits for others."""

    rows: int
    wait_us: int


def tune(replica: ReplicaView, size: int, slo_us: int, rate: float) -> Knobs:
    """Return the knobs at `rate` rows a microsecond; no batching and no wait where none that pays fills in
    time."""
    best, quickest = Knobs(1, 0), 1 / replica.typical_us(1, size)
    for rows in range(2, replica.rows_max(size) + 1) if rate else ():
        wait_us = rows / rate
        if wait_us + replica.predict_us(rows, size) > slo_us:
            break  # larger ones take longer to fill and to compute
        throughput = rows / replica.typical_us(rows, size)
        if throughput > quickest:
            best, quickest = Knobs(rows, int(wait_us)), throughput
    return best


class _Counted:
    """Arrivals of a size bucket, and their rate as of the last review."""

    __slots__ = ("arrivals", "rate", "read_us")

    def __init__(self) -> None:
        self.arrivals = Rate()
        self.rate = 0.0
        self.read_us = -REVIEW_US


class Mark(BatchingPolicy):
    """`slo_us`: what a row's wait and its batch may take together."""

    __slots__ = ("_counted", "_slo_us", "_tuned")

    def __init__(self, slo_us: int) -> None:
        self._slo_us = slo_us
        self._counted: dict[int, _Counted] = {}  # by size bucket
        self._tuned: dict[tuple[str, str, int], tuple[ReplicaView, float, Knobs]] = {}  # a memo of `tune`

    def on_arrival(self, request: ArrivalView, now_us: int) -> None:
        """Count towards the rate."""
        counted = self._counted.get(request.bucket)
        if counted is None:
            counted = self._counted[request.bucket] = _Counted()
        counted.arrivals.add(request.rows, now_us)
        if now_us - counted.read_us >= REVIEW_US:
            counted.rate, counted.read_us = counted.arrivals.peak(now_us), now_us

    def choose(self, view: QueueView, now_us: int) -> Choice:
        """Return the batch that must start soonest, among the lanes that are due."""
        return most_urgent(self._consider(view, lane, now_us) for lane in view.lanes)

    def _consider(self, view: QueueView, lane: LaneView, now_us: int) -> Choice:
        here = view.answering(lane, now_us)
        if here is None:
            return WAIT
        variant, replica = here
        counted = self._counted.get(lane.bucket)
        rate = 0.0 if counted is None else counted.rate
        key = (view.slice, variant, lane.bucket)
        tuned = self._tuned.get(key)
        if tuned is None or tuned[0] is not replica or tuned[1] != rate:
            tuned = self._tuned[key] = (replica, rate, tune(replica, lane.bucket, self._slo_us, rate))
        rows, wait_us = tuned[2]
        return wait_or_run(lane, here, rows, wait_us, now_us)
