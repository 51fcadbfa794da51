"""A model's replicas and what comes, a second at a time: the smallest world in which a wish has consequences.

What comes waits (a fluid), and is missed where that takes longer than the SLO. A replica takes its time to
start.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from serving.policy.scaling.carried.capacity import Capacity
from serving.policy.scaling.interface import LoadReport, PlannedBand, ReplicaPolicy, View, Wish

SECOND_US = 1_000_000
EACH = 30.0
"""Rows a second that a replica computes without a pause."""


def table(each: float = EACH) -> Capacity:
    """As simulations fill them: several carry more than as many times one, and bursts cost."""
    counts = (1, 2, 4, 8, 16, 32)
    share = {1.0: (0.7, 0.85, 0.92, 0.96, 0.98, 1.0), 4.0: (0.05, 0.15, 0.35, 0.6, 0.8, 0.9)}
    rates = tuple(
        tuple(n * each * part for n, part in zip(counts, parts, strict=True)) for parts in share.values()
    )
    return Capacity(counts, tuple(share), rates)


@dataclass
class Loop:
    """`truth`: what a replica really computes a second. `wishes` of every second, `changes` of the count."""

    policy: ReplicaPolicy
    least: int = 1
    most: int = 64
    start_s: int = 10
    slo_us: int = 400_000
    truth: float = EACH
    capacity: Capacity = field(default_factory=table)
    capacities: dict[str, Capacity] | None = None  # {"v": capacity}
    band: Callable[[int], PlannedBand | None] = lambda now_us: None
    ready: int = 1
    waiting: float = 0.0
    now_s: int = 0
    wishes: list[Wish] = field(default_factory=list)
    offered: int = 0
    missed: int = 0

    def __post_init__(self) -> None:
        self._starting: list[int] = []
        self._seen = self._before = LoadReport("m")

    def second(self, rows: int, gaps_s2: float | None = None) -> Wish:
        """`rows` come; the policy is asked at its end, if it is time."""
        self.now_s += 1
        self.ready += sum(at <= self.now_s for at in self._starting)
        self._starting = [at for at in self._starting if at > self.now_s]
        busy = min((self.waiting + rows) / self.truth, self.ready)
        self.waiting = max(self.waiting + rows - self.truth * self.ready, 0.0)
        missed = max(round(self.waiting - self.truth * self.ready * self.slo_us / SECOND_US), 0)
        self.waiting -= missed
        before = self._seen
        gaps = gaps_s2 if gaps_s2 is not None else 2 / rows if rows else 0.0  # those of Poisson arrivals
        self._seen = LoadReport(
            "m",
            offered=before.offered + rows,
            requests=before.requests + rows,
            gaps_s2=before.gaps_s2 + gaps,
            completed=before.completed + rows - missed,
            missed=before.missed + missed,
            busy_us=before.busy_us + round(busy * SECOND_US),
            waiting=round(self.waiting),
            oldest_us=round(self.waiting / (self.truth * max(self.ready, 1)) * SECOND_US),
            running=round(busy),
        )
        self.offered, self.missed = self._seen.offered, self._seen.missed
        if self.now_s % (self.policy.period_us // SECOND_US) == 0 or not self.wishes:
            wish = self.policy.decide(self._view())
            self._before = self._seen
            self._follow(min(max(wish.count, self.least), self.most))
            self._told = wish
        self.wishes.append(self._told)
        return self._told

    def poisson(self, rate: Callable[[int], float], seconds: int, seed: int = 0) -> None:
        """Rows come by chance, at `rate` of each second."""
        chance = np.random.default_rng(seed)
        for at in range(seconds):
            self.second(int(chance.poisson(rate(at))))

    @property
    def counts(self) -> list[int]:
        """That were wished, by second."""
        return [wish.count for wish in self.wishes]

    @property
    def changes(self) -> int:
        """Of the count."""
        counts = self.counts
        return sum(before != after for before, after in pairwise(counts))

    def _view(self) -> View:
        now_us = self.now_s * SECOND_US
        capacities = {"v": self.capacity} if self.capacities is None else self.capacities
        return View(
            now_us, self.policy.period_us, self._seen, self._before, self.ready, len(self._starting),
            self.least, self.most, self.slo_us, self.start_s * SECOND_US, "v", capacities, self.band(now_us),
        )  # fmt: skip

    def _follow(self, count: int) -> None:
        while self.ready + len(self._starting) < count:
            self._starting.append(self.now_s + self.start_s)
        while self._starting and self.ready + len(self._starting) > count:
            self._starting.pop()
        self.ready = min(self.ready, count)
