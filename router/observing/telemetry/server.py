"""`GET /metrics` on a port of its own."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Final

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from router.listening import Listening
from router.observing.telemetry.observer import Telemetry
from router.observing.telemetry.openmetrics import ACCEPTED, CONTENT_TYPE
from router.protocol.outcomes import ANSWERS
from router.security.tls.gate import Gate
from router.security.tls.names import NAMES
from router.tensors.parts.errors import RequestError
from serving.policy.limits.crowding import BUSY, leavers

EXCHANGE_S_MAX: Final = 10.0
"""For a whole exchange: Prometheus gives a scrape up after 10 s (its default scrape_timeout)."""
CONNECTIONS_MAX: Final = 32
HEAD_BYTES_MAX: Final = 8192
PROTOCOLS: Final = ("http/1.1",)
SILENT_S: Final = 2.0
"""After that one that has asked may be pushed out as one that has not: a scrape takes milliseconds."""


class MetricsServer:
    """One exchange a connection, a few at a time.

    The text is made and sent step by step, with other work of the event loop between the steps: its length is
    not known at the start, and no scraper makes the gateway hold more than one step of it. Hence chunks (RFC
    9112, 7.1): unlike a body that ends with its connection, one that was cut off can be told. A client of
    HTTP/1.0 gets the latter. `admit`: called with the header fields of a scrape, and the names of its
    client's certificate; raises RequestError where that may not be.
    """

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry
        self.tcp = Listening()
        self._address = ("", 0)
        self.admit: Callable[[Mapping[bytes, bytes], Sequence[str]], None] = lambda _fields, _names: None
        self._gate: Gate | None = None
        self._exchanges: dict[asyncio.Task[None] | None, _Exchange] = {}
        self._pushed_out = self._refused = 0

    @property
    def listening(self) -> bool:
        """Whether connections are taken."""
        return self.tcp.is_open

    @property
    def connection_count(self) -> int:
        """Open connections."""
        return len(self._exchanges)

    @property
    def turned_out(self) -> tuple[int, int]:
        """Connections that were closed to make room, and those for which there was none."""
        return self._pushed_out, self._refused

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the bound port (`port` 0: any). OSError says which address and why not."""
        self._address = (host, port)
        await self.again()
        return self._address[1]

    async def again(self) -> None:
        """Listen (again), on the port that was bound before. OSError as `start`."""
        self.tcp.close()
        host, port = self._address
        try:
            self._address = (host, await self.tcp.open(self._connect(), host, port))
        except OSError as error:
            reason = (error.strerror or str(error)).rpartition(": ")[2]  # asyncio puts the address before it
            raise OSError(f"cannot serve metrics on {host}:{port}: {reason}") from error

    def encrypt(self, gate: Gate) -> None:
        """Speak TLS. Call this before `start`."""
        self._gate = gate

    def _connect(self) -> Callable[[], asyncio.Protocol]:
        def make() -> asyncio.Protocol:
            reader = asyncio.StreamReader(HEAD_BYTES_MAX)
            return asyncio.StreamReaderProtocol(reader, self._exchange)

        return make if self._gate is None else self._gate.behind(make, lambda: PROTOCOLS)

    async def stop(self) -> None:
        """Close the port and what is still connected to it."""
        closed = self.tcp.close()
        # Not by cancelling: for that, asyncio's streams of Python 3.11 log a traceback.
        for each in self._exchanges.values():
            each.transport.abort()
        await asyncio.gather(*filter(None, self._exchanges))
        if closed is not None:
            await closed.wait_closed()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        mine = _Exchange(writer.transport)
        has_room = self._make_room(mine)
        self._exchanges[task] = mine
        try:
            if has_room:
                writer.transport.set_write_buffer_limits(0)  # drain until all of it is sent
                async with asyncio.timeout(EXCHANGE_S_MAX):
                    head = await reader.readuntil(b"\r\n\r\n")
                    mine.asked = True
                    await self._answer(head, writer)
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            writer.transport.abort()  # a scraper that left, dawdles or sends no HTTP gets no (whole) answer
        finally:
            del self._exchanges[task]
            with contextlib.suppress(OSError):
                writer.close()

    def _make_room(self, comer: "_Exchange") -> bool:
        """Return whether there is a place; the connection that is silent for longest may go, of the address
        that has most."""
        staying = [each for each in self._exchanges.values() if not each.transport.is_closing()]
        if len(staying) < CONNECTIONS_MAX:
            return True
        now_s = asyncio.get_running_loop().time()
        seen = [(each.address, each.idle_s(now_s)) for each in staying]
        for place in leavers(seen, comer.address, 0.0, 1):
            staying[place].transport.abort()
            self._pushed_out += 1
            return True
        self._refused += 1
        return False

    def _refusal(self, head: bytes, certificate: Sequence[str]) -> bytes | None:
        """Return the answer to a scrape that may not be, else None."""
        try:
            self.admit(_fields(head), certificate)
        except RequestError as error:
            status = HTTPStatus(ANSWERS[error.outcome].http_status)
            more = b"WWW-Authenticate: Bearer\r\n" if status is HTTPStatus.UNAUTHORIZED else b""
            return _response(f"{status.value} {status.phrase}", f"{error.message}\n".encode(), more)
        return None

    async def _answer(self, head: bytes, writer: asyncio.StreamWriter) -> None:
        method, _, rest = head.partition(b"\r\n")[0].partition(b" ")
        target, _, version = rest.partition(b" ")
        if target.partition(b"?")[0] != b"/metrics":
            await _send(writer, [_response("404 Not Found", b"Metrics are at /metrics.\n")])
        elif method not in (b"GET", b"HEAD"):
            await _send(
                writer, [_response("405 Method Not Allowed", b"Use GET /metrics.\n", b"Allow: GET, HEAD\r\n")]
            )
        elif (refusal := self._refusal(head, writer.get_extra_info(NAMES, ()))) is not None:
            await _send(writer, [refusal])
        else:
            chunked = version == b"HTTP/1.1"
            framing = "Transfer-Encoding: chunked\r\n" if chunked else ""
            opened = self._telemetry.trace is not None and ACCEPTED in _fields(head).get(b"accept", b"")
            kind = CONTENT_TYPE if opened else CONTENT_TYPE_PLAIN_0_0_4
            start = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n{framing}"
            await _send(writer, [start.encode() + b"Connection: close\r\n\r\n"])
            if method == b"GET":
                steps = self._telemetry.steps(opened)
                await _send(writer, _chunks(steps) if chunked else steps)


