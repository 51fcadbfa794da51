"""A small HTTP server that misbehaves on request: the body's first word says how it is answered."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable

from loadtests.harness.wire import post

SLOW_S = 0.3
PATIENCE_S = 60.0  # of a client whose answers come, however slow the machine is
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
BODIES = {
    "ok": OK,
    "slow": OK,
    "pieces": OK,
    "last": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok",
    "failing": b'HTTP/1.1 503 Busy\r\ncontent-length: 32\r\n\r\n{"error":"x","reason":"flooded"}',
    "garbage": b"this is no HTTP\r\n\r\n",
    "surplus": OK + b"more",
}


def request(kind: str) -> bytes:
    return post("/", kind.encode())


class Server:
    """Counts what it was asked; from request `holds_from` on none is answered before `open` is set."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.connections = 0
        self.holds_from = 0
        self.open = asyncio.Event()
        self.open.set()
        self.port = 0

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            while await self._answer(reader, writer):
                pass
        writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One answer; whether the connection goes on."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = int(head.partition("Content-Length: ")[2].split("\r\n")[0])
        kind = (await reader.readexactly(length)).decode()
        self.asked[kind] += 1
        if self.asked.total() == self.holds_from:
            self.open.clear()
        if kind == "close":
            return False
        if kind == "silent":
            await reader.read()  # until the client gives up
            return False
        await self.open.wait()
        answer = BODIES[kind]
        if kind == "slow":
            await asyncio.sleep(SLOW_S)
        if kind == "pieces":
            for number in range(len(answer) - 1):
                writer.write(answer[number : number + 1])
                await writer.drain()
                await asyncio.sleep(0)
            answer = answer[-1:]
        writer.write(answer)
        await writer.drain()
        return kind not in ("last", "garbage", "surplus")


async def until(true: Callable[[], bool]) -> None:
    """Wait for what other tasks of this loop bring about; TimeoutError where they do not."""
    async with asyncio.timeout(PATIENCE_S):
        while not true():  # noqa: ASYNC110  (what is counted here and there tells nobody)
            await asyncio.sleep(0.002)


@contextlib.asynccontextmanager
async def serving() -> AsyncIterator[Server]:
    """A server on a free port of this loop."""
    server = Server()
    listener = await asyncio.start_server(server.talk, "127.0.0.1", 0, backlog=1024)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()
