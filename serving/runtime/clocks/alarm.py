"""One timer for "the next instant at which something is due".

uvloop's timers have a grain of 1 ms and may fire almost 1 ms early (a 0.3 ms timer fires at once), so the
alarm re-reads the clock when it fires and waits another whole millisecond rather than spin; it is at most
about a millisecond late.

Where the whole process stood still, it is later. What came meanwhile is read after timers, where that was
while something else was being read, and a worker or Redis that answered in time would be called late: an
alarm that is so late lets all that came be read first.
"""

import asyncio
from collections.abc import Callable

from serving.runtime.clocks.clock import now_us
from serving.values.vocabulary import NEVER_US

GRAIN_US = 1000
STALL_US = 10_000  # later than ticks and collections make it


class Alarm:
    """Calls `fire(now_us)` once the instant given to `set` has come."""

    __slots__ = ("_armed_us", "_fire", "_loop", "_soon", "_stalled", "_target_us", "_timer")

    def __init__(self, fire: Callable[[int], None]) -> None:
        self._fire = fire
        self._loop = asyncio.get_running_loop()
        self._target_us = NEVER_US
        self._armed_us = NEVER_US
        self._timer: asyncio.TimerHandle | None = None
        self._soon = False
        self._stalled = False

    def set(self, at_us: int, now: int) -> None:
        """Ask for `at_us`, instead of what was asked for before; one not after `now` is due this tick."""
        self._target_us = at_us
        if at_us <= now:
            if not self._soon:
                self._soon = True
                self._loop.call_soon(self._run_soon)
        elif at_us < self._armed_us:
            # A timer that is armed too early is left alone: it finds out, and arms again.
            self._arm(at_us, now)

    def close(self) -> None:
        """Stop the alarm: it never fires again."""
        self._target_us = NEVER_US
        if self._timer is not None:
            self._timer.cancel()

    def _arm(self, at_us: int, now: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._armed_us = at_us
        whole_grains = -(-(at_us - now) // GRAIN_US)
        self._timer = self._loop.call_later(whole_grains * GRAIN_US / 1e6, self._run_timer)

    def _run_soon(self) -> None:
        self._soon = False
        self._check(now_us())

    def _run_timer(self) -> None:
        now = now_us()
        self._timer = None
        self._armed_us = NEVER_US
        self._stalled = not self._stalled and now - self._target_us > STALL_US
        if self._stalled:
            self._arm(now + GRAIN_US, now)
        else:
            self._check(now)

    def _check(self, now: int) -> None:
        if self._target_us <= now:
            self._target_us = NEVER_US
            self._fire(now)
        elif self._target_us < self._armed_us:
            self._arm(self._target_us, now)
