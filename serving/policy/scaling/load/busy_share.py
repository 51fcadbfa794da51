"""How busy replicas are: what is gone by where no table says what they answer in time."""

from collections import deque

LENGTH_S = 30.0  # that it is the mean of: a batch of a second is no load
FULL = 0.7
"""Of a replica's time: up to it rows that come by chance find few before them (in an M/M/1
queue 1.6 wait); nobody knows a better bound where no SLO gives one."""
TOLERANCE = 0.1  # below FULL, before one fewer would do: as Kubernetes' autoscaler has it


class BusyShare:
    """`share`: replicas that were computing, on the average of late."""

    def __init__(self) -> None:
        self._looks: deque[tuple[int, int]] = deque()
        self._busy_us = self._length_us = 0

    @property
    def share(self) -> float:
        """0 before anything was seen."""
        return self._busy_us / self._length_us if self._length_us else 0.0

    def add(self, busy_us: int, period_us: int) -> None:
        """Note that replicas computed for `busy_us` in the last `period_us`, all of them together."""
        self._looks.append((busy_us, period_us))
        self._busy_us += busy_us
        self._length_us += period_us
        while len(self._looks) > 1 and self._length_us > LENGTH_S * 1e6:
            busy_us, period_us = self._looks.popleft()
            self._busy_us -= busy_us
            self._length_us -= period_us
