"""One timer for all connections of the gRPC edge: idle and old ones, slow clients, floods."""

import asyncio
from collections.abc import Callable, Mapping, Set
from typing import Final, Protocol

from ngh2 import Connection, ErrorCode, NGH2Error

from serving.values.specs import Limits

LOOKS_A_TURN: Final = 256
"""Connections that are looked at before others have a turn."""


class SweptCall(Protocol):
    """A call as the sweep sees it: see `router.grpc.fastrpc.inbound.Inbound`."""

    id: int
    begun_s: float
    done: bool
    left_bytes: int
    moved_s: float

    def expire(self) -> None:
        """End the call, as its message has not arrived in time."""
        ...


class SweptConnection(Protocol):
    """A connection as the sweep sees it: see `router.grpc.fastrpc.connection.RpcConnection`."""

    http: Connection
    transport: asyncio.Transport
    ended: bool
    greeted: bool
    draining: bool
    idle_frames: int
    queued: int
    written_bytes: int
    made_s: float
    idle_since_s: float
    drained_s: float
    moved: tuple[int, float]

    @property
    def calls(self) -> Mapping[int, SweptCall]:
        """The calls with an open stream."""
        ...

    @property
    def reading(self) -> Mapping[int, SweptCall]:
        """The calls without a whole message, the oldest first."""
        ...

    def drain(self) -> None:
        """Take no new call, answer the accepted ones, then close."""
        ...

    def abort(self) -> None:
        """Close at once."""
        ...

    def flush(self) -> None:
        """Send what can be sent."""
        ...

    def unsent_bytes(self, stream_id: int) -> int:
        """Return how much of a call's answers is not sent."""
        ...


class RpcSweep:
    """Looks at each connection some times within the shortest limit, and while there is any."""

    def __init__(
        self, connections: Set[SweptConnection], limits: Limits, on_sweep: Callable[[], None]
    ) -> None:
        self._connections = connections
        self._limits = limits
        self._on_sweep = on_sweep
        spans_s = (limits.idle_connection_s, limits.slow_client_s, limits.grpc_age_s or limits.slow_client_s)
        self._period_s = min(1.0, min(spans_s) / 4)
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start the timer, as there is a connection; do nothing if the timer runs already."""
        if self._timer is None:
            self._on_sweep()
            self._timer = asyncio.get_running_loop().call_later(self._period_s, self._run)

    def stop(self) -> None:
        """Stop the timer, as no connection is left."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _run(self) -> None:
        self._on_sweep()
        self._look_at(list(self._connections))

    def _look_at(self, connections: list[SweptConnection]) -> None:
        """Check the last of these connections now, and the others in the event loop's next turns."""
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        for connection in connections[-LOOKS_A_TURN:]:
            if not connection.ended:
                self._look(connection, now_s)
        del connections[-LOOKS_A_TURN:]
        if connections:
            self._timer = loop.call_later(0, self._look_at, connections)
        else:
            self._timer = loop.call_later(self._period_s, self._run) if self._connections else None

    def _look(self, connection: SweptConnection, now_s: float) -> None:
        limits = self._limits
        connection.idle_frames = 0
        age_s = now_s - connection.made_s
        if not connection.greeted:
            if age_s >= limits.slow_client_s:
                connection.abort()
            return
        idle = not connection.calls and now_s - connection.idle_since_s >= limits.idle_connection_s
        if idle or (limits.grpc_age_s and age_s >= limits.grpc_age_s):
            connection.drain()
        if connection.draining and now_s - connection.drained_s >= limits.drain_s:
            connection.abort()
            return
        for call in tuple(connection.reading.values()):
            if now_s - call.begun_s < limits.slow_client_s:
                break
            call.expire()
        if _is_stuck(connection, now_s, limits.slow_client_s):
            connection.abort()
        elif connection.calls:
            _look_at_answers(connection, now_s, limits.slow_client_s)


def _is_stuck(connection: SweptConnection, now_s: float, limit_s: float) -> bool:
    """Return whether the socket has taken nothing for so long of what waits for it."""
    waiting = connection.transport.get_write_buffer_size()
    seen, since_s = connection.moved
    if not waiting or connection.written_bytes - waiting != seen:
        connection.moved = (connection.written_bytes - waiting, now_s)
        return False
    return now_s - since_s >= limit_s


def _look_at_answers(connection: SweptConnection, now_s: float, limit_s: float) -> None:
    """End the streams whose answers the client does not take, and the streams that it leaves open."""
    for call in tuple(connection.calls.values()):
        if not (call.done or connection.queued):
            continue
        left = connection.unsent_bytes(call.id)
        if not (call.done or left):
            call.moved_s = 0.0
            continue
        if left != call.left_bytes or not call.moved_s:
            call.left_bytes, call.moved_s = left, now_s
            continue
        if left and now_s - call.moved_s < limit_s:
            continue
        try:
            connection.http.reset_stream(call.id, ErrorCode.CANCEL if left else ErrorCode.NO_ERROR)
        except NGH2Error:
            return  # the connection ends
    connection.flush()
