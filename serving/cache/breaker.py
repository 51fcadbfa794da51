"""A circuit breaker: what does not answer is left alone, and tried again after longer and longer pauses.

Michael Nygard, "Release It!" (2007). Its half-open state is one attempt by whoever owns it, never a request.
"""

FAILURES_MAX = 5
"""In a row. One or two come of a pause of our own, as a collection or a long tick."""

PAUSE_US = 100_000
PAUSE_MAX_US = 5_000_000
STEADY = 200  # answers in time after which the next pause is PAUSE_US again


class Breaker:
    """Open at first: nothing is asked until an attempt at `attempt_us` has succeeded (`heal`)."""

    __slots__ = ("_failures", "_pause_us", "_successes", "attempt_us", "closed")

    def __init__(self) -> None:
        self.closed = False
        self.attempt_us = 0
        self._failures = 0
        self._successes = 0
        self._pause_us = PAUSE_US

    def succeed(self) -> None:
        """An answer came in time."""
        self._failures = 0
        self._successes += 1
        if self._successes >= STEADY:
            self._pause_us = PAUSE_US

    def fail(self, now_us: int) -> bool:
        """An answer did not come in time; True where that opens it."""
        self._failures += 1
        if not self.closed or self._failures < FAILURES_MAX:
            return False
        self.trip(now_us)
        return True

    def trip(self, now_us: int) -> None:
        """Open it, or leave it open: an attempt failed. The next is at `attempt_us`."""
        self.closed = False
        self.attempt_us = now_us + self._pause_us
        self._pause_us = min(2 * self._pause_us, PAUSE_MAX_US)

    def heal(self) -> None:
        """An attempt succeeded. The next pause is as long as if it had not, until it has proved steady."""
        self.closed = True
        self._failures = self._successes = 0
