"""What many connections want at once is done in portions: the event loop serves others in between."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from router.tensors.rest import Body, size_of

ENDS_A_TURN: Final = 8
"""Connections that are closed at once, as their clients have. Each takes some 60 us, and as long for each MB
of an upload that it gives back; a request to the ASGI application waits for several turns."""
READS_A_TURN: Final = 4
"""Connections of which a large read is taken at once: each has at most 256 KB, which take some 0.2 ms."""


LARGE_BYTES: Final = 1 << 20


class Turns:
    """Does what was put off, at most `count` of it in each turn of the event loop, in the order in which it
    came. What counts for more than that has a turn alone."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._waiting: deque[tuple[Callable[[], None], int]] = deque()
        self._runs = False

    def put_off(self, action: Callable[[], None], weight: int = 1) -> None:
        """Do this action in one of the loop's next turns; `weight` says how much it counts for."""
        self._waiting.append((action, weight))
        if not self._runs:
            self._runs = True
            asyncio.get_running_loop().call_soon(self._run)

    def let_go(self, held: Body) -> None:
        """Drop this in one of the loop's next turns, where it is large: its memory takes 0.1 ms a MB to free,
        and many connections may end at once. The caller drops its own reference."""
        size = size_of(held)
        if size > LARGE_BYTES:
            self.put_off([held].clear, 1 + (size >> 20))

    def _run(self) -> None:
        waiting, left = self._waiting, self._count
        try:
            while waiting and (left >= waiting[0][1] or left == self._count):
                action, weight = waiting.popleft()
                left -= weight
                action()
        finally:
            self._runs = bool(waiting)
            if waiting:
                asyncio.get_running_loop().call_soon(self._run)
