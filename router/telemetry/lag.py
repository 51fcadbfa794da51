"""How late the event loop is: what a request waits, unseen, before anyone here knows of it.

A heartbeat, the one thing in the gateway that polls: timers that exist anyway fire only under load, and then
at moments of their own choosing.
"""

import asyncio
from collections.abc import Callable
from typing import Final

PERIOD_S: Final = 0.1
"""A stall of d seconds is seen with probability min(1, d / 0.1). 10 wake-ups of an idle loop a second are
0.4 ms of CPU."""


class LoopLag:
    """Tells `observe` by how many microseconds a timer was late, until it is stopped. uvloop's timers have a
    grain of 1 ms and may fire that much early, which counts as 0."""

    def __init__(self, now_us: Callable[[], int], observe: Callable[[int], None]) -> None:
        self._now_us = now_us
        self._observe = observe
        self._due_us = 0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin, on the running loop."""
        self._due_us = self._now_us() + round(PERIOD_S * 1e6)
        self._timer = asyncio.get_running_loop().call_later(PERIOD_S, self._beat)

    def stop(self) -> None:
        """End; nothing is observed from now on."""
        if self._timer is not None:
            self._timer.cancel()

    def _beat(self) -> None:
        self._observe(max(0, self._now_us() - self._due_us))
        self.start()
