"""The status as it changes: read once a second while anybody watches, and written once for all watchers."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from router.logs.events import Events
from router.observing.page.glance import Parts, message, parts_of
from router.observing.status.document import Status

logger = logging.getLogger(__name__)

PERIOD_S: Final = 1.0
WATCHERS_MAX: Final = 64
EVENTS_SHOWN: Final = 200
"""Events that a page is given at first."""
MISSED_READINGS: Final = 60
"""So many readings ago the misses are counted from, where their main reason is said."""


class Feed:
    """Made once; `watch` yields to each watcher. Nothing runs while there is none."""

    def __init__(
        self, look: Callable[[], Awaitable[Status]], events: Events, period_s: float = PERIOD_S
    ) -> None:
        self._look = look
        self._events = events
        self._period_s = period_s
        self._parts: Parts = {}
        self._missed: deque[dict[str, dict[str, int]]] = deque(maxlen=MISSED_READINGS)
        self._number = self._told = 0
        self._change = b""
        self._turn: asyncio.Event = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self.watchers = 0

    @property
    def has_room(self) -> bool:
        """Whether another watcher may come."""
        return self.watchers < WATCHERS_MAX

    async def watch(self) -> AsyncIterator[bytes]:
        """Yield the whole status, and then each change of it; nothing where there is no room. A watcher that
        is slow misses changes, and is sent the whole again."""
        if not self.has_room:
            return
        self.watchers += 1
        if self._task is None or self._task.done():
            self._parts, self._number = {}, 0
            self._missed.clear()
            self._task = asyncio.create_task(self._run())
        seen = 0
        try:
            while not self._closed:
                turn = self._turn
                if self._number != seen:
                    whole = seen == 0 or seen != self._number - 1
                    seen = self._number
                    yield self._whole() if whole else self._change
                if turn is self._turn:  # nothing new since
                    await turn.wait()
        finally:
            self.watchers -= 1

    def close(self) -> None:
        """Let all watchers end."""
        self._closed = True
        self._pass_turn()

    async def _run(self) -> None:
        while self.watchers and not self._closed:
            begun_s = time.monotonic()
            try:
                await self._read()
            except Exception:
                logger.exception("the status for open pages could not be read")
            spent_s = time.monotonic() - begun_s
            await asyncio.sleep(max(self._period_s - spent_s, self._period_s / 10))

    async def _read(self) -> None:
        status = await self._look()
        self._missed.append({each["name"]: each["counters"]["missed"] for each in status["models"]})
        parts = parts_of(status, time.time(), self._missed[0])
        changed = {name: part for name, part in parts.items() if self._parts.get(name) != part}
        gone = [name for name in self._parts if name not in parts]
        events = self._events.since(self._told)
        self._told = self._events.last
        self._parts = parts
        self._number += 1
        self._change = message(self._number, changed, gone, events, False)
        self._pass_turn()

    def _whole(self) -> bytes:
        return message(self._number, self._parts, (), self._events.since()[-EVENTS_SHOWN:], True)

    def _pass_turn(self) -> None:
        turn, self._turn = self._turn, asyncio.Event()
        turn.set()
