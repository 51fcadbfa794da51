"""Keep-alive HTTP/1.1 connections that carry one request at a time and grow with need, up to a bound.

Requests are bytes made before the run, and of an answer only what is needed is read: the status, the length,
and the body where it is an error. An answer costs the client some 20 us. Who wants to read answers, after the
run, has them kept.
"""

import asyncio
import contextlib
import os
import time
from typing import Protocol, cast

from loadtests.harness.record import CLOSED, NO_ANSWER, NO_CONNECTION, NO_STATUS, REFUSED, UNREADABLE
from loadtests.harness.wire import Answer

_IDLE = -1


class Outcomes(Protocol):
    """An object that receives how each arrival ended."""

    def settle(self, number: int, status: int, reason: str = "") -> None: ...


class Pool:
    """The connections to one server; `open` counts those that exist or are being made. `kept`: where complete
    answers go as they came, by the number of their arrival; None for nowhere."""

    def __init__(
        self, host: str, port: int, count_max: int, outcomes: Outcomes, kept: dict[int, bytes] | None = None
    ) -> None:
        self.outcomes = outcomes
        self.kept = kept
        self.free: list[Connection] = []  # the last one used is used next, so that the others may grow old
        self.opened = 0
        self.open = 0
        self.peak = 0
        self.connect_ns_max = 0
        self._address = (host, port)
        self._count_max = count_max
        self._loop = asyncio.get_running_loop()
        self._connecting: set[asyncio.Task[None]] = set()
        self._connections: set[Connection] = set()

    def send(self, number: int, request: bytes) -> None:
        """Send on a free connection, else on a new one; over the bound the arrival ends as not sent."""
        while self.free:
            connection = self.free.pop()
            if connection.usable:
                connection.send(number, request)
                return
        if self.open >= self._count_max:
            self.outcomes.settle(number, NO_STATUS, NO_CONNECTION)
            return
        self._start_connecting(number, request)

    async def warm(self, count: int) -> None:
        """Open connections before the run; OSError where the server takes none."""
        for _ in range(min(count, self._count_max)):
            self._start_connecting(_IDLE, b"")
        while self._connecting:
            await asyncio.wait(self._connecting)
        if count and not self.free:
            raise OSError(f"{self._address[0]}:{self._address[1]} takes no connections")
        self.connect_ns_max = 0

    async def close(self) -> None:
        """Drop every connection; requests that still wait end as not answered."""
        connecting = list(self._connecting)
        for task in connecting:
            task.cancel()
        await asyncio.gather(*connecting, return_exceptions=True)
        for connection in list(self._connections):
            connection.drop()

    def made(self, connection: "Connection") -> None:
        self._connections.add(connection)

    def lost(self, connection: "Connection") -> None:
        self._connections.discard(connection)
        self.open -= 1

    def _start_connecting(self, number: int, request: bytes) -> None:
        self.open += 1
        self.opened += 1
        self.peak = max(self.peak, self.open)
        task = self._loop.create_task(self._connect(number, request))
        self._connecting.add(task)
        task.add_done_callback(self._end_connecting)

    def _end_connecting(self, task: asyncio.Task[None]) -> None:
        self._connecting.discard(task)
        if not task.cancelled() and (error := task.exception()):
            raise error  # a mistake of ours; the loop's exception handler ends the run

    async def _connect(self, number: int, request: bytes) -> None:
        began_ns = time.monotonic_ns()
        try:
            _, connection = await self._loop.create_connection(lambda: Connection(self), *self._address)
        except OSError:
            self.open -= 1
            if number != _IDLE:
                self.outcomes.settle(number, NO_STATUS, REFUSED)
            return
        except asyncio.CancelledError:
            self.open -= 1
            if number != _IDLE:
                self.outcomes.settle(number, NO_STATUS, NO_ANSWER)
            raise
        self.connect_ns_max = max(self.connect_ns_max, time.monotonic_ns() - began_ns)
        if number == _IDLE:
            self.free.append(connection)
        elif connection.usable:
            connection.send(number, request)
        else:  # the server took the connection and closed it in the same moment
            self.outcomes.settle(number, NO_STATUS, CLOSED)


