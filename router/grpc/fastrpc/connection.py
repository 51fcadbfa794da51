"""A connection of HTTP/2: bytes to libnghttp2 (ngh2) and back, events to calls, within the limits.

ngh2 does no input or output: it frames, compresses heads, keeps windows, and bounds floods of resets,
CONTINUATION and acknowledgements by itself. What it does not bound is bounded here: useless frames, what is
parsed in one turn of the event loop, what is written for a client that does not read.
"""

import asyncio
import logging
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple, cast

import grpc
from ngh2 import (
    ConnectionClosed,
    DataReceived,
    ErrorCode,
    Event,
    GoAwayReceived,
    NGH2Error,
    RequestReceived,
    SettingsAcknowledged,
    SettingsReceived,
    StreamClosed,
    StreamReset,
    WindowUpdated,
)

from router.grpc.fastrpc.applied import rest_stream
from router.grpc.fastrpc.edge import CONNECTION_WINDOW_BYTES, RpcEdge
from router.grpc.fastrpc.framing import CONTENT, HEAD, Header, inference_fields, status, text, timeout_s
from router.grpc.fastrpc.infercall import INFER_PATH, InferCall
from router.grpc.fastrpc.outbox import Outbox
from router.grpc.fastrpc.restcall import head_of
from router.grpc.fastrpc.streamcall import StreamCall
from router.grpc.fastrpc.taskcall import TaskCall
from router.http.fastpath.places import NONE
from router.security.tls.names import NAMES
from router.tensors.parts.wording import quoted
from serving.policy.limits.crowding import BUSY
from serving.policy.limits.memory import SMALL_BYTES
from serving.values.vocabulary import DRAINING

logger = logging.getLogger(__name__)

FED_BYTES: Final = 4 << 10
"""Parsed at once, and read before others are read. A read of 256 KB may hold 1,500 calls."""
UPLOAD_FED_BYTES: Final = 32 << 10
"""Parsed at once while a large message comes: most of it is that."""
TURN_S: Final = 0.001
"""After so long of parsing, others have a turn."""
IDLE_FRAMES_MAX: Final = 2_000
"""Frames that ask for nothing (PING, SETTINGS, empty DATA), between two looks of the sweep: some a second
are good, a flood is none."""
GOODBYE_S: Final = 0.25
"""A connection that is ended by the gateway waits so long for its client to close: a close at once could
reset it before the client has read its last answer."""

KNOWN_BYTES: Final = 1 << 10
"""A head of more bytes is read anew each time, as each connection keeps one."""

NEVER_US: Final = -1
_INFER: Final = INFER_PATH.encode()
_KINDS: Final = re.compile(rb"application/grpc([+;].*)?\Z")
"""Of content: of whatever encoding, but not grpc-web, which has no trailers."""
_QUIET: Final = (WindowUpdated, StreamReset, SettingsAcknowledged, GoAwayReceived)
"""Events that need nothing: StreamClosed follows a reset, ngh2 keeps the windows."""


class KnownHead(NamedTuple):
    """The head of an inference, and what was read of it."""

    headers: tuple[Header, ...]
    fields: Mapping[str, str]
    timeout_s: float | None


