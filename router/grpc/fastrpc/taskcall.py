"""A call of any other method: a task runs its handler, and this is the context that it has.

The context offers what grpc.aio's offers to `router/grpc/rpc`: the same handlers serve under both servers.
"""

import asyncio
import logging
from asyncio import CancelledError
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final  # Any: grpc's handlers carry no types

import grpc

from router.grpc.fastrpc.framing import OK, Header, metadata_of, status, timeout_s
from router.grpc.fastrpc.inbound import Carrier, Inbound
from router.protocol.outcomes import INTERNAL_ERROR
from router.security.tls.names import rpc_names
from router.tensors.parts.errors import RequestError
from serving.policy.limits.memory import SMALL_BYTES
from serving.values.vocabulary import Outcome

logger = logging.getLogger(__name__)

DEADLINE: Final = (grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")


class TaskCall(Inbound):
    """`code`: with which it ended; None while it is open, and where its client left."""

    __slots__ = (
        "_callbacks",
        "_code",
        "_headers",
        "_message",
        "_task",
        "_timeout_s",
        "_timer",
        "_trailing",
    )

    def __init__(self, connection: Carrier, stream_id: int, path: str, headers: Sequence[Header]) -> None:
        super().__init__(connection, stream_id, path)
        loop = connection.loop
        self._headers = headers
        self._message: asyncio.Future[Any] = loop.create_future()
        self._code: grpc.StatusCode | None = None
        self._trailing: list[Header] = []
        self._callbacks: list[Callable[[Any], None]] = []
        self._task: asyncio.Task[None] | None = None
        self._timeout_s: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, handler: Any, stated_timeout: bytes | None) -> None:
        """Run a handler of grpc: one with one answer, or with many."""
        loop = self.connection.loop
        left_s = self._timeout_s = timeout_s(stated_timeout)
        if left_s is not None:
            self._timer = loop.call_later(left_s, self._pass_deadline)
        self.logged = handler.stream_unary is not None
        task = self._task = loop.create_task(self._run(handler))
        self.edge.tasks.add(task)
        task.add_done_callback(self._leave)

    async def _run(self, handler: Any) -> None:
        try:
            if handler.stream_unary is None:
                await handler.stream_stream(None, self)
                self._finish(None)
            else:
                self._finish(await handler.stream_unary(None, self))
        except grpc.aio.AbortError:
            pass  # its status is sent
        except Exception:
            logger.exception("a gRPC call failed")
            self.end(status(grpc.StatusCode.INTERNAL, INTERNAL_ERROR))

    def _finish(self, wire: bytes | None) -> None:
        if self.done:
            return
        self.done = True
        self._code = grpc.StatusCode.OK
        fields = [OK, *self._trailing]
        if wire is not None:
            self.connection.answer(self, wire, fields)
            self.log(0, len(wire))
        elif self.headed:
            self.connection.finish(self, fields)
        else:
            self.connection.refuse(self, fields)
        self.settle()

    def _leave(self, task: "asyncio.Task[None]") -> None:
        self.edge.tasks.discard(task)
        if self.gone:
            self._call_back()

    def _call_back(self) -> None:
        callbacks, self._callbacks = self._callbacks, []
        for each in callbacks:
            each(self)

    def _pass_deadline(self) -> None:
        if not self.done:
            self._code = DEADLINE[0]
            self.end(status(*DEADLINE))
        self._cancel()

    def _cancel(self) -> None:
        if self._task is not None and not self._task.done():
            self._task.cancel()

    # as the stream sees it

    def whole(self, message: bytes) -> None:
        if not self._message.done():
            self._message.set_result(message)

    def cut_off(self) -> None:
        """Leave the cut-off to the handler, which reads the end of the stream."""
        self.stop_reading()
        self.whole(grpc.aio.EOF)

    def drain(self, outcome: Outcome) -> None:
        """Do nothing: `Calls.stop` ends what waits for its message."""

    def expire(self) -> None:
        """Do nothing: `Calls.read` does."""

    def refuse(self, error: RequestError) -> None:
        super().refuse(error)
        self._cancel()

    def settle(self) -> None:
        super().settle()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def close(self) -> None:
        super().close()
        if not self.done:
            self.done = True
            self._cancel()
        if self._task is None or self._task.done():
            self._call_back()

    # as its handler sees it

    def invocation_metadata(self) -> tuple[tuple[str, str | bytes], ...]:
        """Return the metadata that the client has sent with its message."""
        return metadata_of(self._headers)

    def auth_context(self) -> Mapping[str, Sequence[bytes]]:
        """Return the names of the client's certificate, as grpc gives them to a method."""
        return rpc_names(self.connection.certificate)

    def peer(self) -> str:
        """Return the client's address, as grpc writes it."""
        return self.connection.peer()

    def code(self) -> grpc.StatusCode | None:
        """Return the status that the call has ended with, if it has."""
        return self._code

    def time_remaining(self) -> float | None:
        """Return the seconds until the client's deadline; None without one."""
        if self._timeout_s is None:
            return None
        return max(0.0, self._timeout_s - (self.connection.loop.time() - self.begun_s))

    def set_trailing_metadata(self, metadata: Sequence[tuple[str, str]]) -> None:
        """Say this with the status."""
        self._trailing = [(name.encode(), value.encode("latin-1")) for name, value in metadata]

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        """Register a callback for when the stream is closed and the handler has ended."""
        self._callbacks.append(callback)

    async def read(self) -> Any:
        """Return the message; EOF where the client has ended without a whole one."""
        return await self._message

    async def write(self, wire: bytes) -> None:
        """Send one of several answers; waits while the client does not take those before it."""
        if self.done:
            raise CancelledError
        self.connection.add(self, wire, first=not self.headed)
        self.headed = True
        while self.connection.queued_bytes(self) > SMALL_BYTES and not self.done:
            await self.connection.room()

    async def abort(
        self, code: grpc.StatusCode, details: str = "", trailing_metadata: Sequence[tuple[str, str]] = ()
    ) -> None:
        """End the call, by an exception, as grpc does."""
        if not self.done:
            self._code = code
            self.end(status(code, details, trailing_metadata))
        raise grpc.aio.AbortError
