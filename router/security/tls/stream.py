"""A connection that is encrypted: a protocol of asyncio toward the socket, a transport toward the server.

Both of asyncio's own ways leave out what the servers here rely on: to end one direction and read on
(`write_eof`), a bound on what is encrypted or decrypted in one turn of the event loop, handshakes beside it.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final, Protocol, cast

from router.security.tls.names import NAMES, names_of

FED_BYTES: Final = 8 << 10
"""Decrypted between two looks at the clock. A read of 256 KB may hold 10,000 records that carry nothing."""
READ_BYTES: Final = 16 << 10
"""Of one record (RFC 8446, 5.1)."""
PIECE_BYTES: Final = 64 << 10
"""Encrypted at once."""
SOCKET_BYTES: Final = 128 << 10
"""What waits for the socket, encrypted; more waits as it is, without a copy."""
TURN_S: Final = 0.001
"""After so long of decrypting, others have a turn."""
STEPS_MAX: Final = 64
"""Reads of one handshake: a long chain of certificates comes in some ten segments."""

_PLAIN_HTTP: Final = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\nconnection: close\r\n"
    b"content-length: 52\r\n\r\n"
    b'{"error":"this port speaks TLS: ask with https://"}\n'
)

TOO_MANY, TOO_SLOW, PLAIN, LEFT, FAILED = ENDS = ("too_many", "too_slow", "not_tls", "client_left", "failed")
"""Why a handshake ended without a connection."""

SHAKING, OPEN, CLOSING, GONE = range(4)


class Handshakes(Protocol):
    """What a connection asks of the gate: see `router.security.tls.gate.Gate`."""

    handshake_s: float

    def enter(self, comer: "TlsTransport") -> None:
        """Begin a handshake."""
        ...

    def leave(self, guest: "TlsTransport", why: str = "") -> None:
        """End a handshake."""
        ...

    def failed(self, guest: "TlsTransport", error: ssl.SSLError) -> None:
        """Say why a handshake failed."""
        ...

    def compute(self, step: Callable[[], None]) -> "asyncio.Future[None]":
        """Make a step of a handshake beside the event loop."""
        ...


class TlsTransport(asyncio.Transport):
    """One connection. `_unfed` came and is not decrypted yet; `_queue` is to be encrypted."""

    def __init__(
        self, gate: Handshakes, context: ssl.SSLContext, make: Callable[[], asyncio.Protocol]
    ) -> None:
        super().__init__()
        self._gate = gate
        self._context = context
        self._make = make
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._loop = asyncio.get_running_loop()
        self._raw = cast(asyncio.Transport, None)  # until there is a connection
        self._protocol: asyncio.Protocol = _NONE
        self._state = SHAKING
        self._steps = 0
        self._stepping = False
        self._timer: asyncio.TimerHandle | None = None
        self._unfed = bytearray()
        self._due = False  # what is unfed is decrypted in the loop's next turn
        self._held = False  # the server reads no more for now
        self._ended = False  # the client sends no more, or nothing of it counts
        self._raw_ended = False  # its socket sends no more
        self._queue: deque[memoryview] = deque()
        self._queued_bytes = 0
        self._high, self._low = SOCKET_BYTES, SOCKET_BYTES // 4
        self._full = False  # the socket takes no more
        self._told = False  # that the server is to write no more
        self._eof_due = False
        self._names: tuple[str, ...] = ()

    # toward the socket

    def connection_made(self, raw: asyncio.Transport) -> None:
        """Begin the handshake."""
        self._raw = raw
        self._gate.enter(self)
        self._timer = self._loop.call_later(self._gate.handshake_s, self.give_up, TOO_SLOW)

    def data_received(self, data: bytes) -> None:
        """Take what the client has sent."""
        if self._state == OPEN and not self._unfed and len(data) <= FED_BYTES and not self._ended:
            self._incoming.write(data)
            self._read()
        elif self._state == SHAKING:
            self._unfed += data
            if not self._stepping:
                self._step()
        elif self._state == OPEN and not self._ended:
            self._unfed += data
            if not self._due:
                self._go_on()

    def eof_received(self) -> bool:
        """Note that the socket sends no more; it stays open for answers."""
        self._raw_ended = True
        if self._state == SHAKING:
            self.give_up(LEFT)
        elif self._state == OPEN and not (self._unfed or self._held or self._due):
            self._end()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the server that the connection is gone."""
        state, self._state = self._state, GONE
        self._unfed.clear()
        self._queue.clear()
        self._queued_bytes = 0
        if state == SHAKING:
            self._settle(LEFT)
        protocol, self._protocol = self._protocol, _NONE
        protocol.connection_lost(exc)

    def pause_writing(self) -> None:
        """Encrypt no more until the socket has taken what waits."""
        self._full = True
        self._weigh()

    def resume_writing(self) -> None:
        """Encrypt on."""
        self._full = False
        self._pump()

    # the handshake

    def give_up(self, why: str) -> None:
        """End the connection, whose handshake is not done. `why`: one of ENDS."""
        if self._state == SHAKING:
            self._settle(why)
            self._state = GONE
            self._raw.abort()

    def address(self) -> str:
        """Return the client's address, "" where there is none."""
        peer = self._raw.get_extra_info("peername")
        return str(peer[0]) if isinstance(peer, tuple) else ""

    def _settle(self, why: str = "") -> None:
        self._gate.leave(self, why)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _step(self) -> None:
        self._steps += 1
        if self._steps > STEPS_MAX:
            self.give_up(FAILED)
            return
        self._incoming.write(self._unfed)
        self._unfed.clear()
        self._stepping = True
        self._raw.pause_reading()
        self._gate.compute(self._tls.do_handshake).add_done_callback(self._stepped)

    def _stepped(self, step: "asyncio.Future[None]") -> None:
        self._stepping = False
        error = asyncio.CancelledError() if step.cancelled() else step.exception()
        if self._state != SHAKING:
            return
        self._send()
        if error is None:
            self._open()
        elif not isinstance(error, ssl.SSLWantReadError):
            self._fail(error)
        elif self._unfed:
            self._step()
        else:
            self._raw.resume_reading()

    def _fail(self, error: BaseException) -> None:
        plain = isinstance(error, ssl.SSLError) and error.reason == "HTTP_REQUEST"
        if isinstance(error, ssl.SSLError) and not plain:
            self._gate.failed(self, error)
        self._settle(PLAIN if plain else FAILED)
        self._state = CLOSING
        if plain:
            self._raw.write(_PLAIN_HTTP)
        self._raw.close()  # after the alert, which says why

    def _open(self) -> None:
        self._settle()
        self._state = OPEN
        self._names = names_of(self._tls.getpeercert())
        self._protocol = self._make()
        self._protocol.connection_made(self)
        if self._state == OPEN:
            self._read()  # what came with the last part of the handshake
            self._read_on()

    # reading

    def _go_on(self) -> None:
        """Decrypt what came, for a turn; the rest follows in the next."""
        self._due = False
        until_s = self._loop.time() + TURN_S
        while self._state == OPEN and not (self._held or self._ended):
            self._incoming.write(bytes(memoryview(self._unfed)[:FED_BYTES]))
            del self._unfed[:FED_BYTES]
            self._read()
            if not self._unfed or self._loop.time() >= until_s:
                break
        if self._ended or self._state != OPEN:
            self._unfed.clear()
        elif self._unfed and not self._held:
            self._due = True
            self._loop.call_soon(self._go_on)
        elif self._raw_ended and not self._held:
            self._end()
        self._read_on()

    def _read(self) -> None:
        """Hand on what can be decrypted now."""
        tls = self._tls
        try:
            while self._state == OPEN and not (self._held or self._ended):
                data = tls.read(READ_BYTES)
                if not data:
                    self._end()
                    return
                self._protocol.data_received(data)
        except ssl.SSLWantReadError:
            if self._outgoing.pending:  # an answer of TLS itself: a new key
                self._send()
        except ssl.SSLZeroReturnError:
            self._end()
        except ssl.SSLError:
            self._send()
            self._state = CLOSING
            self._raw.close()

    def _end(self) -> None:
        """Tell the server that the client sends no more."""
        if self._ended:
            return
        self._ended = True
        self._unfed.clear()
        if not self._protocol.eof_received():
            self.close()

    def _read_on(self) -> None:
        if self._state == GONE or self._raw.is_closing():
            return
        if self._held or self._due:
            self._raw.pause_reading()
        else:
            self._raw.resume_reading()

    def pause_reading(self) -> None:
        """Read no more for now."""
        self._held = True
        self._read_on()

    def resume_reading(self) -> None:
        """Read on; what came meanwhile is decrypted in the loop's next turn."""
        if not self._held:
            return
        self._held = False
        if self._state == OPEN and not self._due:
            self._due = True
            self._loop.call_soon(self._go_on)

    def is_reading(self) -> bool:
        """Return whether the server reads."""
        return not self._held

    # writing

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Encrypt and send this; what the socket does not take now waits as it is."""
        if self._state != OPEN or self._eof_due or not data:
            return
        if self._queue or self._full or len(data) > PIECE_BYTES:
            self._put(data)
            self._pump()
        else:
            self._tls.write(data)
            self._send()
            self._weigh()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """Encrypt and send all of these."""
        parts = list(list_of_data)
        if sum(map(len, parts)) <= PIECE_BYTES:
            self.write(b"".join(parts))
            return
        if self._state == OPEN and not self._eof_due:
            for part in parts:
                self._put(part)
            self._pump()

    def _put(self, data: bytes | bytearray | memoryview) -> None:
        view = memoryview(data).cast("B")
        if len(view):
            self._queue.append(view)
            self._queued_bytes += len(view)

    def _pump(self) -> None:
        """Encrypt what waits, as far as the socket takes it."""
        queue = self._queue
        while queue and not self._full and self._state != GONE:
            view = queue[0]
            written = self._tls.write(view[:PIECE_BYTES])
            self._queued_bytes -= written
            if written < len(view):
                queue[0] = view[written:]
            else:
                queue.popleft()
            self._send()
        if not queue:
            self._finish()
        self._weigh()

    def _finish(self) -> None:
        """Say that nothing more comes, where that is due and all is encrypted."""
        if self._queue or self._state not in (OPEN, CLOSING) or not (self._eof_due or self._state == CLOSING):
            return
        with suppress(ssl.SSLError):  # the client's own goodbye is still to come
            self._tls.unwrap()
        self._send()
        if self._state == CLOSING:
            self._raw.close()
        else:
            with suppress(OSError):  # the client has gone, and asyncio has not seen it yet
                self._raw.write_eof()

    def _send(self) -> None:
        data = self._outgoing.read()
        if data and not self._raw.is_closing():
            self._raw.write(data)

    def _weigh(self) -> None:
        """Tell the server to write no more, or again, by what waits."""
        if self._told:
            if not (self._queue or self._full):
                self._told = False
                self._protocol.resume_writing()
        elif self.get_write_buffer_size() > self._high and self._state != GONE:
            self._told = True
            self._protocol.pause_writing()

    def get_write_buffer_size(self) -> int:
        """Return how many bytes wait."""
        return self._queued_bytes + self._raw.get_write_buffer_size()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Return the bounds at which the server is told."""
        return self._low, self._high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the bounds at which the server is to write no more, and again."""
        self._high = SOCKET_BYTES if high is None else high
        self._low = self._high // 4 if low is None else low
        most = min(self._high, SOCKET_BYTES)
        self._raw.set_write_buffer_limits(high=most, low=min(self._low, most // 4))

    def can_write_eof(self) -> bool:
        """Return that one direction can end alone (RFC 8446, 6.1)."""
        return True

    def write_eof(self) -> None:
        """End what is sent, and drop what the client still sends."""
        if self._state == OPEN and not self._eof_due:
            self._eof_due = True
            self._ended = True
            self._unfed.clear()
            self._finish()

    # how it ends

    def close(self) -> None:
        """Send what waits, say goodbye, then close."""
        if self._state == OPEN:
            self._state = CLOSING
            self._raw.pause_reading()
            self._finish()

    def abort(self) -> None:
        """Close at once."""
        if self._state != GONE:
            self._state = CLOSING
            self._raw.abort()

    def is_closing(self) -> bool:
        """Return whether nothing more can be written."""
        return self._state != OPEN or self._raw.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return what is known of the connection: of the socket, of TLS, the names of the certificate."""
        if name == NAMES:
            return self._names
        if name == "sslcontext":
            return self._context
        if name == "ssl_object":
            return self._tls
        return self._raw.get_extra_info(name, default)

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return the server's side."""
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Take another server's side."""
        self._protocol = cast(asyncio.Protocol, protocol)


_NONE: Final = asyncio.Protocol()
"""In the place of the server's side while there is none: all that it is told it drops."""