class _Exchange:
    """One connection. `asked`: its request is there."""

    def __init__(self, transport: asyncio.WriteTransport) -> None:
        self.transport = transport
        self.asked = False
        peer: object = transport.get_extra_info("peername")
        self.address = str(peer[0]) if isinstance(peer, tuple) else ""
        self._since_s = asyncio.get_running_loop().time()

    def idle_s(self, now_s: float) -> float:
        """Return for how long it has been silent; BUSY while it is answered."""
        age_s = now_s - self._since_s
        return BUSY if self.asked and age_s < SILENT_S else age_s


def _fields(head: bytes) -> dict[bytes, bytes]:
    lines = (line.partition(b":") for line in head.split(b"\r\n")[1:])
    return {name.lower(): value.strip() for name, _, value in lines}


def _chunks(steps: Iterable[bytes]) -> Iterable[bytes]:
    for step in steps:
        yield b"%x\r\n%b\r\n" % (len(step), step)
    yield b"0\r\n\r\n"


async def _send(writer: asyncio.StreamWriter, pieces: Iterable[bytes]) -> None:
    for piece in pieces:
        writer.write(piece)
        await writer.drain()
        await asyncio.sleep(0)  # drain does not yield where all was sent at once


def _response(status: str, body: bytes, more: bytes = b"") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + more + b"Connection: close\r\n\r\n" + body
