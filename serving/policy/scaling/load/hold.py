"""Down slowly: no fewer than were wished at any time of late.

MArk (Zhang et al., ATC 2019) destroys no instance that one of its last plans had.
"""

from collections import deque

STARTS = 10  # a replica that is let go too soon is missed for one start: held for so many, it pays
SHORTEST_US = 60_000_000
LONGEST_US = 300_000_000  # Kubernetes holds for as long (its stabilisation window), whatever a start takes


def hold_us(start_us: int) -> int:
    """Return for how long a count is held if replicas take `start_us` to start."""
    return min(max(STARTS * start_us, SHORTEST_US), LONGEST_US)


class Hold:
    """The most of what was wished of late, in constant time a look (amortised)."""

    def __init__(self) -> None:
        self._falling: deque[tuple[int, int]] = deque()  # instant and count, the counts falling

    def most(self, count: int, now_us: int, length_us: int) -> int:
        """Return the most of `count`, wished now, and of all that was wished in the `length_us` before."""
        while self._falling and self._falling[-1][1] <= count:
            self._falling.pop()
        self._falling.append((now_us, count))
        while self._falling[0][0] < now_us - length_us:
            self._falling.popleft()
        return self._falling[0][1]
