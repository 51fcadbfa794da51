"""A gRPC client that speaks HTTP/2 by hand, for what no client library sends."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from tritonclient.grpc import service_pb2

from loadtests.hostile import h2wire
from tests.router.rpc_edge import INFER, Edge

PATH = INFER.encode()


class Wire:
    """A raw connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer
        self.received = b""

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def status(self, stream: int) -> int:
        """The status with which the stream ends."""
        async with asyncio.timeout(60):
            while (found := h2wire.status(self.received, stream)) is None:
                data = await self._reader.read(65536)
                assert data, "the connection was closed"
                self.received += data
        return found

    async def closed(self) -> None:
        async with asyncio.timeout(60):
            with contextlib.suppress(ConnectionError):
                while await self._reader.read(65536):
                    pass


@contextlib.asynccontextmanager
async def wire(edge: Edge) -> AsyncIterator[Wire]:
    host, port = edge.address.split(":")
    found = Wire(*await asyncio.open_connection(host, int(port)))
    found.send(h2wire.start())
    try:
        yield found
    finally:
        found.writer.close()


def identity_request(size: int) -> bytes:
    """One row of so many bytes."""
    request = service_pb2.ModelInferRequest(model_name="identity")
    request.inputs.add(name="IN", datatype="UINT8", shape=[1, size])
    request.raw_input_contents.append(bytes(size))
    return bytes(request.SerializeToString())


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was logged; not that a poller of another test's event loop found nothing to read."""
    return [each.message for each in caplog.records if "PollerCompletionQueue" not in each.message]
