"""A connection between two gateways once both are known: frames in, frames out."""

import asyncio
from collections.abc import Sequence
from typing import cast

from serving.runtime.nodes.notes import Admitted
from serving.runtime.nodes.stream import NoteStream
from serving.values.tensor import Buffer
from serving.worker.frames.wire import Frame, FrameBuffer, ProtocolError


class CellConnection(asyncio.BufferedProtocol):
    """Either end. A subclass takes the frames and the end of the connection."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.kept: object = None  # what would close the connection once nothing refers to it
        self.fault = ""  # why this side has ended it
        self._frames = FrameBuffer()

    def take(self, frame: Frame) -> None:
        """Take a frame, whose views are void afterwards. Raises ProtocolError."""
        raise NotImplementedError

    def lost(self, reason: str) -> None:
        """Note that the connection has ended."""
        raise NotImplementedError

    def write(self, buffers: Sequence[Buffer]) -> None:
        """Send a frame. After the end it does nothing."""
        if self.transport is not None and not self.transport.is_closing():
            self.transport.writelines(buffers)

    def abort(self, reason: str) -> None:
        """End the connection at once."""
        self.fault = self.fault or reason
        if self.transport is not None:
            self.transport.abort()

    # asyncio.BufferedProtocol

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002  # asyncio's signature
        return self._frames.space()

    def buffer_updated(self, nbytes: int) -> None:
        self._frames.filled(nbytes)
        try:
            while (frame := self._frames.next()) is not None:
                self.take(frame)
        except ProtocolError as error:
            self.abort(str(error))

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        self.kept = None
        self.lost(self.fault or (f"has broken the connection ({exc})" if exc else "has ended the connection"))


def hand_over(stream: NoteStream, connection: CellConnection, *, admit: bool) -> None:
    """Let a connection go on with a greeted stream. `admit`: tell the other side, which waits for it."""
    transport = cast(asyncio.Transport, stream.writer.transport)
    transport.pause_reading()  # the loop chooses how it reads by the protocol when it begins
    transport.set_protocol(connection)
    connection.kept = stream.writer
    connection.transport = transport
    if admit:
        stream.send(Admitted())
    transport.resume_reading()
