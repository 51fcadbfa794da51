"""Bytes of HTTP/1.1 into a connection's protocol: one well-formed answer for each request that was taken."""

import asyncio
import contextlib
import io
import logging
import socket
from collections.abc import Iterator, Sequence
from typing import Any, Final  # Any: what ASGI passes

from uvicorn.config import Config
from uvicorn.server import ServerState

from loadtests.harness.wire import Answer, read_answer
from loadtests.hostile.fuzz.playing import Fault, Target, words_of
from loadtests.hostile.fuzz.served import LIMITS, Core
from router.http.fastpath.edge import FastEdge
from router.http.fastpath.protocol import FastProtocol

STATUSES: Final = frozenset((200, 400, 404, 405, 411, 413, 414, 415, 417, 422, 429, 431, 501, 503, 505))
"""What a client may be told; 500 says that the gateway has a fault."""
TURNS: Final = 200  # of the event loop, within which what needs no thread is answered
THREAD_S: Final = 5.0

WORDS: Final = words_of("http.dict")


class Line(asyncio.Transport):
    """A connection without a network: what the protocol writes is kept."""

    def __init__(self, connection: socket.socket) -> None:
        super().__init__({"socket": connection, "peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)})
        self.written = bytearray()
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self.closed:
            self.written += data

    def writelines(self, list_of_data: Any) -> None:
        for each in list_of_data:
            self.write(each)

    def write_eof(self) -> None: ...

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0


class Application:
    """Answers every request with 404, once its body is there. `asked`: how many there were."""

    def __init__(self) -> None:
        self.asked = 0

    async def __call__(self, _scope: Any, receive: Any, send: Any) -> None:
        self.asked += 1
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return
            if not message["more_body"]:
                break
        await send({"type": "http.response.start", "status": 404, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})


class _Connections:
    """Plays inputs, each on a connection of its own, on one event loop."""

    def __init__(self, connection: socket.socket) -> None:
        self._core = Core()
        self._application = Application()
        self._state = ServerState()
        self._edge = FastEdge(self._core, LIMITS, self._state)
        self._config = Config(
            self._application, interface="asgi3", ws="none", lifespan="off", log_config=None,
            access_log=False, proxy_headers=False, server_header=False,
        )  # fmt: skip
        self._config.load()
        self._connection = connection

    async def play(self, data: bytes) -> bool:
        taken = self._core.ended + self._application.asked
        line = Line(self._connection)
        protocol = FastProtocol(self._config, self._edge)
        protocol.connection_made(line)
        for piece in _pieces(data):
            if not line.closed:
                protocol.data_received(piece)
        await _settle(protocol, line)
        if not line.closed:
            protocol.eof_received()
            await asyncio.sleep(0)  # connections that end have their turn
            await _settle(protocol, line)
        protocol.connection_lost(None)
        answers = _answers(bytes(line.written))
        for _ in range(3):  # what the loss of the connection ends has ended
            await asyncio.sleep(0)
        taken = self._core.ended + self._application.asked - taken
        if not taken <= len(answers) <= taken + 1:  # one is of HTTP itself, the last
            raise Fault(f"{taken} requests were taken, but {len(answers)} answered")
        return any(each.status == 200 for each in answers)

    async def close(self) -> None:
        self._edge.close()
        await self._edge.bulk.close()


def _pieces(data: bytes) -> Sequence[bytes]:
    """Return the pieces into which reads may cut the data: whole, or in three. The data itself decides, so
    that a replay cuts alike."""
    if len(data) < 3 or data[-1] & 1:
        return [data]
    cuts = sorted((data[0] * 7 % len(data), data[len(data) // 2] * 31 % len(data)))
    return [each for each in (data[: cuts[0]], data[cuts[0] : cuts[1]], data[cuts[1] :]) if each]


async def _settle(protocol: FastProtocol, line: Line) -> None:
    """Wait until every request that is there whole is answered."""
    for _ in range(TURNS):
        if not _waits(protocol, line):
            return
        await asyncio.sleep(0)
    async with asyncio.timeout(THREAD_S):
        while _waits(protocol, line):  # noqa: ASYNC110  # a protocol has no event for it
            await asyncio.sleep(0.0005)


def _waits(protocol: FastProtocol, line: Line) -> bool:
    active = protocol.active
    if protocol.behind and not line.closed:
        return True
    if line.closed or active is None:
        return False
    return bool(protocol.pipeline) or not (active.response_complete or active.more_body)


def _answers(written: bytes) -> list[Answer]:
    found = []
    stream = io.BytesIO(written)
    while stream.tell() < len(written):
        answer = read_answer(stream)
        if answer is None:
            if written.endswith(b"HTTP/1.1 100 Continue\r\n\r\n"):
                break  # to a request that went no further
            raise Fault("an answer is cut off")
        if answer.status not in STATUSES:
            raise Fault(f"an answer has the status {answer.status}")
        found.append(answer)
    return found


@contextlib.contextmanager
def target() -> Iterator[Target]:
    loop = asyncio.new_event_loop()
    ours, theirs = socket.socketpair()
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)

    async def start() -> _Connections:
        return _Connections(ours)

    with ours, theirs:
        connections = loop.run_until_complete(start())
        yield Target("http", lambda data: loop.run_until_complete(connections.play(data)), WORDS)
        loop.run_until_complete(connections.close())
        loop.close()
