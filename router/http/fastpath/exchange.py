"""One request on a connection and its answer, in the role of uvicorn's RequestResponseCycle.

uvicorn asks its cycle four things: is the answer complete, may the connection live on, has the client
left, and wake whoever waits for a message. Anything that answers these can stand in its pipeline.
"""

import asyncio
import logging
from asyncio import CancelledError
from functools import partial
from typing import Any, ClassVar, Protocol  # Any: what a task returns

from router.http.fastpath.edge import FastEdge
from router.logs.access import NO_IDS, ids_of
from router.payloads.bulk.requests import Opened, make_rest, open_rest
from router.protocol.outcomes import CLIENT_LEFT, INTERNAL_ERROR
from router.protocol.rest import (
    Fields,
    Made,
    Rendered,
    decode_request,
    encode_reply,
    is_bulk,
    is_bulk_answer,
    plain_error,
    render_error,
    stated_tenant,
)
from router.security.auth.identity import Identity, own_tenant
from router.tensors.parts.errors import RequestError, memory_full
from router.tensors.parts.places import CopyFirst, Memory
from router.tensors.request.decoded import Decoded
from router.tensors.rest import Body, joined
from serving.policy.limits.memory import SMALL_BYTES
from serving.ports import Reply
from serving.values.specs import ServedModel
from serving.values.tensor import Buffer
from serving.values.vocabulary import CLIENT_GONE, MEMORY_FULL, Outcome

logger = logging.getLogger(__name__)

_INTERNAL_ERROR: Rendered = (500, plain_error(INTERNAL_ERROR), None, b"")


class Connected(Protocol):
    """What an exchange needs of its connection."""

    transport: asyncio.Transport
    edge: FastEdge

    def address(self) -> str:
        """Return the address of the client."""
        ...

    def hold_back(self) -> None:
        """Read no more for now."""
        ...

    def go_on(self) -> None:
        """Read on."""
        ...

    def refuse_with(self, rendered: Rendered) -> None:
        """Answer with an error, in turn, and close."""
        ...

    def respond(self, inference: "Inference", rendered: Rendered) -> None:
        """Write the answer to an inference."""
        ...

    def linger(self) -> None:
        """Note that the connection's last answer is written."""
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
        """Start to answer the request: all answers before it are written."""
        raise NotImplementedError

    def leave(self) -> None:
        """Note that the connection is gone."""


