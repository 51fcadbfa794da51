"""Notes over a connection, one after the other."""

import asyncio
import socket
from typing import Final, TypeVar

from serving.runtime.nodes.notes import Note, pack_note, unpack_note
from serving.values.tensor import Buffer
from serving.worker.frames.wire import FrameBuffer, ProtocolError

READ_BYTES: Final = 256 << 10
UNKNOWN_BYTES_MAX: Final = 8 << 10
"""What a caller may send before it has proved itself."""
QUIET_BYTES_MAX: Final = 1 << 20
"""With more than this waiting to be sent, a note that may be left out is left out."""

_T = TypeVar("_T")
_IDLE_S: Final = 1
_PROBES: Final = 2
_UNSENT_BYTES: Final = 256 << 10


def tune(sock: socket.socket) -> None:
    """Let an idle connection end 3 s after its cable was cut, and let no note wait behind megabytes.

    The kernel probes an idle connection each second and gives it up after two lost probes (tcp(7)). There is
    no TCP_USER_TIMEOUT: it would also end the connection of a worker that computes for longer, while
    the next batch waits in front of its full buffer. Pings tell of a cut under way.
    """
    if sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _IDLE_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _IDLE_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _PROBES)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _UNSENT_BYTES)


class NoteStream:
    """Both directions of one connection. `known`: the other side has proved itself, and may send more."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.known = False
        self.writer = writer
        self._reader = reader
        self._frames = FrameBuffer()
        self._received = 0

    async def read(self) -> tuple[Note, memoryview] | None:
        """Return the next note and its payload, None at the end. The payload is void with the next call.

        Raises ProtocolError if the other side sends what no such side sends.
        """
        while (frame := self._frames.next()) is None:
            space = self._frames.space()
            data = await self._reader.read(min(len(space), READ_BYTES))
            if not data:
                return None
            space[: len(data)] = data
            self._frames.filled(len(data))
            self._received += len(data)
            if not self.known and self._received > UNKNOWN_BYTES_MAX:
                raise ProtocolError(f"sent more than {UNKNOWN_BYTES_MAX} bytes before it proved itself")
        return unpack_note(frame), frame.payload

    async def expect(self, kind: type[_T]) -> _T:
        """Return the next note, which has to be of this kind. Raises ProtocolError, also at the end."""
        read = await self.read()
        if read is None:
            raise ProtocolError(f"closed the connection where {kind.__name__} was due")
        if not isinstance(read[0], kind):
            raise ProtocolError(f"sent {type(read[0]).__name__} where {kind.__name__} was due")
        return read[0]

    async def read_raw(self) -> bytes:
        """Return what comes next once no more notes come; b"" at the end."""
        return await self._reader.read(READ_BYTES)

    def send(self, note: Note, payload: Buffer = b"") -> None:
        """Send a note. After the end it does nothing."""
        if not self.writer.is_closing():
            self.writer.writelines((pack_note(note, len(payload)), payload))

    def say(self, note: Note) -> None:
        """Send a note unless too much waits."""
        if self.writer.transport.get_write_buffer_size() <= QUIET_BYTES_MAX:
            self.send(note)

    async def drain(self) -> None:
        """Wait until little waits to be sent. Raises OSError if the connection has ended."""
        await self.writer.drain()

    def abort(self) -> None:
        """End the connection at once."""
        self.writer.transport.abort()
