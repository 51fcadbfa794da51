"""uvicorn's HTTP protocol with a short cut: inference requests are answered by direct callbacks.

Everything else takes uvicorn's own way into the ASGI application; the ASGI scope is built only for
requests that go there. The limits on heads and bodies hold for both and are checked as data arrives.
"""

import asyncio
import logging
import re
from typing import Final

import httptools
from uvicorn.config import Config

from router.http.fastpath.connection import BETWEEN, BODY, HEAD, Connection, Cycle
from router.http.fastpath.edge import FastEdge
from router.http.fastpath.exchange import Inference
from router.http.fastpath.places import RESERVED_PATHS
from router.protocol.outcomes import INTERNAL_ERROR
from router.protocol.rest import Fields, fields_of, render_error
from router.security.auth.guard import KeyGuard
from router.security.auth.identity import Identity
from router.security.tls.names import NAMES
from router.tensors.parts.errors import RequestError
from serving.policy.limits.memory import SMALL_BYTES
from serving.values.specs import ServedModel

logger = logging.getLogger(__name__)

FED_BYTES: Final = 8 << 10
"""Parsed at once. A read of 256 KB may hold 10,000 requests, which take 140 ms; others have turns between."""

LONG_BYTES: Final = 32 << 10
"""After a longer read others are read first."""

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""With which a client of HTTP/2 begins, where it knows that the server speaks it (RFC 9113, 3.3 and 3.4)."""

HOST: Final = re.compile(rb"(\[[0-9A-Fa-f:.]+\]|[\w.~!$&'()*+,;=%-]*)(:\d*)?\Z")
"""A value of Host, which may be empty: a name or an address, perhaps with a port (RFC 3986, 3.2.2)."""


class _Stop(Exception):  # noqa: N818  # a signal to the parser, never seen outside
    """Raised in a parser callback where nothing that follows on the connection is to be parsed."""


class FastProtocol(Connection):
    """One connection: what its parser reports, within the limits, on to one of the two ways."""

    def __init__(self, config: Config, edge: FastEdge) -> None:
        super().__init__(config, edge)
        self.body_max_bytes = edge.limits.body_bytes
        self.header_max_bytes = edge.limits.header_bytes
        self.header_max_count = edge.limits.header_count
        self.read_us = 0  # when something was read last
        self.began_us = 0  # when the first byte of the request that is being received was read
        self.fed_bytes = 0  # of the read that is being parsed
        self.stated_bytes = 0  # of the body of the request that is being received; 0 where nothing says it
        self.body_bytes = 0  # of it, received
        self.counted_body_bytes = 0
        self.identity: Identity | None = None  # whose request is being received, where a key is needed
        self.silent_bytes = -1  # read since without reaching a callback; -1: the head began in this read
        # What may be the beginning of HTTP/2's preface; None once it is known what the client speaks.
        self.opening: bytes | None = b"" if edge.http2 is not None else None

    def data_received(self, data: bytes) -> None:
        if self.opening is not None:
            data = self._open(self.opening + data)
            if not data:
                return
        self.read_us = self.edge.serving.now_us()
        if len(data) <= FED_BYTES and not self.behind:
            self._take(data)
            return
        if not self.behind and self._is_body(len(data)):
            self._take(data)
        else:
            self.behind += data
            if not self.reading.behind:
                self._go_on()
        if len(data) > LONG_BYTES and not self.reading.read_paused:
            self.reading.rest()  # libuv would read 32 times, 8 MB, before it looks at another connection
            self.edge.reads.put_off(self.reading.read_on)

    def _open(self, data: bytes) -> bytes:
        """Return the first of what the client sends, if that is HTTP/1.1; b"" while this is not known yet,
        and if another protocol has taken the connection over."""
        make = self.edge.http2
        if make is None or self.refused or not PREFACE.startswith(data[: len(PREFACE)]):
            self.opening = None
            self.parsing = BETWEEN
            return data
        if len(data) < len(PREFACE):
            self.opening = data
            self.parsing = HEAD  # the rest is to come in time
            return b""
        self.opening = None
        if not self.transport.is_closing():
            self._hand_over(make(), data)
        return b""

    def _hand_over(self, protocol: asyncio.Protocol, data: bytes) -> None:
        """Give the connection, and its place, to a protocol that goes on from the first byte."""
        edge, transport = self.edge, self.transport
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        edge.places.leave(self)
        self.connections.discard(self)
        if not self.connections:
            edge.closed.set()
        self.parser = None  # type: ignore[assignment]  # it refers to this
        protocol.data_received(data)

    def _is_body(self, size: int) -> bool:
        """Return whether the next `size` bytes belong to one body, with no other request among them."""
        return self.parsing == BODY and size <= self.stated_bytes - self.body_bytes

    def _go_on(self) -> None:
        """Parse the next part of what is there, and the parts of one body after it; the rest in the loop's
        next turn, once the requests before it have had theirs."""
        behind = self.behind
        while behind and not (self.refused or self.stopped or self.transport.is_closing()):
            self._take(bytes(memoryview(behind)[:FED_BYTES]))
            del behind[:FED_BYTES]
            if behind and self.parsing != BODY:
                self.reading.hold()
                if self.pipeline:
                    self.parked = True
                else:
                    self.loop.call_soon(self._go_on)
                return
        behind.clear()
        self.reading.let_go()
        if self.ended_behind:
            self.ended_behind = False
            self._end()

    def _take(self, data: bytes) -> None:
        if self.refused or self.stopped:
            return
        self.fed_bytes = len(data)
        try:
            rest = self._feed(data)
            while rest is not None:  # behind a request that offers another protocol; many may be in one read
                self._withdraw_offer()
                rest = self._feed(rest)
        except httptools.HttpParserError as error:
            self._parser_failed(error)
        if self.parsing:
            self._count_silence()

    def _feed(self, data: bytes | memoryview) -> memoryview | None:
        """Feed the parser; return what it leaves if a request offers another protocol, else None.

        The result is no copy: otherwise each of many such requests would copy all that follows it.
        """
        if not data or self.refused:
            return None
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            return memoryview(data)[upgrade.args[0] :]
        return None

    def on_message_begin(self) -> None:
        newest: Cycle | None = self.cycle
        if newest is not None and not newest.keep_alive:
            raise _Stop  # nothing after a request that closes (RFC 9112, 9.6)
        self.began_us = self.read_us
        self.url = b""
        self.headers = []
        self.parsing = HEAD
        self.silent_bytes = -1

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        parser = self.parser
        if parser.should_upgrade():
            return  # parsing stays HEAD: see _withdraw_offer
        headers = self.headers
        if (
            self.silent_bytes >= 0
            or self.fed_bytes > self.header_max_bytes
            or len(headers) > self.header_max_count
        ):
            self._check_head()
        fields = fields_of(headers)
        host = fields.get(b"host")
        if host is None or len(fields) < len(headers) or not HOST.match(host):
            self._check_host(host)
        model = self.edge.paths.find(self.url) if parser.get_method() == b"POST" else None
        if self.edge.cors and b"origin" in fields:
            model = None
        if self.edge.guard is not None:
            self.identity = None if model is None else self._identify(self.edge.guard, model, fields)
        length = fields.get(b"content-length")
        if length is not None and int(length) > self.body_max_bytes:
            self._refuse_body()
        if self.reserved and not RESERVED_PATHS.match(self.url):
            self.refuse_regular()
            raise _Stop
        self.silent_bytes = 0
        self.stated_bytes = 0 if length is None else int(length)
        self.body_bytes = 0
        self.counted_body_bytes = 0
        if model is None:
            self._to_application()
        else:
            if length is not None and int(length) > SMALL_BYTES:
                self._check_memory(model)
            keep_alive = parser.should_keep_alive()
            if keep_alive and b"connection" in fields:  # 1.0 with keep-alive: uvicorn closes these too
                keep_alive = parser.get_http_version() != "1.0"
            inference = Inference(self, model, fields, keep_alive)
            inference.began_us = self.began_us
            inference.identity = self.identity
            self._enqueue(inference)
        self.parsing = BODY

    def _identify(self, guard: KeyGuard, model: ServedModel, fields: Fields) -> Identity:
        """Return the caller of an inference before any of its body is read.

        Refuses a caller that may not call the model.
        """
        try:
            return self.edge.identify(guard, model, fields, self.certificate)
        except RequestError as error:
            self.refuse_with(render_error(error))
            raise _Stop from None

    def on_body(self, body: bytes) -> None:
        self.body_bytes += len(body)
        if self.body_bytes > self.body_max_bytes:
            self._refuse_body()
        cycle: object = self.cycle
        if type(cycle) is Inference:
            cycle.add(body)
            if self.refused:
                raise _Stop  # the gateway may not hold more
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        if self.parsing == HEAD:
            return  # an upgrade, to be replayed
        self.parsing = BETWEEN
        cycle: object = self.cycle
        if type(cycle) is Inference:
            cycle.more_body = False
            if cycle.held_back:
                cycle.go_on()
            if cycle is self.active:
                cycle.submit()
        else:
            super().on_message_complete()

    def _to_application(self) -> None:
        """Hand a request with a complete head to uvicorn, which now builds what the request needs."""
        url, headers = self.url, self.headers
        super().on_message_begin()
        if self.certificate:
            self.scope[NAMES] = self.certificate  # type: ignore[typeddict-unknown-key]  # our own
        self.url = url
        self.headers.extend(headers)  # the list that the scope holds
        self.expect_100_continue = dict(headers).get(b"expect", b"").lower() == b"100-continue"
        super().on_headers_complete()
        self.headers = []  # trailers are dropped

    def _check_memory(self, model: ServedModel) -> None:
        rendered = self.edge.no_memory(model, fields_of(self.headers))
        if rendered is not None:
            self.refuse_with(rendered)
            raise _Stop

    def _refuse_body(self) -> None:
        model = self.edge.paths.find(self.url)
        self.refuse_with(self.edge.over_body(model, dict(self.headers), self.identity))
        raise _Stop

    def _check_head(self) -> None:
        """Check that the whole head, which is known now, is within the limits (RFC 6585, 5)."""
        fault = self.edge.head_fault(self.url, self.headers)
        if fault:
            self.refuse(431, fault)
            raise _Stop

    def _check_host(self, host: bytes | None) -> None:
        """Check that there is a single valid Host field (RFC 9112, 3.2), or that HTTP 1.0 is spoken, which
        has none."""
        count = sum([name == b"host" for name, _ in self.headers])
        if host is None:
            if self.parser.get_http_version() == "1.0":
                return
            fault = "has no Host field"
        elif count > 1:
            fault = f"has {count} Host fields"
        elif not HOST.match(host):
            fault = "has a Host field whose value is not a host"
        else:
            return
        self.refuse(400, f"malformed HTTP request: it {fault}; expected one, such as Host: example.com:8000")
        raise _Stop

    def _refuse_head(self) -> None:
        self.refuse(431, self.edge.long_head())

    def _count_silence(self) -> None:
        """Limit what the parser collects without a callback: one long field, in the head or a trailer."""
        if self.silent_bytes < 0:  # the head began in this read, whose size is bounded
            self.silent_bytes = 0
        elif self.body_bytes != self.counted_body_bytes:
            self.counted_body_bytes = self.body_bytes
            self.silent_bytes = 0
        else:
            self.silent_bytes += self.fed_bytes
            if self.silent_bytes > self.header_max_bytes:
                self._refuse_head()

    def _parser_failed(self, error: httptools.HttpParserError) -> None:
        if isinstance(error.__context__, _Stop):
            self.stopped = True
            return
        if isinstance(error, httptools.HttpParserCallbackError):
            cause = error.__context__
            if isinstance(cause, httptools.HttpParserInvalidURLError):
                self.refuse(400, "malformed HTTP request: invalid request target")
                return
            logger.error("a request failed in the gateway's HTTP protocol", exc_info=cause)
            self.refuse(500, INTERNAL_ERROR)
            return
        self.refuse(400, f"malformed HTTP request: {error}")

    def _withdraw_offer(self) -> None:
        """Serve a request that offers another protocol (h2c, WebSocket) as if it offered none (RFC 9110,
        7.8).

        The parser skips the body of such a request, so its head is fed again without the offer.
        """
        method = self.parser.get_method()
        if method == b"CONNECT":
            self.parsing = HEAD
            self.refuse(405, "CONNECT is not served here")
            return
        version = self.parser.get_http_version().encode()
        head = [method, b" ", self.url, b" HTTP/", version, b"\r\n"]
        for name, value in self.headers:
            if name == b"connection":
                value = b"close" if b"close" in value.lower() else b"keep-alive"
            if name != b"upgrade":
                head += (name, b": ", value, b"\r\n")
        head.append(b"\r\n")
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        fed = b"".join(head)
        self.fed_bytes = max(self.fed_bytes, len(fed))  # it may have come in several reads
        self.parser.feed_data(fed)
