"""Notes with descriptors, over a pair of sockets: of a gateway to the next one, and to the command."""

import asyncio
import socket
from collections.abc import Sequence
from typing import Final

import orjson

NOTE_BYTES_MAX: Final = 1 << 16
DESCRIPTORS_MAX: Final = 64
"""In one note; the kernel takes 253 (SCM_MAX_FD)."""

HELD, LISTENER, CONNECTIONS, FREE = "held", "listener", "connections", "free"
"""What a gateway gives: the slices that it still has, a socket that listens, connections that wait for a
request, and slices that it has let go."""
READY, SERVING = "ready", "serving"
"""What the next one says: it could take over, and it serves."""

Note = dict[str, object]


class Channel:
    """One end. A note is a JSON object; the kernel keeps notes apart (SOCK_SEQPACKET)."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock

    async def send(self, note: Note, descriptors: Sequence[int] = ()) -> None:
        """Send a note. The descriptors stay open here. Raises OSError if the other end is gone."""
        data = orjson.dumps(note)
        while True:
            try:
                socket.send_fds(self._sock, [data], descriptors)
            except BlockingIOError:
                await self._until(writable=True)
            else:
                return

    async def receive(self) -> tuple[Note, list[int]]:
        """Return the next note. Raises ConnectionError if the other end is gone."""
        while True:
            try:
                data, descriptors, _, _ = socket.recv_fds(self._sock, NOTE_BYTES_MAX, DESCRIPTORS_MAX)
            except BlockingIOError:
                await self._until(writable=False)
                continue
            if not data:
                raise ConnectionError("the other gateway has ended")
            note: Note = orjson.loads(data)
            return note, descriptors

    async def _until(self, *, writable: bool) -> None:
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        add, remove = (
            (loop.add_writer, loop.remove_writer) if writable else (loop.add_reader, loop.remove_reader)
        )
        add(self._sock, ready.set)
        try:
            await ready.wait()
        finally:
            remove(self._sock)

    def close(self) -> None:
        """Close this end."""
        self._sock.close()
