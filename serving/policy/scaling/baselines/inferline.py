"""InferLine's tuner (Crankshaw et al., SoCC 2020, section 5): envelopes of arrivals against that of the plan.

A plan is of k replicas of throughput mu, filled to rho, for a sample of arrivals; its envelope is the most of
them in any window of each length, from the service time doubled up to 60 s. Each second the present envelope
is held against it. Where windows hold more, the largest of their rates is provided for: k = ceil(rate / (mu
rho)). At least 15 s after any change, k follows the largest rate of 5 s within the last 30 s down, by the
same formula.

Here k mu rho is what the table says that k replicas carry of Poisson arrivals, whose envelope is then known:
the mean and four standard deviations (the largest of an hour's 3,600 seconds exceeds the mean by sqrt(2 ln
3600) of them). So rho grows with k, where the paper keeps that of its one plan, and no sample has to be
given. The shortest window is a second, as counts are seen each second. As that is so, the windows that end
now are all that has to be looked at.
"""

from collections import deque
from math import sqrt

from serving.policy.scaling.carried.capacity import Capacity
from serving.policy.scaling.interface import View, Wish

PERIOD_US = 1_000_000
WINDOWS = (1, 2, 4, 8, 16, 32)  # seconds
SIGMAS = 4.0
DOWN_S, DOWN_WINDOW_S = 30, 5
STABLE_US = 15_000_000  # three times the 5 s that a replica takes to come up there


class InferLine:
    """`target`: the share of what a plan's replicas carry that is made use of, 1 by default."""

    period_us = PERIOD_US

    __slots__ = ("_changed_us", "_count", "_rates", "_target")

    def __init__(self, target: float | None = None) -> None:
        self._target = 1.0 if target is None else target
        self._rates: deque[float] = deque(maxlen=max(*WINDOWS, DOWN_S))  # rows a second
        self._count = 0
        self._changed_us = 0

    def decide(self, view: View) -> Wish:
        """Return each second."""
        self._rates.append((view.seen.offered - view.before.offered) * 1e6 / view.period_us)
        before = self._count = self._count or view.ready + view.coming
        capacity, why, rate = (
            view.capacities.get(view.variant),
            "what a replica carries is not known yet",
            0.0,
        )
        if capacity is not None:
            size = max(view.seen.offered, 1) / max(view.seen.requests, 1)
            rate, why = self._exceeding(self._carried(capacity), max(size, 1.0))
            if rate:
                self._count = self._provide(capacity, rate, view)
            elif view.now_us - self._changed_us >= STABLE_US and len(self._rates) >= DOWN_WINDOW_S:
                rate = self._recent()
                self._count = min(self._count, self._provide(capacity, rate, view))
        self._count = min(max(self._count, view.least, 1), view.most)
        if self._count != before:
            self._changed_us = view.now_us
        carried = self._carried(capacity) if capacity is not None else 0.0
        return Wish(
            self._count,
            why,
            f"more in a window of 1 to {WINDOWS[-1]} s than Poisson arrivals of {carried:.0f} a second have",
            f"{DOWN_S} s without more than fewer replicas carry in any {DOWN_WINDOW_S} s",
            pressure=(rate or self._recent()) / carried if carried else 0.0,
            figures={"rate": self._rates[-1]},
        )

    def _carried(self, capacity: Capacity) -> float:
        """Return k mu rho of the present plan."""
        return self._target * capacity.rate(self._count)

    def _provide(self, capacity: Capacity, rate: float, view: View) -> int:
        return capacity.needed(rate / self._target, most=max(view.most, 1))

    def _exceeding(self, carried: float, size: float) -> tuple[float, str]:
        """Return the largest rate of windows that hold more than the plan's envelope (0 if none does), and
        why. `size`: the rows in a request."""
        rates, most = (
            [*self._rates],
            (0.0, f"no window holds more than the plan for {carried:.0f} rows a second"),
        )
        for window in WINDOWS:
            rows = sum(rates[-window:])
            envelope = carried * window + SIGMAS * sqrt(carried * window * size)
            if len(rates) >= window and rows > envelope and rows / window > most[0]:
                most = (
                    rows / window,
                    f"{rows:.0f} rows came within {window} s, planned for are {envelope:.0f}",
                )
        return most

    def _recent(self) -> float:
        """Return the largest rate of 5 s within the last 30 s."""
        rates = [*self._rates][-DOWN_S:]
        starts = range(max(len(rates) - DOWN_WINDOW_S + 1, 1))
        return max(sum(rates[each : each + DOWN_WINDOW_S]) for each in starts) / DOWN_WINDOW_S
