"""One timer closes idle, slow and lingering connections; arming one per request costs 1.3 us each."""

import asyncio
from collections.abc import Callable, Set
from enum import Enum
from typing import Final, Protocol

from serving.values.specs import Limits

RESERVE_S: Final = 2.0
"""How long a connection of the reserve may wait for its next request, or send it."""

LINGER_S = 2.0
"""How long a refused client may go on sending: it reads the refusal before a reset (RFC 9112, 9.6)."""


LOOKS_A_TURN = 256
"""Connections that are looked at before others have a turn: each look takes 2 us."""


class WaitsFor(Enum):
    """What a connection waits for."""

    REQUEST = "the next request"
    UPLOAD = "the rest of a request"
    ANSWER = "the core"
    READER = "the client to take its answer"
    ROOM = "memory, before more of an upload is read"
    RESERVE = "a request that the reserve is for"
    GOODBYE = "the client to close, after a refusal"


class Sweepable(Protocol):
    """A connection as the sweep sees it."""

    swept: tuple[int, WaitsFor, float]

    def waiting(self) -> tuple[int, WaitsFor]:
        """Return how many answers it has had, and what it waits for: while both stay, it makes no
        progress."""
        ...

    def expire(self, waiting: WaitsFor) -> None:
        """Expire the connection, which has waited too long for `waiting`."""
        ...


class IdleSweep:
    """Looks at each connection some times within the shortest limit, and while there is any."""

    def __init__(self, connections: Set[object], limits: Limits, on_sweep: Callable[[], None]) -> None:
        self._connections = connections
        self._on_sweep = on_sweep
        self._limits_s = {
            WaitsFor.REQUEST: limits.idle_connection_s,
            WaitsFor.UPLOAD: limits.slow_client_s,
            WaitsFor.READER: limits.slow_client_s,
            WaitsFor.ROOM: limits.slow_client_s,
            WaitsFor.RESERVE: min(RESERVE_S, limits.idle_connection_s),
            WaitsFor.GOODBYE: min(LINGER_S, limits.slow_client_s),
        }
        self._period_s = min(1.0, min(self._limits_s.values()) / 4)  # 1 s: the Date is refreshed here
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start the timer, as there is a connection; do nothing if it runs already."""
        if self._timer is None:
            self._run()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _run(self) -> None:
        self._on_sweep()
        self._look_at(list(self._connections))

    def _look_at(self, connections: list[object]) -> None:
        """Look at the last of these connections, and at the others in the loop's next turns."""
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        for connection in connections[-LOOKS_A_TURN:]:
            if connection in self._connections:  # it may have gone meanwhile
                self._look(connection, now_s)  # type: ignore[arg-type]  # uvicorn's set holds our protocols only
        del connections[-LOOKS_A_TURN:]
        if connections:
            self._timer = loop.call_later(0, self._look_at, connections)
        else:
            self._timer = loop.call_later(self._period_s, self._run) if self._connections else None

    def _look(self, connection: Sweepable, now_s: float) -> None:
        answers, waiting = connection.waiting()
        seen_answers, seen_waiting, since_s = connection.swept
        if answers != seen_answers or waiting is not seen_waiting:
            connection.swept = (answers, waiting, now_s)
        elif now_s - since_s >= self._limits_s.get(waiting, float("inf")):
            connection.expire(waiting)
