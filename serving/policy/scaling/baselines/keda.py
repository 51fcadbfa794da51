"""KEDA on the length of a queue: it scales between none and one itself, and feeds the HPA with the length.

The HPA asks KEDA's metrics server each 15 s, which asks the queue ("Caching Metrics": by default nothing is
kept), and wants ceil(length / target) replicas (`AverageValue`), unless length / (target * replicas) is
within a tenth of 1. `pollingInterval`, 30 s, and `cooldownPeriod`, 300 s, are for none and one only: a model
with anything queued gets its first replica, one without for 300 s at each poll loses its last ("Activating
and Scaling thresholds"; the activation threshold is 0).

The length is that of rows waiting and in batches, and the target 5, as the scaler for SQS has it by default
(`scaleOnInFlight`, `queueLength`). Who batches sets it higher, to about a batch. Here a model that is on no
slice gets a replica with the first request, not at the next poll.
"""

from math import ceil

from serving.policy.scaling.baselines.hpa import PERIOD_US, Behavior, is_near
from serving.policy.scaling.interface import View, Wish

TARGET = 5.0  # queueLength of the aws-sqs-queue scaler
POLL_US = 30_000_000  # pollingInterval
COOLDOWN_US = 300_000_000  # cooldownPeriod


class Keda:
    """`target`: rows for each replica, waiting or in a batch, 5 by default."""

    period_us = PERIOD_US

    __slots__ = ("_active_us", "_behavior", "_polled_us", "_target")

    def __init__(self, target: float | None = None) -> None:
        self._target = TARGET if target is None else target
        self._behavior = Behavior()
        self._polled_us = -POLL_US
        self._active_us = 0

    def decide(self, view: View) -> Wish:
        """Return each 15 s."""
        behavior, queued = self._behavior, view.seen.waiting + view.seen.running
        if not behavior.count:
            behavior.count = max(view.ready + view.coming, view.least)  # new, or woken by a request
            self._active_us = view.now_us
        if view.now_us - self._polled_us >= POLL_US - PERIOD_US // 2:
            self._poll(queued, view)
        ratio = queued / (self._target * behavior.count) if behavior.count else 0.0
        if behavior.count:
            behavior.settle(behavior.count if is_near(ratio) else ceil(queued / self._target), view)
        return Wish(
            behavior.count,
            f"{queued} rows wait or are in batches, {self._target:g} for each replica are aimed at",
            f"over {1.1 * self._target * behavior.count:.0f} rows",
            f"under {0.9 * self._target * behavior.count:.0f} rows for 300 s",
            pressure=ratio,
            figures={"queued": queued},
        )

    def _poll(self, queued: int, view: View) -> None:
        """Do KEDA's own part: from none to one, and from one to none."""
        self._polled_us = view.now_us
        if queued:
            self._active_us = view.now_us
            self._behavior.count = min(max(self._behavior.count, view.least, 1), view.most)
        elif view.least == 0 and view.now_us - self._active_us > COOLDOWN_US:
            self._behavior.count = 0
