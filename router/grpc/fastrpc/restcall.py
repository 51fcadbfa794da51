"""A request of REST on a stream of HTTP/2. It gets the answer that it would get over HTTP/1.1.

Inference goes the fast path's way (`router/http/fastpath/exchange.py`); every other request goes to the
application, in a task (`router/grpc/fastrpc/applied.py`).
"""

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple

import httptools

from router.grpc.fastrpc.door import RestDoor
from router.grpc.fastrpc.framing import Header
from router.grpc.fastrpc.inbound import Inbound
from router.grpc.fastrpc.outbox import Outbox
from router.http.fastpath.edge import FastEdge
from router.http.fastpath.exchange import Inference
from router.http.fastpath.protocol import HOST
from router.logs.access import NO_IDS
from router.protocol.rest import Rendered, fields_of, plain_error, render_error
from router.tensors.parts.errors import RequestError
from router.tensors.rest import size_of
from serving.policy.limits.memory import SMALL_BYTES
from serving.values.specs import ServedModel
from serving.values.vocabulary import Outcome

CONTINUE: Final = b"100-continue"


class Head(NamedTuple):
    """What a request begins with. `headers`: without HTTP/2's own, the Host first."""

    method: bytes
    target: bytes
    headers: list[Header]


def head_of(headers: Sequence[Header]) -> Head:
    """Return a head as HTTP/1.1 would have it: `:authority` is the Host (RFC 9113, 8.3.1)."""
    method = target = authority = b""
    plain = []
    for name, value in headers:
        if name == b":method":
            method = value
        elif name == b":path":
            target = value
        elif name == b":authority":
            authority = value
        elif not name.startswith(b":"):
            plain.append((name, value))
    if authority:
        plain = [(b"host", authority), *[each for each in plain if each[0] != b"host"]]
    return Head(method, target, plain)


class RestStream(Inbound):
    """What all requests of REST have in common. `arrived`: bytes of the body so far."""

    __slots__ = ("arrived", "door", "fields", "head", "out")

    def __init__(self, connection: Outbox, door: RestDoor, stream_id: int, head: Head) -> None:
        super().__init__(connection, stream_id, head.target.decode("latin-1"))
        self.out = connection
        self.door = door
        self.head = head
        self.fields = fields_of(head.headers)
        self.arrived = 0

    def begin(self) -> None:
        """Start the request once its head is there; one that cannot be served is refused before its body is
        read."""
        self.door.open += 1
        fault = self.fault()
        if fault is None:
            self.start()
        else:
            self.refuse_with(fault)

    def fault(self) -> Rendered | None:
        """Return the answer to a request whose head is over a limit or says nothing; None if it is good."""
        edge, head = self.door.edge, self.head
        if sentence := edge.head_fault(head.target, head.headers):
            return _said(431, sentence)
        if head.method == b"CONNECT":
            return _said(405, "CONNECT is not served here")
        try:
            httptools.parse_url(head.target).path.decode("ascii")
        except (httptools.HttpParserInvalidURLError, AttributeError, UnicodeDecodeError):
            return _said(400, "malformed HTTP request: invalid request target")
        if not HOST.match(self.fields.get(b"host", b"")):
            fault = "it has a Host field whose value is not a host; expected one, such as example.com:8000"
            return _said(400, f"malformed HTTP request: {fault}")
        if sentence := self.door.fullness(head.target):
            return _said(503, sentence)
        if refusal := self.screen():
            return refusal
        stated = self.fields.get(b"content-length", b"")
        self.size = int(stated) if stated.isdigit() else 0
        return self.over() if self.size > edge.limits.body_bytes else None

    def screen(self) -> Rendered | None:
        """Return the answer to a caller that may not make the request; None to any other. The application
        has its own guard."""
        return None

    def over(self) -> Rendered:
        """Return the answer to too large a body."""
        return self.door.edge.over_body(None, self.fields, None)

    def start(self) -> None:
        """Begin to answer the request, with a good head."""
        raise NotImplementedError

    # what the client sends

    def take(self, data: bytes, end: bool) -> None:
        """Take the next piece of the body."""
        if end:
            self.ended = True
        if not self.reading:
            return
        self.arrived += len(data)
        if self.arrived > self.door.edge.limits.body_bytes:
            self.refuse_with(self.over())
            return
        if data:
            self.add(data)
        if end and self.reading:
            self.stop_reading()
            self.complete()

    def add(self, data: bytes) -> None:
        """Take a piece of a body that is within the limits."""
        raise NotImplementedError

    def complete(self) -> None:
        """Note that the body is whole."""
        raise NotImplementedError

    # how it ends

    def refuse_with(self, rendered: Rendered) -> None:
        """Answer with an error; what the client still sends is dropped."""
        if self.done:
            return
        edge = self.door.edge
        self.leave()
        if edge.access is not None:
            edge.access(
                self.out.transport.get_extra_info("peername"),
                "-",
                rendered[0],
                size_of(rendered[1]),
                0,
                NO_IDS,
            )
        self.write(rendered)

    def write(self, rendered: Rendered) -> None:
        """Send a whole answer."""
        status, body, json_length, more = rendered
        kind = b"application/json" if json_length is None else b"application/octet-stream"
        head = [(b":status", b"%d" % status), (b"date", self.door.date), (b"content-type", kind)]
        if json_length is not None:
            head.append((b"inference-header-content-length", b"%d" % json_length))
        head.append((b"content-length", b"%d" % size_of(body)))
        for line in more.split(b"\r\n")[1:]:
            name, _, value = line.partition(b": ")
            head.append((name, value))
        self.done = True
        self.out.reply(self, head, (body,) if isinstance(body, bytes) else body)
        self.settle()

    def leave(self) -> None:
        """Note that whatever answers the request need do so no more."""
        raise NotImplementedError

    def close(self) -> None:
        """Settle the request, as its stream is closed: all is sent, or the client has left."""
        self.gone = True
        self.leave()
        self.settle()
        self.make_room()

    def make_room(self) -> None:
        """Give its place among the open requests back."""
        self.door.open -= 1

    def expire(self) -> None:
        limit_s = self.door.edge.limits.slow_client_s
        sentence = f"the request did not arrive whole within {limit_s:g} s (limits.slow_client_s)"
        self.refuse_with(_said(408, sentence))

    def drain(self, outcome: Outcome) -> None:
        """Do nothing: over HTTP/1.1 too, a request that has begun is served while the gateway drains."""

    def log(self, code: int, answer_bytes: int = 0) -> None:
        """Do nothing: the fast path and the application have their own lines."""


