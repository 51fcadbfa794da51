"""A circuit breaker: the gateway stops asking a store that does not answer, and tries it again later.

The pauses between tries grow. Source: Michael Nygard, "Release It!" (2007). Its half-open state is one
attempt by the breaker's owner, never a request.
"""

FAILURES_MAX = 5
"""Failures in a row. A pause of the gateway itself (a garbage collection, a long tick) causes one or two."""

PAUSE_US = 100_000
PAUSE_MAX_US = 5_000_000
STEADY = 200  # after so many answers in time, the next pause is PAUSE_US again


class Breaker:
    """A breaker that is open at first: no asks until an attempt at `attempt_us` has succeeded (`heal`)."""

    __slots__ = ("_failures", "_pause_us", "_successes", "attempt_us", "closed")

    def __init__(self) -> None:
        self.closed = False
        self.attempt_us = 0
        self._failures = 0
        self._successes = 0
        self._pause_us = PAUSE_US

    def succeed(self) -> None:
        """Count an answer that came in time."""
        self._failures = 0
        self._successes += 1
        if self._successes >= STEADY:
            self._pause_us = PAUSE_US

    def fail(self, now_us: int) -> bool:
        """Count an answer that did not come in time; return True if that opens the breaker."""
        self._failures += 1
        if not self.closed or self._failures < FAILURES_MAX:
            return False
        self.trip(now_us)
        return True

    def trip(self, now_us: int) -> None:
        """Open the breaker, or leave it open, after a failed attempt. The next attempt is at `attempt_us`."""
        self.closed = False
        self.attempt_us = now_us + self._pause_us
        self._pause_us = min(2 * self._pause_us, PAUSE_MAX_US)

    def heal(self) -> None:
        """Close the breaker because an attempt succeeded.

        The next pause stays as long as after a failure, until STEADY answers in time.
        """
        self.closed = True
        self._failures = self._successes = 0
