"""The HorizontalPodAutoscaler of Kubernetes (autoscaling/v2) on utilisation, with its defaults.

Every 15 s it wants ceil(replicas * utilisation / target), unless the ratio is within a tenth of 1; up at
once, to at most twice as many or four more; down to the highest recommendation of the last 300 s. Its
documentation ("Algorithm details", "Default behavior") says so, its code
(`podautoscaler/replica_calculator.go`) what it does with replicas that are not ready: they are set aside, and
on the way up they count as idle. The 100 % of the way down is for pods whose metrics are missing; there are
none here.

Utilisation is the share of their time in which ready replicas computed, in whole per cent as there. Here it
is that of the last 15 s; a metrics server's is older. A replica that is ready counts at once, as it has been
warmed; the CPU of a pod's first five minutes may be left out there. It keeps one replica: `HPAScaleToZero` is
no default.
"""

from collections import deque
from math import ceil

from serving.policy.scaling.interface import View, Wish

PERIOD_US = 15_000_000  # --horizontal-pod-autoscaler-sync-period
TOLERANCE = 0.1  # --horizontal-pod-autoscaler-tolerance
TARGET = 0.8  # what autoscaling/v2 takes where no metric is named
STABLE_US = 300_000_000  # behavior.scaleDown.stabilizationWindowSeconds
FACTOR, MORE = 2, 4  # behavior.scaleUp.policies: 100 % or 4 pods in 15 s, whichever is more


def is_near(ratio: float) -> bool:
    """Return whether a metric over its target is too close to 1 to act on."""
    return 1 - TOLERANCE <= ratio <= 1 + TOLERANCE


def measure(busy: float, count: int) -> int:
    """Return the utilisation, in whole per cent, of `count` replicas if `busy` of them computed in the
    mean."""
    return int(100 * busy / count + 1e-9) if count else 0


def recommend(busy: float, ready: int, current: int, target: int) -> int:
    """Return the replicas for a utilisation of `target` per cent. `busy`: how many of the `ready` replicas
    computed, in the mean; `current`: how many were ordered."""
    if not ready:
        return current  # "did not receive metrics for any ready pods": nothing is done
    ratio, counted = measure(busy, ready) / target, ready
    if ratio > 1 and current > ready:  # on the way up those that are not ready are idle
        ratio, counted = max(measure(busy, current) / target, 1.0), current
    return current if is_near(ratio) else ceil(ratio * counted)


class Behavior:
    """From what is recommended to what is ordered: `behavior` of autoscaling/v2. `count`: ordered so far."""

    __slots__ = ("_recommended", "count")

    def __init__(self) -> None:
        self.count = 0
        self._recommended: deque[tuple[int, int]] = deque()  # (when, how many)

    def settle(self, desired: int, view: View) -> int:
        """Return how many replicas are ordered now; never none."""
        if not self._recommended:
            self._recommended.append((view.now_us, self.count))
        self._recommended.append((view.now_us, desired))
        while self._recommended[0][0] <= view.now_us - STABLE_US:
            self._recommended.popleft()
        safest = max(count for _, count in self._recommended)
        stable = desired if desired > self.count else min(self.count, safest)
        limited = min(stable, max(FACTOR * self.count, self.count + MORE))
        self.count = min(max(limited, view.least, 1), view.most)
        return self.count


class Hpa:
    """`target`: the share of the time in which replicas are to compute, 0.8 by default."""

    period_us = PERIOD_US

    __slots__ = ("_behavior", "_target")

    def __init__(self, target: float | None = None) -> None:
        self._behavior = Behavior()
        self._target = round(100 * (TARGET if target is None else target))

    def decide(self, view: View) -> Wish:
        """Return each 15 s."""
        behavior, target = self._behavior, self._target
        behavior.count = behavior.count or view.ready + view.coming
        busy = (view.seen.busy_us - view.before.busy_us) / view.period_us
        utilisation = measure(busy, view.ready)
        return Wish(
            behavior.settle(recommend(busy, view.ready, behavior.count, target), view),
            f"{view.ready} ready replicas computed {utilisation} % of {PERIOD_US // 1_000_000} s,"
            f" {target} % are aimed at",
            f"over {target * (1 + TOLERANCE):.0f} %",
            f"under {target * (1 - TOLERANCE):.0f} % for {STABLE_US // 1_000_000} s",
            pressure=utilisation / target,
            figures={"utilisation": utilisation / 100},
        )