class Inference(Exchange):
    """`POST .../infer`: decoded, submitted and answered by direct callbacks."""

    __slots__ = (
        "arrived_us",
        "began_us",
        "body",
        "counted",
        "decoded",
        "fields",
        "given_up",
        "held_back",
        "identity",
        "model",
        "request_id",
    )
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
        self.identity: Identity | None = None  # whose key it came by, where one is needed
        self.body = b""
        self.counted = False  # by the edge's account
        self.given_up: Rendered | None = None  # what it is answered instead, for want of memory
        self.held_back = False  # by the account: it is not read on
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
        if len(self.body) > SMALL_BYTES:
            self._count()

    def _count(self) -> None:
        account = self.connection.edge.account
        if not self.counted:
            refusal = account.refusal()
            if refusal is not None:  # its head did not say that it is large
                self.give_up(refusal.message)
                return
            self.counted = True
        account.hold(self, len(self.body))

    def held_bytes(self) -> int:
        """See `router.protocol.account.Upload`."""
        return len(self.body)

    def memory(self) -> Body:
        """Return what it holds of the request."""
        held = (self.body,) if self.decoded is None else (each.data for each in self.decoded.call.inputs)
        return tuple(held)

    def address(self) -> str:
        """See `router.protocol.account.Upload`."""
        return self.connection.address()

    def is_growing(self) -> bool:
        """See `router.protocol.account.Upload`."""
        return self.more_body and not self.held_back

    def hold_back(self) -> None:
        """See `router.protocol.account.Upload`."""
        self.held_back = True
        self.connection.hold_back()

    def go_on(self) -> None:
        """See `router.protocol.account.Upload`."""
        self.held_back = False
        self.connection.go_on()

    def give_up(self, _sentence: str) -> None:
        """See `router.protocol.account.Upload`: answered by 503, at once or when its turn comes."""
        self.body = b""
        self._refused(MEMORY_FULL)
        rendered = render_error(memory_full(_sentence))
        if self.more_body:
            self.connection.refuse_with(rendered)
        else:
            self.given_up = rendered

    def start(self) -> None:
        if not self.more_body:
            self.submit()
        elif self.fields.get(b"expect", b"").lower() == b"100-continue":
            self.connection.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def submit(self) -> None:
        """Submit the request: its body is complete and its turn has come."""
        edge = self.connection.edge
        if self.counted:
            self.counted = False
            edge.account.release(self)
            if self.given_up is not None:
                self._respond(self.given_up)
                return
        self.arrived_us = edge.serving.now_us()
        if is_bulk(self.body, self.fields):
            opening = open_rest(edge.bulk, self.body, self.fields, self.model)
            self.body = b""
            edge.bulk.begin(opening, self._opened)
        else:
            self._submit(self.body, self.fields)

    def _opened(self, task: "asyncio.Task[Opened]") -> None:
        """Submit a large request that is small now, or answer that it is refused."""
        if self._is_ready(task):
            self._submit(*task.result())

    def _copied(self, body: Buffer, fields: Fields, task: "asyncio.Task[Memory]") -> None:
        """Submit a request whose inputs in shared memory are copied, or answer that it is refused."""
        if self._is_ready(task):
            self._submit(body, fields, task.result())

    def _is_ready(self, task: "asyncio.Task[Any]") -> bool:
        """Return whether the work before a request's submission has succeeded and its client waits; answer it
        where it has not."""
        error = CancelledError() if task.cancelled() else task.exception()
        if error is None and not self.disconnected:
            return True
        if self.disconnected:
            self._refused(CLIENT_GONE)
        elif isinstance(error, RequestError):
            self._refused(error.outcome)
            self._respond(render_error(error))
        else:
            logger.error("a large request to '%s' failed", self.model.name, exc_info=error)
            self._respond(_INTERNAL_ERROR)
        return False

    def _submit(self, body: Buffer, fields: Fields, memory: Memory | None = None) -> None:
        edge = self.connection.edge
        if memory is None and edge.regions is not None:
            memory = edge.regions.of(self.identity)
        serving = edge.serving
        try:
            tenant = stated_tenant(serving, fields, own_tenant(self.identity))
            tier = serving.tenants[tenant].tier
            decoded = self.decoded = decode_request(body, fields, self.model, edge.limits, tier, memory)
            decoded.call.arrived_us = self.arrived_us
            decoded.call.tenant = tenant
            if self.identity is not None and edge.guard is not None:
                edge.guard.check_tier(self.identity, decoded.call.objective.tier, tier)
            self.body = b""
            self.request_id = serving.submit(decoded.call, self.deliver)
        except CopyFirst as first:
            self.body = b""
            edge.bulk.begin(first.copy(len(body)), partial(self._copied, body, fields))
        except RequestError as error:
            self._refused(error.outcome)
            self._respond(render_error(error))
        except Exception:
            logger.exception("inference on '%s' failed in the gateway", self.model.name)
            self._respond(_INTERNAL_ERROR)

    def _refused(self, outcome: Outcome) -> None:
        """Count a request that ended before it became a call."""
        serving = self.connection.edge.serving
        tenant = stated_tenant(serving, self.fields, own_tenant(self.identity))
        serving.refused(self.model.name, outcome, tenant)

    def deliver(self, reply: Reply) -> None:
        """Take the core's answer; called once, perhaps before `submit` returns."""
        if self.disconnected or self.response_complete:
            return
        edge, decoded = self.connection.edge, self.decoded
        assert decoded is not None  # noqa: S101  # set before the core could know of this call
        try:
            if is_bulk_answer(decoded, reply, self.fields, edge.limits):
                self.request_id = 0  # the core is done with it
                making = make_rest(edge.bulk, decoded, reply, self.fields)
                edge.bulk.begin(making, partial(self._made, reply))
                return
        except RequestError as error:
            self._respond(render_error(error))
            return
        self._answer(reply, None)

    def _made(self, reply: Reply, task: "asyncio.Task[Made]") -> None:
        """Send a large answer with its body, or an error if the body cannot be written."""
        if self.disconnected or self.response_complete:
            return
        error = CancelledError() if task.cancelled() else task.exception()
        if error is None:
            self._answer(reply, task.result())
        elif isinstance(error, RequestError):
            self._respond(render_error(error))
        else:
            logger.error("a large answer of '%s' failed", self.model.name, exc_info=error)
            self._respond(_INTERNAL_ERROR)

    def _answer(self, reply: Reply, made: Made | None) -> None:
        edge, decoded = self.connection.edge, self.decoded
        assert decoded is not None  # noqa: S101  # it is let go of once there is an answer
        try:
            rendered = encode_reply(decoded, reply, self.fields, self.began_us, edge.serving.now_us, made)
        except RequestError as error:  # what was asked for cannot be written as it was asked
            rendered = render_error(error)
        except Exception:
            logger.exception("encoding an answer of '%s' failed", self.model.name)
            rendered = _INTERNAL_ERROR
        self._respond(rendered)
        if reply.answered_us and rendered[0] == 200:
            edge.answered(self.model.name, reply, self.arrived_us - self.began_us)

    def leave(self) -> None:
        self.disconnected = True
        self._forget()
        if self.request_id and not self.response_complete:
            self.connection.edge.serving.cancel(self.request_id)
            if self.connection.edge.access is not None:
                self.log(CLIENT_LEFT, 0)

    def _forget(self) -> None:
        """Let go of the tensors: an idle connection keeps its last exchange, and a closed one waits, with
        all that it refers to, for the garbage collector."""
        self.body = b""
        self.decoded = None
        if self.counted:
            self.counted = False
            self.connection.edge.account.release(self)

    def _respond(self, rendered: Rendered) -> None:
        if self.response_complete or self.disconnected:
            return
        self.response_complete = True
        self._forget()
        self.connection.edge.account.look()
        self.connection.respond(self, rendered)

    def log(self, status: int, answer_bytes: int) -> None:
        """Write a line in the access log."""
        edge = self.connection.edge
        if edge.access is not None:
            client: object = self.connection.transport.get_extra_info("peername")
            took_us = edge.serving.now_us() - self.arrived_us
            named, trace = self.fields.get(b"x-request-id", b""), self.fields.get(b"traceparent", b"")
            ids = ids_of(named.decode("latin-1"), trace.decode("latin-1"))
            path = f"POST /v2/models/{self.model.name}/infer"
            edge.access(client, path, status, answer_bytes, took_us, ids)


class HttpRefusal(Exchange):
    """An error of HTTP itself: answered in its turn, and the last on its connection."""

    __slots__ = ("rendered",)

    def __init__(self, connection: Connected, rendered: Rendered) -> None:
        super().__init__(connection, keep_alive=False)
        self.more_body = False
        self.rendered = rendered

    def start(self) -> None:
        status, content, _, more = self.rendered
        body = joined(content)
        if self.connection.edge.access is not None:
            client: object = self.connection.transport.get_extra_info("peername")
            self.connection.edge.access(client, "-", status, len(body), 0, NO_IDS)
        head = self.connection.edge.head(status, b"application/json")
        frame = b"content-length: %d%b\r\nconnection: close\r\n\r\n" % (len(body), more)
        self.connection.transport.write(head + frame + body)
        self.response_complete = True
        self.connection.linger()
