"""One request on a connection and its answer, in the role of uvicorn's RequestResponseCycle.

uvicorn asks its cycle four things: is the answer complete, may the connection live on, has the client
left, and wake whoever waits for a message. Anything that answers these can stand in its pipeline.
"""

import asyncio
import logging
from typing import ClassVar, Protocol

from router.fastpath.edge import Edge
from router.outcomes import INTERNAL_ERROR
from router.rest import Rendered, decode_request, encode_reply, plain_error, render_error, stated_tenant
from router.tensors.decoded import Decoded
from router.tensors.errors import RequestError
from serving.ports import Reply
from serving.specs import ServedModel

logger = logging.getLogger(__name__)

_INTERNAL_ERROR: Rendered = (500, plain_error(INTERNAL_ERROR), None, b"")
CLIENT_GONE = 499
"""What the access log says of a client that left before its answer: nginx's status, never sent."""
_JOIN_MAX_BYTES = 64 << 10
"""Up to here one copy is cheaper than a second buffer on its way to the socket."""


class Connected(Protocol):
    """What an exchange needs of its connection."""

    transport: asyncio.Transport
    edge: Edge

    def on_response_complete(self) -> None:
        """The answer is written."""
        ...

    def linger(self) -> None:
        """The answer is written, and it is the connection's last."""
        ...


class _Unawaited:
    """uvicorn wakes the task of a cycle through its message_event; there is no task here."""

    def set(self) -> None:
        pass


class Exchange:
    """What is common to all answers that no ASGI application gives."""

    __slots__ = ("connection", "disconnected", "keep_alive", "more_body", "response_complete")
    message_event: ClassVar = _Unawaited()
    response_started: ClassVar = False  # an answer is written whole

    def __init__(self, connection: Connected, keep_alive: bool) -> None:
        self.connection = connection
        self.keep_alive = keep_alive
        self.disconnected = False
        self.more_body = True
        self.response_complete = False

    def start(self) -> None:
        """Its turn has come: all answers before it are written."""
        raise NotImplementedError

    def leave(self) -> None:
        """The connection is gone."""


