"""A call with many messages: what its handler does not read stays with its client, by flow control.

One whole message waits for the handler at most; behind it the stream's window is not opened again. So a
client that sends faster than its requests are taken is paused, and what it has sent is at most a window.
"""

import asyncio
from collections.abc import Sequence
from typing import Any  # Any: grpc's handlers carry no types

import grpc

from router.grpc.fastrpc.framing import PREFIX_BYTES, Header
from router.grpc.fastrpc.inbound import UNKNOWN_SIZE, Carrier, Inbound
from router.grpc.fastrpc.taskcall import TaskCall
from serving.policy.limits.memory import SMALL_BYTES


class StreamCall(TaskCall):
    """`_next`: a whole message that waits for the handler; `body` is what came behind it."""

    __slots__ = ("_next", "_opened_s", "_paused", "_waiter")

    def __init__(self, connection: Carrier, stream_id: int, path: str, headers: Sequence[Header]) -> None:
        super().__init__(connection, stream_id, path, headers)
        self.body = bytearray()
        self._next: bytes | None = None
        self._opened_s = connection.now_s
        self._paused = False  # by the account
        self._waiter: asyncio.Future[None] | None = None

    def begin(self, handler: Any, stated_timeout: bytes | None) -> None:
        """Run the handler. The stream may be idle for as long as its client likes."""
        super().begin(handler, stated_timeout)
        self.connection.reading.pop(self.id, None)

    # as the stream sees it

    def take(self, data: bytes, end: bool) -> None:
        """Take the next piece of the stream."""
        if end:
            self.ended = True
        if self.done or not self.reading:
            return
        self.body += data  # a bytearray, as long as anything is read
        if self._next is None:
            self._cut()
        else:
            self._weigh()
        self._wake()

    def _cut(self) -> None:
        """Look for the next whole message, and refuse a stream that ends within one."""
        have = len(self.body)
        if have >= PREFIX_BYTES and self.size == UNKNOWN_SIZE and not self._read_prefix():
            self._cancel()
            return
        if self.size != UNKNOWN_SIZE and have >= self.size:
            self._next = bytes(memoryview(self.body)[PREFIX_BYTES : self.size])
            del self.body[: self.size]  # type: ignore[union-attr]  # as in `take`
            self.size = UNKNOWN_SIZE
            self.connection.reading.pop(self.id, None)
        elif have and self.ended:
            Inbound.cut_off(self)
            return
        elif have and self.id not in self.connection.reading:
            self.begun_s = self.connection.now_s  # of the message that comes: it has its own time
            self.connection.reading[self.id] = self
        self._weigh()
        self._look()

    def _weigh(self) -> None:
        """Count what is held of the stream, if that is much."""
        account = self.edge.calls.account
        size = len(self.body)
        if size > SMALL_BYTES:
            self.counted = True
            account.hold(self, size)
        elif self.counted:
            self.counted = False
            account.release(self)

    def _look(self) -> None:
        """Open the client's window again if the handler waits for what comes, and the account permits it."""
        self.held_back = self._paused or self._next is not None
        if not self.held_back and self.unread_bytes:
            self.connection.give_back(self)

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done() and (self._next is not None or self.ended):
            waiter.set_result(None)

    def expire(self) -> None:
        """End the stream: a message of it has not come whole in time."""
        Inbound.expire(self)
        self._cancel()

    def hold_back(self) -> None:
        self._paused = True
        self._look()

    def go_on(self) -> None:
        self._paused = False
        self._look()

    def stop_reading(self) -> None:
        self._paused, self._next = False, None
        self.held_back = False
        super().stop_reading()

    # as its handler sees it

    def time_remaining(self) -> float | None:
        """Return the seconds until the client's deadline; None without one."""
        if self._timeout_s is None:
            return None
        return max(0.0, self._timeout_s - (self.connection.loop.time() - self._opened_s))

    async def read(self) -> Any:
        """Return the next message; EOF after the last."""
        if self._next is None and not self.ended:
            self._waiter = self.connection.loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        message, self._next = self._next, None
        if message is None:
            return grpc.aio.EOF
        if self.reading:
            self._cut()
        return message
