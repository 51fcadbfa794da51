"""The composite SLO policy: the batch that keeps the most promises, started as late as pays.

Ordering is by deadline and the variant is bound late. From the head of a lane, pieces are given up only as
far as the batch behind them could not otherwise carry the load (window drop: Nexus, SOSP 2019, and Symphony,
arXiv 2308.07470, "drop target"). A batch goes at once when waiting for more rows would save no device time
(b >= beta * lambda, Symphony) or when it already carries the load (`b_sus`); otherwise it waits until the
latest start that is left when all models of the slice are planned backwards (`policy/arbitration.py`).
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from math import ceil, inf

from serving.policy.batching.seam import (
    WAIT,
    BatchReport,
    Choice,
    LaneView,
    QueueView,
    ReplicaView,
    resident,
    take_prefix,
)
from serving.policy.rates import Rate

RHO = 1.0  # share of the slices' time that the plan may use; .95 cost 2-4 % of capacity in simulation
MIXED_SHARE = 0.85  # of a neighbour's slack that one batch may take: 16 of 18.7 ms was best in simulation
REVIEW_US = 50_000  # how old the derived sizes may grow
SCALE_STEPS = 7  # halvings in the search for the common scale: 1 % of it


@dataclass(frozen=True, slots=True)
class Sizes:
    """What follows from rates and latencies: `target` meets the SLO best, `sustaining` carries the load."""

    target: int
    sustaining: int
    cap: int
    rate: float


class Slo:
    """`slo_us`: the promise, less what answering costs after the batch; `guard_us`: lateness to allow for."""

    __slots__ = ("_derived", "_guard_us", "_rate", "_slo_us")

    def __init__(self, slo_us: int, guard_us: int) -> None:
        self._slo_us = slo_us
        self._guard_us = guard_us
        self._rate = Rate()
        self._derived: dict[tuple[int, str, int], tuple[int, Sizes]] = {}  # memo of a pure function, by slice

    def on_arrival(self, rows: int, lane: Hashable, now_us: int) -> None:  # noqa: ARG002  lanes share the load
        """Count towards the arrival rate."""
        self._rate.add(rows, now_us)

    def on_done(self, report: BatchReport, now_us: int) -> None:
        """Batches teach the latency estimate, not this policy."""

    def hopeless(self, view: QueueView, now_us: int) -> Sequence[tuple[LaneView, int]]:
        """What could not be answered in time even alone, at once."""
        found = []
        for lane in view.lanes:
            here = resident(view, lane)
            if here is not None:
                count = _expired(lane, here[1], now_us)
                if count:
                    found.append((lane, count))
        return found

    def choose(self, view: QueueView, now_us: int) -> Choice:
        """The best batch of each lane; of them, the one whose latest start comes first."""
        best = WAIT
        for lane in view.lanes:
            choice = self._consider(view, lane, now_us)
            if choice.lane is not None and (
                best.lane is None or choice.latest_start_us < best.latest_start_us
            ):
                best = choice
        return best

    def load(self, view: QueueView, now_us: int) -> tuple[float, int, ReplicaView] | None:
        """The model's arrival rate, the batch it aims at and a replica that runs it; None without traffic."""
        rate, replica = self._rate.peak(now_us), _any_replica(view)
        if not rate or replica is None:
            return None
        return rate, self._target(replica, 0, rate), replica

    def slack_us(self, view: QueueView, now_us: int) -> float:
        """How long this model, while it has traffic, can stand another's batch before its own."""
        replica = _any_replica(view)
        if replica is None or not self._rate.peak(now_us):
            return inf
        return self._slo_us - replica.predict_us(1, 0)

    def _consider(self, view: QueueView, lane: LaneView, now_us: int) -> Choice:
        here = resident(view, lane)
        if here is None:
            return WAIT
        variant, replica = here
        size = lane.size
        sizes = self._sizes(view, replica, variant, size, now_us)
        skip, count, rows = _window(lane, replica, sizes, now_us + self._guard_us)
        latency_us = replica.predict_us(rows, size)
        grown_us = replica.predict_us(rows + 1, size) if rows < sizes.target else latency_us
        head_us = lane.pieces[skip].deadline_us - self._guard_us
        return Choice(
            lane, count, rows, variant, head_us - ceil(latency_us),
            skip=skip, latency_us=latency_us, grown_us=grown_us,
            patient=rows < _threshold(replica, size, rows, sizes),
        )  # fmt: skip

    def _sizes(self, view: QueueView, replica: ReplicaView, variant: str, size: int, now_us: int) -> Sizes:
        key = (id(replica), variant, size)
        known = self._derived.get(key)
        if known is not None and now_us - known[0] < REVIEW_US:
            return known[1]
        rate = self._rate.peak(now_us)
        target = self._target(replica, size, rate)
        scale = self._scale(view, now_us)
        sizes = Sizes(target, max(1, int(scale * target)), self._cap(view, replica, size, now_us), rate)
        if len(self._derived) > 64:  # replicas come and go
            self._derived.clear()
        self._derived[key] = (now_us, sizes)
        return sizes

    def _target(self, replica: ReplicaView, size: int, rate: float) -> int:
        """The largest batch that its first row can wait for (Symphony's estimator)."""
        target = 1
        for rows in range(1, replica.rows_max(size) + 1):
            latency_us = replica.predict_us(rows, size)
            devices = rate * latency_us / rows
            if devices > 1:
                fits = latency_us * (1 + 1 / devices) <= self._slo_us
            else:
                fits = latency_us + (rows / rate if rate else inf) <= self._slo_us
            if fits:
                target = rows
        return target

    def _scale(self, view: QueueView, now_us: int) -> float:
        """The least share of their targets with which all models here carry their load; 1 in overload."""
        neighbours = [
            policy.load(queue, now_us) for policy, queue in view.neighbours if isinstance(policy, Slo)
        ]
        loads = [load for load in neighbours if load is not None]
        room = RHO * view.slices

        def needs(scale: float) -> float:
            """Slices' worth of time that all need with batches of `scale` times their targets."""
            total = 0.0
            for rate, target, replica in loads:
                rows = max(1, int(scale * target))
                total += rate * replica.typical_us(rows, 0) / rows
            return total

        if needs(1.0) > room:
            return 1.0
        low, high = 0.0, 1.0
        for _ in range(SCALE_STEPS):
            middle = (low + high) / 2
            low, high = (low, middle) if needs(middle) <= room else (middle, high)
        return high

    def _cap(self, view: QueueView, replica: ReplicaView, size: int, now_us: int) -> int:
        """The largest batch that leaves neighbours with tighter SLOs their slack."""
        slacks = (
            policy.slack_us(queue, now_us)
            for policy, queue in view.neighbours
            if isinstance(policy, Slo) and policy._slo_us < self._slo_us  # noqa: SLF001  its own kind
        )
        budget_us = MIXED_SHARE * min(slacks, default=inf)
        return max(1, min(replica.rows_max(size), replica.rows_in(budget_us, size)))


