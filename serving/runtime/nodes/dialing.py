"""A node's way to the gateway's door: a connection for itself, and one for each worker.

Over plain TCP a worker gets the connection itself. With TLS the node holds the connection, and passes the
bytes on to the worker's socket and back.
"""

import asyncio
import os
import socket
import ssl
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from serving.runtime.nodes.greeting import call_at
from serving.runtime.nodes.notes import ENGINE, NODE, WORKER, Role
from serving.runtime.nodes.stream import READ_BYTES, NoteStream, tune

CALL_S: Final = 10.0
"""What a door may take to admit a caller."""


@dataclass(frozen=True, slots=True)
class Gateway:
    """Where a gateway's door is. `context`: None for a connection that is not encrypted."""

    host: str
    port: int
    context: ssl.SSLContext | None = None

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


async def call_as_node(gateway: Gateway, name: str, token: str) -> NoteStream:
    """Return the connection of a node that was admitted.

    Raises OSError (TimeoutError too), NotAdmittedError or ProtocolError.
    """
    return await _call(gateway, NODE, name, token)


async def call_as_engine(gateway: Gateway, name: str, token: str) -> NoteStream:
    """Return a connection that says which nodes are needed; the errors are those of `call_as_node`."""
    return await _call(gateway, ENGINE, name, token)


async def call_as_worker(gateway: Gateway, number: int, key: str) -> tuple[socket.socket, "Relay | None"]:
    """Return a worker's socket, connected to its link, and what passes the bytes on if anything does.

    Raises OSError (TimeoutError too), NotAdmittedError or ProtocolError.
    """
    stream = await _call(gateway, WORKER, str(number), key)
    if gateway.context is not None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        ours.setblocking(False)
        return theirs, Relay(stream, ours)
    # The event loop closes its own descriptor; the connection lives on in the copy.
    sock = socket.socket(fileno=os.dup(stream.writer.get_extra_info("socket").fileno()))
    stream.abort()
    await asyncio.sleep(0)
    sock.setblocking(True)
    return sock, None


async def _call(gateway: Gateway, role: Role, name: str, key: str) -> NoteStream:
    async with asyncio.timeout(CALL_S):
        reader, writer = await asyncio.open_connection(
            gateway.host, gateway.port, ssl=gateway.context, limit=READ_BYTES
        )
        stream = NoteStream(reader, writer)
        try:
            tune(writer.get_extra_info("socket"))
            await call_at(stream, role, name, key)
        except BaseException:
            stream.abort()
            raise
    return stream


class Relay:
    """Passes bytes between an encrypted connection and the socket pair of a worker, until either ends."""

    def __init__(self, stream: NoteStream, sock: socket.socket) -> None:
        self._stream = stream
        self._sock = sock
        self._task = asyncio.create_task(self._run())

    def close(self) -> None:
        """End both sides."""
        self._task.cancel()
        self._end()

    async def _run(self) -> None:
        ways = {asyncio.create_task(self._inward()), asyncio.create_task(self._outward())}
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            self._end()

    def _end(self) -> None:
        self._stream.writer.close()
        self._sock.close()

    async def _inward(self) -> None:
        loop = asyncio.get_running_loop()
        with suppress(OSError):
            while data := await self._stream.read_raw():
                await loop.sock_sendall(self._sock, data)

    async def _outward(self) -> None:
        loop = asyncio.get_running_loop()
        with suppress(OSError):
            while data := await loop.sock_recv(self._sock, READ_BYTES):
                self._stream.writer.write(data)
                await self._stream.drain()
