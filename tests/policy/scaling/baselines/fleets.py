"""A model under fluid load, on replicas that come up some seconds after they are wished for."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

from serving.policy.scaling.carried.capacity import Capacity
from serving.policy.scaling.interface import LoadReport, ReplicaPolicy, View, Wish

SLO_US = 200_000
EACH = 100.0  # rows a second that a replica computes
COMPUTE_S = 0.05  # of a row, in its batch

COUNTS = (1, 2, 4, 8, 16, 64)
POOLED = tuple(EACH * count * (1 - 0.3 / count**0.5) for count in COUNTS)
TABLE = Capacity(COUNTS, (1.0, 4.0), (POOLED, tuple(0.5 * rate for rate in POOLED)))
EXACT = Capacity((1, 64), (1.0,), ((EACH, 64 * EACH),))


def shown(seconds: float = 1.0, **fields: object) -> View:
    """A view at the end of so many seconds in which nothing came, with these fields instead."""
    base = View(
        now_us=round(seconds * 1e6),
        period_us=1_000_000,
        seen=LoadReport("m"),
        before=LoadReport("m"),
        ready=1,
        coming=0,
        least=1,
        most=64,
        slo_us=SLO_US,
        start_us=5_000_000,
        variant="v",
        capacities={"v": TABLE},
    )
    return replace(base, **fields)  # type: ignore[arg-type]


class Fleet:
    """`rate`: rows a second that come at each second. What waits for longer than the SLO is given up."""

    def __init__(
        self,
        policy: ReplicaPolicy,
        rate: Callable[[int], float],
        bounds: tuple[int, int] = (1, 64),
        start_s: int = 5,
        capacity: Capacity = TABLE,
    ) -> None:
        self.policy = policy
        self.rate = rate
        self.bounds = bounds
        self.start_s = start_s
        self.capacity = capacity
        self.second = 0
        self.ready = max(bounds[0], 1)
        self.ends: list[int] = []  # when each of those that are coming is there
        self.seen = self.before = LoadReport("m")
        self.decided = 0
        self.wish = Wish(self.ready)
        self.counts: list[int] = []  # wished for, each second
        self._fraction = 0.0  # of a row, left from the last second

    def run(self, seconds: int) -> list[int]:
        """What was wished for in each of so many seconds."""
        for _ in range(seconds):
            self.second += 1
            self.ready += sum(end <= self.second for end in self.ends)
            self.ends = [end for end in self.ends if end > self.second]
            self._serve(self.rate(self.second))
            if (self.second - self.decided) * 1_000_000 >= self.policy.period_us:
                self._decide()
            self.counts.append(self.wish.count)
        return self.counts[-seconds:]

    def _serve(self, offered: float) -> None:
        seen, can = self.seen, self.ready * EACH
        served = min(seen.waiting + offered, can)
        left = seen.waiting + offered - served
        waiting = min(left, can * SLO_US / 1e6)
        came, done, lost = self._whole(offered), round(served), round(left - waiting)
        latency_us = 1e6 * COMPUTE_S + (1e6 * waiting / can if can else 0)
        self.seen = replace(
            seen,
            offered=seen.offered + came,
            requests=seen.requests + came,
            completed=seen.completed + done + lost,
            missed=seen.missed + lost,
            answered=seen.answered + done,
            took_us=seen.took_us + round(done * latency_us),
            busy_us=seen.busy_us + round(1e6 * served / EACH),
            waiting=round(waiting),
            running=round(served * COMPUTE_S),
        )

    def _whole(self, rows: float) -> int:
        """Whole rows; the rest is carried over."""
        whole = int(rows + self._fraction)
        self._fraction += rows - whole
        return whole

    def _decide(self) -> None:
        least, most = self.bounds
        view = shown(
            self.second,
            period_us=(self.second - self.decided) * 1_000_000,
            seen=self.seen,
            before=self.before,
            ready=self.ready,
            coming=len(self.ends),
            least=least,
            most=most,
            start_us=self.start_s * 1_000_000,
            capacities={"v": self.capacity},
        )
        self.wish, self.before, self.decided = self.policy.decide(view), self.seen, self.second
        more = self.wish.count - self.ready - len(self.ends)
        self.ends += [self.second + self.start_s] * more
        gone = -min(more, 0)
        self.ends, gone = self.ends[: max(len(self.ends) - gone, 0)], max(gone - len(self.ends), 0)
        self.ready -= gone


def changes(counts: list[int]) -> int:
    """How often the count became another."""
    return sum(here != there for here, there in pairwise(counts))
