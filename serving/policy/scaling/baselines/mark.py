"""MArk (Zhang et al., USENIX ATC 2019): plan by forecast, launch at once, destroy what no recent plan wanted.

Every 60 s the peak of the time until the next plan has its effect is forecast, from arrivals in windows of 5
s, and planned for with a fifth more (`Times = 1.2`). What a plan lacks is launched now; what is beyond the
largest of the last six plans is destroyed, and nothing before six are there. Between plans load beyond what
is there gets replicas at once, and where more than 2 % (`SLA_BOUND`) of a minute's requests miss their SLO a
tenth more is launched, at most each five minutes. Constants as in its published code (`scheduler.py`,
`constants.py`).

MArk's forecast is an LSTM's; here it is the median of `serving.policy.forecasting`. Its published code has it
switched off and plans by the largest peak ever. It looks six steps ahead, as its instances take minutes to
come up; here as far as `start_us` says. Overflow goes to serverless functions there; here it gets replicas as
well. Its greedy choice among instance types is left to whoever hands out slices. Capacity is that of n
replicas, not n times that of one.
"""

from collections import deque
from math import ceil

from serving.policy.forecasting.ensemble import forecast
from serving.policy.scaling.carried.capacity import Capacity
from serving.policy.scaling.interface import View, Wish

PERIOD_US = 5_000_000  # PREDICTOR_WINDOW
PLAN_US = 60_000_000
MINUTE = PLAN_US // PERIOD_US  # windows
HISTORY = 720  # windows, an hour
PLANS = 6
TIMES = 1.2
MISSED = 0.02
MORE = 0.1
COOL_US = 5 * PLAN_US


class MarkReplicas:
    """`target`: how many times the forecast peak is planned for, 1.2 by default."""

    period_us = PERIOD_US

    __slots__ = ("_cool_us", "_count", "_peak", "_planned_us", "_plans", "_target", "_watched", "_windows")

    def __init__(self, target: float | None = None) -> None:
        self._target = TIMES if target is None else target
        self._windows: deque[float] = deque(maxlen=HISTORY)  # rows of 5 s
        self._watched: deque[tuple[int, int]] = deque(maxlen=MINUTE)  # (missed, offered)
        self._plans: deque[int] = deque(maxlen=PLANS)
        self._planned_us = -PLAN_US
        self._cool_us = 0  # until when the SLO monitor rests
        self._peak = 0.0  # rows a second, as forecast
        self._count = 0

    def decide(self, view: View) -> Wish:
        """Return each 5 s."""
        offered = view.seen.offered - view.before.offered
        rate = offered * 1e6 / view.period_us
        self._windows.append(rate * PERIOD_US / 1e6)
        self._watched.append((view.seen.missed - view.before.missed, offered))
        self._count = self._count or view.ready + view.coming
        capacity, why = view.capacities.get(view.variant), "what a replica carries is not known yet"
        if capacity is not None:
            if view.now_us - self._planned_us >= PLAN_US - PERIOD_US // 2:
                self._plan(capacity, view)
            why = self._react(capacity, rate, view)
        self._count = min(max(self._count, view.least, 1), view.most)
        carried = capacity.rate(self._count) if capacity is not None else 0.0
        return Wish(
            self._count,
            why,
            f"a forecast peak of over {carried / self._target:.0f} rows a second, or that more than"
            f" {carried:.0f} come",
            f"{PLANS} plans that want fewer",
            pressure=self._target * self._peak / carried if carried else 0.0,
            figures={"rate": rate, "peak": self._peak},
        )

    def _plan(self, capacity: Capacity, view: View) -> None:
        """Launch what is lacking; destroy what none of the last plans wanted."""
        self._planned_us = view.now_us
        self._peak = forecast(self._windows, PERIOD_US / 1e6, (PLAN_US + view.start_us) / 1e6).median
        self._plans.append(capacity.needed(self._target * self._peak, most=max(view.most, 1)))
        self._count = max(self._count, self._plans[-1])
        if len(self._plans) == PLANS:
            self._count = min(self._count, max(self._plans))

    def _react(self, capacity: Capacity, rate: float, view: View) -> str:
        """React to load or misses that no plan foresaw; return why the count is what it is."""
        missed, offered = map(sum, zip(*self._watched, strict=True))
        if rate > capacity.rate(self._count):
            self._count = max(self._count, capacity.needed(rate, most=max(view.most, 1)))
            return f"{rate:.0f} rows a second came, which no plan foresaw"
        if missed > MISSED * offered and view.now_us >= self._cool_us:
            self._cool_us = view.now_us + COOL_US
            self._count += ceil(MORE * self._count)
            return f"{missed} of {offered} rows of a minute missed their SLO"
        return f"{self._peak:.0f} rows a second are forecast, planned for is {self._target:g} times that"