class Inference(Exchange):
    """`POST .../infer`: decoded, submitted and answered by direct callbacks."""

    __slots__ = ("arrived_us", "began_us", "body", "decoded", "fields", "model", "request_id")
    body: bytes | bytearray
    decoded: Decoded | None

    def __init__(
        self, connection: Connected, model: ServedModel, fields: dict[bytes, bytes], keep_alive: bool
    ) -> None:
        self.began_us = 0  # when its first byte was read
        self.connection = connection  # not through super(): 0.2 us
        self.keep_alive = keep_alive
        self.disconnected = False
        self.more_body = True
        self.response_complete = False
        self.model = model
        self.fields = fields
        self.body = b""
        self.decoded = None
        self.request_id = 0
        self.arrived_us = 0

    def add(self, piece: bytes) -> None:
        """Take the next piece of the body; a body that comes whole is not copied."""
        if not self.body:
            self.body = piece
        elif isinstance(self.body, bytes):
            self.body = bytearray(self.body)
            self.body += piece
        else:
            self.body += piece

    def start(self) -> None:
        if not self.more_body:
            self.submit()
        elif self.fields.get(b"expect", b"").lower() == b"100-continue":
            self.connection.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def submit(self) -> None:
        """The body is complete and it is this request's turn."""
        edge = self.connection.edge
        serving = edge.serving
        tenant = stated_tenant(serving, self.fields)
        try:
            arrived_us = self.arrived_us = serving.now_us()
            tier = serving.tenants[tenant].tier
            decoded = self.decoded = decode_request(self.body, self.fields, self.model, edge.limits, tier)
            decoded.call.arrived_us = arrived_us
            decoded.call.tenant = tenant
            self.body = b""
            self.request_id = serving.submit(decoded.call, self.deliver)
        except RequestError as error:
            serving.refused(self.model.name, error.outcome, tenant)
            self._respond(render_error(error))
        except Exception:
            logger.exception("inference on '%s' failed in the gateway", self.model.name)
            self._respond(_INTERNAL_ERROR)

    def deliver(self, reply: Reply) -> None:
        """The core's answer; called once, perhaps before `submit` returns."""
        if self.disconnected or self.response_complete:
            return
        serving, decoded = self.connection.edge.serving, self.decoded
        assert decoded is not None  # noqa: S101  # set before the core could know of this call
        try:
            rendered = encode_reply(decoded, reply, self.fields, self.began_us, serving.now_us)
        except RequestError as error:  # what was asked for cannot be written as it was asked
            rendered = render_error(error)
        except Exception:
            logger.exception("encoding an answer of '%s' failed", self.model.name)
            rendered = _INTERNAL_ERROR
        self._respond(rendered)
        if reply.answered_us and rendered[0] == 200:
            made_us = serving.now_us() - reply.answered_us
            serving.answered(self.model.name, reply, self.arrived_us - self.began_us, made_us)

    def leave(self) -> None:
        self.disconnected = True
        self._forget()
        if self.request_id and not self.response_complete:
            self.connection.edge.serving.cancel(self.request_id)
            if self.connection.edge.access is not None:
                self._log(CLIENT_GONE, 0)

    def _forget(self) -> None:
        """Let go of the tensors: an idle connection keeps its last exchange, and a closed one waits, with
        all that it refers to, for the garbage collector."""
        self.body = b""
        self.decoded = None

    def _respond(self, rendered: Rendered) -> None:
        if self.response_complete or self.disconnected:
            return
        self.response_complete = True
        self._forget()
        connection = self.connection
        transport, edge = connection.transport, connection.edge
        if transport.is_closing():
            return
        status, body, json_length, more = rendered
        if edge.access is not None:
            self._log(status, len(body))
        if status != 200:
            head = edge.head(status, b"application/json") + b"content-length: "
        elif json_length is None:
            head = edge.json_head
        else:
            head = b"%b%d\r\ncontent-length: " % (edge.binary_head, json_length)
        request_id = self.fields.get(b"x-request-id")
        if request_id is not None:
            more += b"\r\nx-request-id: " + request_id
        if not self.keep_alive:
            more += b"\r\nconnection: close"
        if len(body) <= _JOIN_MAX_BYTES:
            transport.write(b"%b%d%b\r\n\r\n%b" % (head, len(body), more, body))
        else:
            transport.writelines((b"%b%d%b\r\n\r\n" % (head, len(body), more), body))
        if not self.keep_alive:
            transport.close()
        connection.on_response_complete()

    def _log(self, status: int, answer_bytes: int) -> None:
        """A line in the access log."""
        edge = self.connection.edge
        if edge.access is not None:
            client: object = self.connection.transport.get_extra_info("peername")
            took_us = edge.serving.now_us() - self.arrived_us
            edge.access(client, f"POST /v2/models/{self.model.name}/infer", status, answer_bytes, took_us)


class Refusal(Exchange):
    """An error of HTTP itself: answered in its turn, and the last on its connection."""

    __slots__ = ("rendered",)

    def __init__(self, connection: Connected, rendered: Rendered) -> None:
        super().__init__(connection, keep_alive=False)
        self.more_body = False
        self.rendered = rendered

    def start(self) -> None:
        status, body, _, more = self.rendered
        if self.connection.edge.access is not None:
            client: object = self.connection.transport.get_extra_info("peername")
            self.connection.edge.access(client, "-", status, len(body), 0)
        head = self.connection.edge.head(status, b"application/json")
        frame = b"content-length: %d%b\r\nconnection: close\r\n\r\n" % (len(body), more)
        self.connection.transport.write(head + frame + body)
        self.response_complete = True
        self.connection.linger()
