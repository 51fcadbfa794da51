"""Ray Serve's autoscaler: so many ongoing requests for each replica, held long enough.

Of the requests that wait or run, in the mean over 30 s (`look_back_period_s`), a replica is to have 2
(`target_ongoing_requests`): ceil(ongoing / target) replicas are desired. The count follows when more were
desired at every look for 30 s (`upscale_delay_s`), fewer for 600 s (`downscale_delay_s`), to what is desired
then; from one to none as slowly, from none to one at once. Defaults of `AutoscalingConfig` since Ray 2.32,
rules of `replica_queue_length_autoscaling_policy` and `_apply_delay_logic`; both smoothing factors are 1.

Ongoing requests are counted in rows here. A replica that batches has a batch of them at least: Ray's users
set the target to about its size, and so is `target` to be. Ray looks each 0.1 s at what replicas report each
10 s; here it looks each second at what is so.
"""

from collections import deque
from math import ceil

from serving.policy.scaling.interface import View, Wish

PERIOD_US = 1_000_000
TARGET = 2.0  # target_ongoing_requests
BACK_US = 30_000_000  # look_back_period_s
UP_US = 30_000_000  # upscale_delay_s
DOWN_US = 600_000_000  # downscale_delay_s


class RayServe:
    """`target`: rows for each replica, waiting or in a batch, 2 by default."""

    period_us = PERIOD_US

    __slots__ = ("_count", "_direction", "_ongoing", "_since_us", "_target")

    def __init__(self, target: float | None = None) -> None:
        self._target = TARGET if target is None else target
        self._ongoing: deque[tuple[int, int]] = deque()  # (when, rows)
        self._count = 0
        self._direction = 0  # 1: more are desired, since _since_us; -1: fewer
        self._since_us = 0

    def decide(self, view: View) -> Wish:
        """Return each second."""
        ongoing = view.seen.waiting + view.seen.running
        self._ongoing.append((view.now_us, ongoing))
        while self._ongoing[0][0] <= view.now_us - BACK_US:
            self._ongoing.popleft()
        mean = sum(rows for _, rows in self._ongoing) / len(self._ongoing)
        self._count = self._count or view.ready + view.coming
        if view.ready:
            self._delay(min(max(ceil(mean / self._target), view.least), view.most), view.now_us)
        elif ongoing:
            self._count = max(self._count, 1)
        self._count = min(max(self._count, view.least), view.most)
        return Wish(
            self._count,
            f"{mean:.1f} rows were ongoing in the mean over {BACK_US // 1_000_000} s,"
            f" {self._target:g} for each replica are aimed at",
            f"over {self._target * self._count:g} rows for {UP_US // 1_000_000} s",
            f"at most {self._target * (self._count - 1):g} rows for {DOWN_US // 1_000_000} s",
            pressure=mean / (self._target * max(view.ready, 1)),
            figures={"ongoing": mean},
        )

    def _delay(self, desired: int, now_us: int) -> None:
        """Set the count to what has been desired for long enough; to none only from one."""
        direction = (desired > self._count) - (desired < self._count)
        if direction != self._direction:
            self._direction, self._since_us = direction, now_us
        elif direction and now_us - self._since_us >= (UP_US if direction > 0 else DOWN_US):
            self._count = desired if direction > 0 or self._count == 1 else max(desired, 1)
            self._direction = 0
