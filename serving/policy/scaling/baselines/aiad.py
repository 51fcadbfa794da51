"""Additive increase, additive decrease: the baseline of Faro (Jeon et al., EuroSys 2025).

Every 10 s the mean latency of the last 30 s is held against its target. Above it three times in a row: one
replica more; not above it for ten minutes: one less; then the count starts anew. As its published code
(`AIADPolicy`, `config/autoscaler/autoscale_config.yaml`: `interval_s` 10, `upscale_delay_s` and
`look_back_period_s` 30, `downscale_delay_s` 600; Faro's own fast loop is the same without the way down).

Faro's target is the whole SLO, 720 ms, which latencies there exceed, as everything is answered in the end. A
gateway that refuses what would be late has no such latencies. So what was missed counts as if it had taken
the SLO, and the default target is half of that.
"""

from collections import deque

from serving.policy.scaling.interface import View, Wish

PERIOD_US = 10_000_000
TARGET = 0.5
BACK = 3  # periods over which the mean is taken
UP, DOWN = 3, 60  # periods: 30 s and 600 s


class Aiad:
    """`target`: the mean latency that is aimed at, as a share of the SLO, 0.5 by default."""

    period_us = PERIOD_US

    __slots__ = ("_above", "_below", "_count", "_periods", "_target")

    def __init__(self, target: float | None = None) -> None:
        self._target = TARGET if target is None else target
        self._periods: deque[tuple[float, float]] = deque(maxlen=BACK)  # (summed latency, requests)
        self._count = self._above = self._below = 0

    def decide(self, view: View) -> Wish:
        """Return each 10 s."""
        self._periods.append(_latency(view))
        took_us, requests = map(sum, zip(*self._periods, strict=True))
        share = took_us / requests / view.slo_us if requests else 0.0
        self._count = self._count or view.ready + view.coming
        if share > self._target:
            self._above, self._below = self._above + 1, 0
        else:
            self._above, self._below = 0, self._below + 1
        if self._above >= UP:
            self._count, self._above = self._count + 1, 0
        elif self._below >= DOWN:
            self._count, self._below = self._count - 1, 0
        self._count = min(max(self._count, view.least, 1), view.most)
        return Wish(
            self._count,
            f"the mean latency of {BACK * PERIOD_US // 1_000_000} s is {share:.0%} of the SLO,"
            f" {self._target:.0%} is aimed at",
            f"over {self._target:.0%} for {UP * PERIOD_US // 1_000_000} s",
            f"at most {self._target:.0%} for {DOWN * PERIOD_US // 1_000_000} s",
            pressure=share / self._target,
            figures={"latency": share},
        )


def _latency(view: View) -> tuple[float, float]:
    """Return the sum of latencies of the last period, and the number of requests in it.

    A missed request counts as if it had taken the SLO.
    """
    seen, before = view.seen, view.before
    size = (seen.offered - before.offered) / max(seen.requests - before.requests, 1)
    missed = (seen.missed - before.missed) / max(size, 1.0)  # requests
    return (
        seen.took_us - before.took_us + missed * view.slo_us,
        seen.answered - before.answered + missed,
    )
