"""A client of the edge on libnghttp2: it shows what the edge sends, and sends what a test says."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import ngh2

from tests.router.rpc_edge import INFER, Edge

HEAD = (
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", INFER.encode()),
    (b":authority", b"test"),
    (b"te", b"trailers"),
    (b"content-type", b"application/grpc"),
)


class Client:
    """`seen`: all events; `ended`: the server has closed the connection; `taking`: its windows are opened as
    answers come."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.http = ngh2.Connection(ngh2.Role.CLIENT, ngh2.Configuration(auto_window_update=False))
        self.http.initiate_connection()
        self.seen: list[ngh2.Event] = []
        self.ended = False
        self.taking = False
        self._reader = reader
        self.writer = writer

    def ask(self, *more: tuple[bytes, bytes], head: tuple[tuple[bytes, bytes], ...] = HEAD) -> int:
        """Begin a call; returns its stream."""
        return self.http.send_request((*head, *more))

    def say(self, stream: int, message: bytes, *, end: bool = True) -> None:
        """Send a whole message."""
        self.http.send_data(stream, b"\0" + len(message).to_bytes(4) + message, end_stream=end)

    def call(self, message: bytes, *more: tuple[bytes, bytes]) -> int:
        """Do both; returns the stream."""
        stream = self.ask(*more)
        self.say(stream, message)
        return stream

    def flush(self) -> None:
        with contextlib.suppress(ngh2.NGH2Error):
            self.writer.write(self.http.data_to_send())

    async def until(self, come: Callable[[], bool]) -> None:
        """Talk until that is so, or the server has closed the connection."""
        self.flush()
        async with asyncio.timeout(60):
            while not (come() or self.ended):
                data = b""
                with contextlib.suppress(ConnectionError):
                    data = await self._reader.read(65536)
                if not data:
                    self.ended = True
                    return
                self.http.receive_data(data)
                events = self.http.events()
                self.seen += events
                if self.taking:
                    for each in events:
                        if isinstance(each, ngh2.DataReceived):
                            with contextlib.suppress(ngh2.ConnectionStateError):  # it has ended since
                                self.http.acknowledge_received_data(len(each.data), each.stream_id)
                self.flush()

    def trailers(self, stream: int) -> dict[bytes, bytes]:
        """What the stream has ended with; {} before."""
        for each in self.seen:
            if isinstance(each, ngh2.TrailersReceived) and each.stream_id == stream:
                return dict(each.headers)
            if isinstance(each, ngh2.ResponseReceived) and each.stream_id == stream and each.end_stream:
                return dict(each.headers)
        return {}

    async def status(self, stream: int) -> int:
        """Its gRPC status; -1 where the connection has ended without one."""
        await self.until(lambda: bool(self.trailers(stream)))
        return int(self.trailers(stream).get(b"grpc-status", b"-1"))

    async def closed(self) -> None:
        await self.until(lambda: False)

    @property
    def goaway(self) -> ngh2.GoAwayReceived | None:
        return next((each for each in self.seen if isinstance(each, ngh2.GoAwayReceived)), None)


@contextlib.asynccontextmanager
async def client_of(edge: Edge) -> AsyncIterator[Client]:
    host, port = edge.address.split(":")
    client = Client(*await asyncio.open_connection(host, int(port)))
    try:
        yield client
    finally:
        client.writer.close()