class InferStream(RestStream):
    """Inference on the fast path."""

    __slots__ = ("exchange",)

    def __init__(
        self, connection: Outbox, door: RestDoor, stream_id: int, head: Head, model: ServedModel
    ) -> None:
        super().__init__(connection, door, stream_id, head)
        self.exchange = Inference(_OnStream(self), model, self.fields, keep_alive=True)
        self.exchange.began_us = self.began_us

    def screen(self) -> Rendered | None:
        edge, exchange = self.door.edge, self.exchange
        if edge.guard is not None:
            try:
                exchange.identity = edge.identify(
                    edge.guard, exchange.model, self.fields, self.out.certificate
                )
            except RequestError as error:
                return render_error(error)
        return None

    def over(self) -> Rendered:
        return self.door.edge.over_body(self.exchange.model, self.fields, self.exchange.identity)

    def start(self) -> None:
        if self.size > SMALL_BYTES:
            refusal = self.door.edge.no_memory(self.exchange.model, self.fields)
            if refusal is not None:
                self.refuse_with(refusal)
                return
        if self.fields.get(b"expect", b"").lower() == CONTINUE:
            self.out.invite(self)

    def add(self, data: bytes) -> None:
        self.exchange.add(data)

    def complete(self) -> None:
        exchange = self.exchange
        exchange.more_body = False
        if exchange.held_back:
            exchange.go_on()
        exchange.submit()

    def leave(self) -> None:
        if not self.exchange.disconnected:
            self.exchange.leave()


class _OnStream:
    """The connection that the exchange of an `InferStream` has: see
    `router.http.fastpath.exchange.Connected`."""

    __slots__ = ("_stream", "edge", "transport")

    def __init__(self, stream: InferStream) -> None:
        self._stream = stream
        self.edge: FastEdge = stream.door.edge
        self.transport: asyncio.Transport = stream.out.transport

    def address(self) -> str:
        return self._stream.address()

    def hold_back(self) -> None:
        self._stream.hold_back()

    def go_on(self) -> None:
        self._stream.go_on()

    def refuse_with(self, rendered: Rendered) -> None:
        self._stream.refuse_with(rendered)

    def respond(self, inference: Inference, rendered: Rendered) -> None:
        """Write the answer on the stream."""
        status, body, json_length, more = rendered
        if self.edge.access is not None:
            inference.log(status, size_of(body))
        request_id = inference.fields.get(b"x-request-id")
        if request_id is not None:
            more += b"\r\nx-request-id: " + request_id
        self._stream.write((status, body, json_length, more))

    def linger(self) -> None:
        """Do nothing: a stream that is refused ends alone."""


def _said(status: int, sentence: str) -> Rendered:
    return status, plain_error(sentence), None, b""