def _window(lane: LaneView, replica: ReplicaView, sizes: Sizes, now_us: int) -> tuple[int, int, int]:
    """(pieces to give up, pieces to take, their rows): the first window that carries the load.

    While the batch that meets the head's deadline is smaller than what carries the load, and than what
    is there, the head is not worth its price and the next piece is looked at.
    """
    pieces, left = lane.pieces, lane.rows
    for skip, piece in enumerate(pieces):
        fitting = min(sizes.cap, replica.rows_in(piece.deadline_us - now_us, lane.size))
        if fitting >= min(sizes.sustaining, left, sizes.cap) or skip == len(pieces) - 1:
            return skip, *take_prefix(pieces, fitting, skip)
        left -= piece.rows
    raise AssertionError("a lane is never empty")


def _threshold(replica: ReplicaView, size: int, rows: int, sizes: Sizes) -> float:
    """Rows from which waiting saves nothing: one inter-arrival of idle time against beta / rows of work."""
    if rows >= sizes.target:
        return 0
    here_us, target_us = replica.typical_us(rows, size), replica.typical_us(sizes.target, size)
    slope_us = (target_us - here_us) / (sizes.target - rows)
    beta_us = here_us - rows * slope_us
    return max(1, min(sizes.sustaining, sizes.target, beta_us * sizes.rate))


def _expired(lane: LaneView, replica: ReplicaView, now_us: int) -> int:
    earliest_us = now_us + replica.predict_us(1, lane.size)
    count = 0
    for piece in lane.pieces:
        if piece.deadline_us >= earliest_us:
            break
        count += 1
    return count


def _any_replica(view: QueueView) -> ReplicaView | None:
    """The replica that the first lane would run on; of an empty queue, whichever is there."""
    for lane in view.lanes:
        here = resident(view, lane)
        if here is not None:
            return here[1]
    return view.default_replica