class Connection(asyncio.Protocol):
    """One connection to the server, with at most one request on it."""

    __slots__ = ("_done", "_file", "_last", "_number", "_parts", "_pool", "_size", "_transport")

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._number = _IDLE
        self._parts = b""  # of an answer that did not come in one piece
        self._size = 0  # of the whole answer, once its head is there
        self._last = False  # the server will close after this answer
        self._done = False  # with this connection, from either side
        self._file = -1  # the socket's descriptor
        self._transport: asyncio.Transport | None = None

    @property
    def usable(self) -> bool:
        """Whether a request can be sent on it; asked of the transport too, which learns of resets first."""
        return self._transport is not None and not self._done and not self._transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's has no such parent
        self._file = transport.get_extra_info("socket").fileno()
        self._pool.made(self)

    def send(self, number: int, request: bytes) -> None:
        """Write the request at once. uvloop's `write` waits for the end of the loop's turn, which `sent_ns`
        does not see."""
        self._number = number
        transport = self._transport
        if transport is None:
            raise RuntimeError("nothing can be sent before the connection is made")
        try:
            written = os.write(self._file, request)
        except BlockingIOError:
            written = 0
        except OSError:  # reset since it was last used
            self._done = True
            transport.abort()
            return
        if written < len(request):
            transport.write(request[written:])

    def data_received(self, data: bytes) -> None:
        if self._number == _IDLE:
            self.drop()  # an answer to nothing; what follows on this connection would be shifted by one
            return
        if self._parts:
            data = self._parts + data
        if not self._size and not self._read_size(data):
            return
        if len(data) < self._size:
            self._parts = data
            return
        self._finish(data)

    def _read_size(self, data: bytes) -> bool:
        """Return whether the head is complete and states how long the answer is; an unreadable one ends
        here."""
        end = data.find(b"\r\n\r\n")
        if end < 0:
            self._parts = data
            return False
        head = data[:end].lower()
        at = head.find(b"\r\ncontent-length:")
        length = head[at + 17 :].partition(b"\r\n")[0].strip() if at >= 0 else b""
        if not head.startswith(b"http/1.") or not length.isdigit() or not head[9:12].isdigit():
            self._end(NO_STATUS, UNREADABLE)
            self.drop()
            return False
        self._size = end + 4 + int(length)
        self._last = b"\r\nconnection: close" in head
        return True

    def _finish(self, data: bytes) -> None:
        status, surplus = int(data[9:12]), len(data) > self._size
        reason = "" if status == 200 else Answer(status, {}, data.partition(b"\r\n\r\n")[2]).reason
        if (kept := self._pool.kept) is not None:
            kept[self._number] = data[: self._size]
        self._parts, self._size = b"", 0
        self._end(status, reason)
        transport = self._transport
        if self._last or surplus or transport is None or transport.get_write_buffer_size():
            self.drop()  # the server closes it, is out of step, or answered before it had read everything
        else:
            self._pool.free.append(self)

    def eof_received(self) -> None:
        """Note that the server sends no more, so no answer can come; None makes the transport close
        itself."""
        self._done = True

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 (the protocol's signature)
        self._done = True
        if self._number != _IDLE:
            self._end(NO_STATUS, CLOSED)
        self._pool.lost(self)

    def drop(self) -> None:
        """Close without waiting for anything; a request that still waits ends as not answered."""
        self._done = True
        if self._number != _IDLE:
            self._end(NO_STATUS, NO_ANSWER)
        if self._transport is not None:
            with contextlib.suppress(OSError):
                self._transport.abort()

    def _end(self, status: int, reason: str) -> None:
        number, self._number = self._number, _IDLE
        self._pool.outcomes.settle(number, status, reason)
