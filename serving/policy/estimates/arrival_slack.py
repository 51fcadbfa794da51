"""How long the requests of a model could wait, of late: a long batch must think of who may come."""

from collections import deque

from serving.policy.estimates.rates import Rate

KEPT = 64  # requests
KEPT_US = 5_000_000
PARTS = 10


class ArrivalSlack:
    """`patience_us`: ten quantiles of how long requests could have waited before they had to start, alone and
    by the quickest variant, as of the last review; `rate`: of requests, a microsecond."""

    __slots__ = ("_latest", "_requests", "patience_us", "rate")

    def __init__(self) -> None:
        self._latest: deque[tuple[int, float]] = deque(maxlen=KEPT)
        self._requests = Rate()
        self.patience_us: tuple[float, ...] = ()
        self.rate = 0.0

    def add(self, patience_us: float, now_us: int) -> None:
        """Note that a request came that could have waited for `patience_us`."""
        self._latest.append((now_us, patience_us))
        self._requests.add(1, now_us)

    def review(self, now_us: int) -> None:
        """Look at those of late."""
        while self._latest and self._latest[0][0] < now_us - KEPT_US:
            self._latest.popleft()
        ordered = sorted([patience_us for _, patience_us in self._latest])
        self.rate = self._requests.recent(now_us)
        parts = range(PARTS) if ordered else ()
        self.patience_us = tuple([ordered[part * len(ordered) // PARTS] for part in parts])
