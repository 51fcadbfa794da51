"""Who else needs a slice that a long batch would keep: what waits for it, and who may come."""

from collections.abc import Iterable
from typing import Protocol

from serving.policy.estimates.rates import QUIET
from serving.policy.variants.selection import LaneBacklog
from serving.scheduler.slices.replicas import Replica
from serving.scheduler.waiting.lanes import Lane, Queue

LATENESS_US = 1000  # of wake-ups, until that has been measured
LOOKED = 16  # lanes


class Contender(Protocol):
    """A model's queue, as a slice sees it."""

    queue: Queue

    @property
    def slices(self) -> int: ...
    @property
    def lateness_us(self) -> float | None: ...
    def quickest(self, lane: Lane, rows: int) -> tuple[str, Replica] | None: ...
    def elsewhere_us(self, now_us: int) -> int: ...


def backlog_of(own: Contender, lane: Lane, queues: Iterable[Contender], now_us: int) -> LaneBacklog:
    """Return the backlog of a lane and of the other lanes in the slice's `queues`, when a batch of the lane
    is to be formed. It includes the patience of the requests to come. Of many queues only the first LOOKED
    are examined."""
    backlog = LaneBacklog(lane, own.slices, own.lateness_us or LATENESS_US, now_us)
    backlog.kin_rows = sum([kin.rows for kin in own.queue.kin(lane)])
    backlog.others_rows = own.queue.backlog.rows - lane.rows - backlog.kin_rows
    others: list[tuple[float, int]] = []
    comers: list[tuple[tuple[float, ...], int]] = []
    for here in queues:
        known = here.queue.comers
        if known is None:
            continue
        elsewhere_us = here.elsewhere_us(now_us)
        if here is own:
            backlog.requests = known.rate
        if known.rate > QUIET and known.patience_us:
            comers.append((known.patience_us, elsewhere_us))
        for other in here.queue.lanes if len(others) < LOOKED else ():
            head = other.pieces[0]
            quickest = here.quickest(other, head.rows) if other is not lane else None
            if quickest is not None:
                latest_us = head.deadline_us - quickest[1].predict_us(head.rows, head.size)
                others.append((latest_us, elsewhere_us))
    backlog.others, backlog.comers = others, comers
    return backlog
