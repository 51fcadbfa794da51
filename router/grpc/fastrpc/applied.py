"""A request of REST on a stream of HTTP/2 that the ASGI application answers, in a task."""

import asyncio
import logging
from typing import Any, Final
from urllib.parse import unquote

import httptools
from ngh2 import ErrorCode
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.utils import get_local_addr, get_remote_addr, is_ssl

from router.grpc.fastrpc.door import RestDoor
from router.grpc.fastrpc.framing import Header
from router.grpc.fastrpc.outbox import Outbox
from router.grpc.fastrpc.restcall import CONTINUE, Head, InferStream, RestStream
from router.logs.access import Scope
from router.protocol.outcomes import INTERNAL_ERROR
from router.protocol.rest import plain_error
from router.security.tls.names import NAMES
from serving.policy.limits.memory import SMALL_BYTES

logger = logging.getLogger(__name__)

Message = dict[str, Any]
"""As ASGI's; its values are of any kind."""

_OF_THE_CONNECTION: Final = (
    b"connection",
    b"keep-alive",
    b"transfer-encoding",
    b"upgrade",
    b"proxy-connection",
)
"""Fields that HTTP/2 does not have (RFC 9113, 8.2.2)."""
_EMPTY: Final = (204, 304)
_DISCONNECT: Final[Message] = {"type": "http.disconnect"}


class AppliedStream(RestStream):
    """`left`: whatever the application still says is dropped."""

    __slots__ = ("_bare", "_begun", "_body", "_expects", "_moved", "_started", "_task", "left")

    def __init__(self, connection: Outbox, door: RestDoor, stream_id: int, head: Head) -> None:
        super().__init__(connection, door, stream_id, head)
        self.left = False
        self._body = bytearray()
        self._moved = asyncio.Event()  # more of the body is there, or the request has ended
        self._begun = False  # the application has the request
        self._started = False  # and the head of its answer is sent
        self._bare = head.method == b"HEAD"  # the answer has no body
        self._expects = self.fields.get(b"expect", b"").lower() == CONTINUE
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        tasks = self.edge.tasks
        task = self._task = self.out.loop.create_task(self._run())
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    def add(self, data: bytes) -> None:
        self._body += data
        if len(self._body) > HIGH_WATER_LIMIT:
            self.held_back = True  # until the application has taken it
        self._moved.set()

    def complete(self) -> None:
        self._moved.set()

    def leave(self) -> None:
        self.left = True
        self._body.clear()
        self._moved.set()
        if self._task is not None and not self._begun:
            self._task.cancel()  # a client that asks and leaves at once costs no run of the application

    def make_room(self) -> None:
        """Give the place back once the application has ended, too: a reset does not end it."""
        if self._task is None or self._task.done():
            super().make_room()
        else:
            self._task.add_done_callback(self._make_room)

    def _make_room(self, _task: "asyncio.Task[None]") -> None:
        super().make_room()

    async def _run(self) -> None:
        self._begun = True
        try:
            await self.door.app(self._scope(), self._receive, self._send)
        except Exception:
            logger.exception("a request failed in the application")
        if self.done or self.left:
            return
        if self._started:
            self.done = True
            self.out.reset(self, ErrorCode.INTERNAL_ERROR)
        else:
            self.write((500, plain_error(INTERNAL_ERROR), None, b""))

    def _scope(self) -> Scope:
        head, transport = self.head, self.out.transport
        url = httptools.parse_url(head.target)
        return {
            NAMES: self.out.certificate,
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "2",
            "server": get_local_addr(transport),
            "client": get_remote_addr(transport),
            "scheme": "https" if is_ssl(transport) else "http",
            "root_path": "",
            "method": head.method.decode("latin-1"),
            "path": unquote(url.path.decode("ascii")),
            "raw_path": url.path,
            "query_string": url.query or b"",
            "headers": head.headers,
            "state": {},
        }

    async def _receive(self) -> Message:
        """Return more of the body, or that nothing more will come, as ASGI's `receive` does."""
        if self._expects:
            self._expects = False
            self.out.invite(self)
        if not (self.left or self.done):
            if self.held_back:
                self.held_back = False
                self.out.give_back(self)
            await self._moved.wait()
            self._moved.clear()
        if self.left or self.done:
            return _DISCONNECT
        body = bytes(self._body)
        self._body.clear()
        return {"type": "http.request", "body": body, "more_body": self.reading}

    async def _send(self, message: Any) -> None:
        """Send a part of the answer, as ASGI's `send` does; waits while the client does not take it."""
        while not self.left and self.out.queued_bytes(self) > SMALL_BYTES:
            await self.out.room()
        if self.left or self.done:
            return
        if not self._started:
            self._start_answer(message)
        elif message["type"] == "http.response.body":
            more = bool(message.get("more_body", False))
            if not self._bare:
                self.out.send_piece(self, message.get("body", b""), end=not more)
            if not more:
                self._finish()

    def _start_answer(self, message: Message) -> None:
        status = int(message["status"])
        head: list[Header] = [(b":status", b"%d" % status), (b"date", self.door.date)]
        for name, value in message.get("headers", ()):
            if (low := bytes(name).lower()) not in _OF_THE_CONNECTION:
                head.append((low, bytes(value)))
        self._started = True
        self._expects = False
        self._bare = self._bare or status in _EMPTY
        self.out.send_head(self, head, end=self._bare)

    def _finish(self) -> None:
        self.done = True
        self._moved.set()
        self.settle()
        self.out.cut_short(self)


def rest_stream(connection: Outbox, door: RestDoor, stream_id: int, head: Head) -> RestStream:
    """Return the request with that head: inference of a model that is served, or one for the application."""
    model = door.edge.paths.find(head.target) if head.method == b"POST" else None
    if model is None or (door.edge.cors and any(name == b"origin" for name, _ in head.headers)):
        return AppliedStream(connection, door, stream_id, head)
    return InferStream(connection, door, stream_id, head, model)