class RpcConnection(Outbox):
    """A client's connection of HTTP/2: calls of gRPC, and requests of REST where the edge has a door to it.

    `calls`: the calls with an open stream, by stream number; `reading`: the calls among them without a whole
    message, the oldest first."""

    def __init__(self, edge: RpcEdge) -> None:
        super().__init__(edge)
        self.made_s = self.idle_since_s = self.now_s
        self.greeted = False  # the client's preface came
        self.draining = False
        self.drained_s = 0.0
        self.idle_frames = 0
        self.moved = (0, 0.0)  # what was written when the sweep looked last, and since when no more is
        self._behind = bytearray()  # read, and not parsed
        self._fed_bytes = 0  # parsed since others were read last
        self._resting = False  # others are read first
        self._read_us = NEVER_US  # when the newest of what is read came, where that was asked
        self._known: KnownHead | None = None  # of its last inference: the next has mostly the same
        self._peer: Any = None

    # as asyncio sees it

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        edge = self.edge
        self.transport = cast(asyncio.Transport, transport)
        self._peer = transport.get_extra_info("peername")
        self.certificate = transport.get_extra_info(NAMES, ())
        edge.connections.add(self)
        edge.closed.clear()
        edge.sweep()
        if edge.draining or edge.places.enter(self) == NONE:
            self.ended = True
            self.transport.abort()
            return
        self.transport.set_write_buffer_limits(high=edge.limits.write_buffer_bytes)
        self.http.initiate_connection(edge.settings)
        self.http.set_local_window_size(CONNECTION_WINDOW_BYTES)
        self.flush()

    def data_received(self, data: bytes) -> None:
        if self.ended:
            return
        self._fed_bytes += len(data)
        if len(data) <= FED_BYTES and not self._behind:
            self._feed(data)
            if self._fed_bytes > FED_BYTES:
                self._rest_reading()
            return
        fresh = not self._behind
        self._behind += data
        if fresh:
            self._go_on()

    def _go_on(self) -> None:
        """Parse what is behind, for a turn; the rest follows in the next, or once the socket takes more."""
        behind, until_s, at = self._behind, self.loop.time() + TURN_S, 0
        large = any(call.size > SMALL_BYTES for call in self.reading.values())
        piece = UPLOAD_FED_BYTES if large else FED_BYTES
        while at < len(behind) and not (self.ended or self.paused):
            self._feed(bytes(memoryview(behind)[at : at + piece]))
            at += piece
            if self.loop.time() >= until_s:
                break
        if self.ended:
            behind.clear()
            return
        del behind[:at]
        if not behind:
            self._rest_reading()
        elif not self.paused:
            self._read_on()
            self.edge.reads.put_off(self._go_on)

    def _rest_reading(self) -> None:
        """Read no more until others were read: libuv would read 32 times before it looks at another
        connection."""
        self._fed_bytes = 0
        self._resting = True
        self._read_on()
        self.edge.reads.put_off(self._rested)

    def _rested(self) -> None:
        self._resting = False
        self._read_on()

    def _read_on(self) -> None:
        """Read while all of it is parsed, the client takes its answers, and others had their turn."""
        if self.transport.is_closing():
            return
        if self._behind or self.paused or self._resting:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    def pause_writing(self) -> None:
        self.paused = True
        self._read_on()
        self.edge.calls.account.fall_behind(self)

    def resume_writing(self) -> None:
        self.paused = False
        self.edge.calls.account.catch_up(self)
        self.flush()
        if self._behind:
            self._go_on()
        self._read_on()

    def eof_received(self) -> bool:
        """Return that the transport may close: clients of HTTP/2 end both ways at once."""
        return False

    def connection_lost(self, _exc: Exception | None) -> None:
        edge = self.edge
        self.ended = True
        self._behind.clear()
        calls, self.calls = self.calls, {}
        for call in calls.values():
            call.close()
        self.let_in()
        edge.calls.account.catch_up(self)
        edge.places.leave(self)
        edge.connections.discard(self)
        if not edge.connections:
            edge.closed.set()

    # what comes

    def _feed(self, data: bytes) -> None:
        self.now_s = self.loop.time()
        self._read_us = NEVER_US
        self.feeding = True
        try:
            self.http.receive_data(data)
            self.handle(self.http.events())
        except NGH2Error as error:
            self.broken(error)
        finally:
            self.feeding = False
        self.flush()

    def clock_us(self) -> int:
        """Return when what is being handled was read, on the core's clock."""
        if self._read_us == NEVER_US:
            self._read_us = self.edge.serving.now_us()
        return self._read_us

    def handle(self, events: Sequence[Event]) -> None:
        calls = self.calls
        for event in events:
            kind = type(event)
            if kind is DataReceived:
                self._take(event)  # type: ignore[arg-type]  # as its type says
            elif kind is RequestReceived:
                self._begin(event)  # type: ignore[arg-type]  # likewise
            elif kind is StreamClosed:
                call = calls.pop(event.stream_id, None)  # type: ignore[attr-defined]  # likewise
                if call is not None:
                    call.close()
                    if not calls:
                        self._rest()
            elif kind is SettingsReceived:
                self.greeted = True
                self._look_idle()
            elif kind is ConnectionClosed:
                self.say_goodbye()
            elif kind not in _QUIET:
                self._look_idle()

    def _take(self, event: DataReceived) -> None:
        data, call = event.data, self.calls.get(event.stream_id)
        if not data:
            if not event.end_stream:
                self._look_idle()
        elif call is not None and (self.crowded or call.held_back):
            call.unread_bytes += len(data)
        else:
            self.http.acknowledge_received_data(len(data), event.stream_id)
        if call is not None:
            call.take(data, event.end_stream)

    def _begin(self, event: RequestReceived) -> None:
        headers, stream_id = event.headers, event.stream_id
        known = self._known
        if known is None or headers != known.headers:
            known = self._read_head(headers, stream_id, event.end_stream)
            if known is None:
                return
        call = InferCall(self, stream_id, known.fields, headers)
        self.calls[stream_id] = self.reading[stream_id] = call
        call.begin(known.timeout_s)
        if event.end_stream:
            call.take(b"", True)

    def _read_head(self, headers: tuple[Header, ...], stream_id: int, ended: bool) -> KnownHead | None:
        """Return what the head of an inference says; None if it is another request, which begins here."""
        fields = dict(headers)
        kind = fields.get(b"content-type", b"")
        door = self.edge.rest
        if door is not None and not kind.startswith(CONTENT[1]):
            request = rest_stream(self, door, stream_id, head_of(headers))
            self.calls[stream_id] = self.reading[stream_id] = request
            request.begin()
            if ended:
                request.take(b"", True)
            return None
        size = len(b"".join(fields)) + len(b"".join(fields.values())) + 32 * len(headers)  # RFC 9113, 6.5.2
        fault = self._fault(fields, size, len(headers))
        if fault is not None:
            self.turn_down(stream_id, fault, ended)
            return None
        path, stated = fields[b":path"], fields.get(b"grpc-timeout")
        if path == _INFER:
            known = KnownHead(headers, inference_fields(headers), timeout_s(stated))
            if size <= KNOWN_BYTES:
                self._known = known
            return known
        handler = self.edge.methods.get(path)
        if handler is None:
            sentence = f"there is no method {quoted(text(path))} here"
            self.turn_down(stream_id, _refusal(grpc.StatusCode.UNIMPLEMENTED, sentence), ended)
            return None
        made = StreamCall if path in self.edge.dialogues else TaskCall
        call = made(self, stream_id, text(path), headers)
        self.calls[stream_id] = self.reading[stream_id] = call
        call.begin(handler, stated)
        if ended:
            call.take(b"", True)
        return None

    def _fault(self, fields: dict[bytes, bytes], size: int, count: int) -> list[Header] | None:
        """Return the answer to a call with a head that is not gRPC or is over the limits; None if the head,
        of `count` fields with `size` bytes, is in order."""
        if fields.get(b":method") != b"POST":
            return [(b":status", b"405"), (b"allow", b"POST")]
        if not _KINDS.match(fields.get(b"content-type", b"")):
            return [(b":status", b"415"), (b"accept", CONTENT[1])]
        limits = self.edge.limits
        if size > limits.header_bytes:
            sentence = f"the metadata is over the limit of {limits.header_bytes} bytes (limits.header_kb)"
        elif count > limits.header_count:
            sentence = f"{count} fields are over the limit of {limits.header_count} (limits.header_count)"
        else:
            return None
        return _refusal(grpc.StatusCode.RESOURCE_EXHAUSTED, sentence)

    def _look_idle(self) -> None:
        self.idle_frames += 1
        if self.idle_frames > IDLE_FRAMES_MAX:
            self.terminate(ErrorCode.ENHANCE_YOUR_CALM)

    def _rest(self) -> None:
        """Note that no call is open; close the connection if the gateway drains."""
        self.idle_since_s = self.now_s
        if self.draining:
            self.say_goodbye()

    # how it ends

    def drain(self) -> None:
        """Take no new call, answer the accepted ones, then close. Calls without a message are refused."""
        if self.draining or self.ended:
            return
        self.draining, self.drained_s = True, self.loop.time()
        for call in tuple(self.reading.values()):
            call.drain(DRAINING)
        try:
            self.http.send_goaway()
        except NGH2Error as error:
            self.broken(error)
            return
        self.flush()
        if not self.calls:
            self.say_goodbye()

    def terminate(self, code: ErrorCode) -> None:
        """End the connection for what its client does; its calls are given up."""
        if self.ended:
            return
        try:
            self.http.terminate_connection(code)
            self.transport.write(self.http.data_to_send())
        except NGH2Error:
            logger.debug("a connection could not be told why it ends", exc_info=True)
        self.broken(None)

    def broken(self, error: NGH2Error | None) -> None:
        """Close the connection: the client sends no HTTP/2, or too much of it."""
        if error is not None:
            logger.debug("a gRPC connection from %s is closed: %s", self.address(), error)
        self.ended = True
        self.transport.close()

    def say_goodbye(self) -> None:
        """End the connection, as all calls are answered: close once the client does, or soon."""
        if self.ended:
            return
        self.flush()
        if self.ended or self.transport.is_closing():
            return
        self.ended = True
        with suppress(OSError):  # the client has gone, and asyncio has not seen it yet
            self.transport.write_eof()
        self.transport.resume_reading()
        self.loop.call_later(GOODBYE_S, self.transport.close)

    def abort(self) -> None:
        """Close at once; its calls are given up."""
        self.ended = True
        self.transport.abort()

    # what the account and the places ask of it

    def address(self) -> str:
        """See `router.protocol.account.Holder` and `router.http.fastpath.places.PlacedConnection`."""
        return str(self._peer[0]) if self._peer else ""

    def peer(self) -> str:
        """Return the client's address as grpc writes it."""
        if not self._peer:
            return "unknown"
        kind = "ipv6:%5B{}%5D" if ":" in str(self._peer[0]) else "ipv4:{}"
        return f"{kind.format(self._peer[0])}:{self._peer[1]}"

    def give_up(self, _sentence: str) -> None:
        """See `router.protocol.account.Holder`: nothing can be said to a client that does not read."""
        self.abort()

    def idle_s(self, now_s: float) -> float:
        """See `router.http.fastpath.places.PlacedConnection`."""
        return BUSY if self.calls else now_s - self.idle_since_s

    def push_out(self) -> None:
        """See `router.http.fastpath.places.PlacedConnection`."""
        self.drain()


def _refusal(code: grpc.StatusCode, sentence: str) -> list[Header]:
    """Return the whole answer of a call that is no call."""
    return [HEAD[0], CONTENT, *status(code, sentence)]
