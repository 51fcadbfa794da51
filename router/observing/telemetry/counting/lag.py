"""How late the event loop is: what a request waits, unseen, before anyone here knows of it.

A heartbeat, the one thing in the gateway that polls: timers that exist anyway fire only under load, and then
at moments of their own choosing.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from router.logs.logs import Seldom

PERIOD_S: Final = 0.1
"""A stall of d seconds is seen with probability min(1, d / 0.1). 10 wake-ups of an idle loop a second are
0.4 ms of CPU."""

STALL_US: Final = 1_000_000
"""From then on it is a stall: nothing is answered meanwhile, and probes give up (Kubernetes' after 1 s)."""

_logger = logging.getLogger(__name__)


class LoopLag:
    """Tells `observe` by how many microseconds a timer was late, and `stalled` where that is a stall, until
    it is stopped. uvloop's timers have a grain of 1 ms and may fire that much early, which counts as 0."""

    def __init__(
        self, now_us: Callable[[], int], observe: Callable[[int], None], stalled: Callable[[int], None]
    ) -> None:
        self._now_us = now_us
        self._observe = observe
        self._stalled = stalled
        self._said = Seldom(_logger)
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
        late_us = max(0, self._now_us() - self._due_us)
        self._observe(late_us)
        if late_us >= STALL_US:
            self._stalled(late_us)
            self._said.warning(f"the gateway stood still for {late_us / 1e6:.1f} s: no request was answered")
        self.start()
