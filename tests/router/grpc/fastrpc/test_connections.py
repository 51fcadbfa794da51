"""Connections of the edge on libnghttp2: floods, garbage, age, idleness, places and goodbyes."""

import asyncio
from collections.abc import Iterator

import ngh2
import pytest

from loadtests.hostile import h2wire
from router.http.fastpath import places
from serving.values.specs import Limits
from tests.router.grpc.fastrpc.client import client_of
from tests.router.rpc_edge import Core, Edge, completed, serve, simple_request
from tests.router.rpc_wire import PATH, wire

RAW = simple_request().SerializeToString()


async def works(edge: Edge) -> bool:
    """Whether another client is answered."""
    async with client_of(edge) as client:
        return await client.status(client.call(RAW)) == 0


def resets() -> Iterator[bytes]:
    cancel = (8).to_bytes(4)
    for first in range(1, 200_000, 200):
        yield b"".join(
            h2wire.call(stream, PATH) + h2wire.frame(h2wire.RST_STREAM, 0, stream, cancel)
            for stream in range(first, first + 200, 2)
        )


def continuations() -> Iterator[bytes]:
    yield h2wire.frame(h2wire.HEADERS, 0, 1, h2wire.block(PATH))
    for _ in range(100):
        yield h2wire.frame(h2wire.CONTINUATION, 0, 1, h2wire.literal(b"x-a", b"c" * 100)) * 100


def references() -> Iterator[bytes]:
    head, whole = h2wire.block(PATH), h2wire.END_HEADERS | h2wire.END_STREAM
    yield h2wire.frame(h2wire.HEADERS, whole, 1, head + h2wire.literal(b"x-a", b"b" * 3_900, kept=True))
    for stream in range(3, 99, 2):
        yield h2wire.frame(h2wire.HEADERS, whole, stream, head + b"\xbe" * 12_000)


def empty_data() -> Iterator[bytes]:
    yield h2wire.call(1, PATH)
    for _ in range(100):
        yield h2wire.frame(h2wire.DATA, 0, 1) * 1000


def pings() -> Iterator[bytes]:
    for _ in range(100):
        yield h2wire.frame(h2wire.PING, 0, 0, bytes(8)) * 1000


def settings() -> Iterator[bytes]:
    for _ in range(100):
        yield h2wire.frame(h2wire.SETTINGS, 0, 0) * 1000


@pytest.mark.parametrize("flood", [resets, continuations, references, empty_data, pings, settings])
async def test_a_flood_ends_its_connection_and_no_other(flood: object) -> None:
    assert callable(flood)
    async with serve() as edge, wire(edge) as raw:
        for piece in flood():
            raw.send(piece)
        await raw.closed()
        assert await works(edge)
        async with asyncio.timeout(60):
            await edge.server.calls.answered.wait()


@pytest.mark.parametrize(
    "sent",
    [b"GET / HTTP/1.1\r\nhost: a\r\n\r\n", b"\x16\x03\x01" + b"\0" * 60, h2wire.PREFACE + b"\xff" * 99],
)
async def test_what_is_no_http2_ends_the_connection(sent: bytes) -> None:
    async with serve() as edge:
        host, port = edge.address.split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(sent)
        async with asyncio.timeout(60):
            while await reader.read(65536):
                pass
        writer.close()
        assert await works(edge)


async def test_a_ping_is_answered() -> None:
    async with serve() as edge, client_of(edge) as client:
        client.http.ping(b"12345678")
        await client.until(lambda: any(isinstance(each, ngh2.PingAcknowledged) for each in client.seen))
        assert not client.ended


async def test_a_connection_that_says_nothing_is_closed_in_time() -> None:
    async with serve(limits=Limits(slow_client_s=0.1)) as edge:
        host, port = edge.address.split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        async with asyncio.timeout(60):
            assert await _rest_of(reader) is not None
        writer.close()


async def _rest_of(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionError:
        return b""


async def test_an_idle_connection_is_told_to_go_and_one_with_a_call_is_not() -> None:
    limits = Limits(idle_connection_s=0.2)
    async with (
        serve(Core(lambda call: None), limits) as edge,
        client_of(edge) as busy,
        client_of(edge) as idle,
    ):
        stream = busy.call(RAW)
        busy.flush()
        await edge.core.change()
        await idle.closed()
        assert idle.goaway is not None
        assert idle.goaway.error_code == ngh2.ErrorCode.NO_ERROR
        edge.core.open[1](completed(edge.core.calls[0]))
        assert await busy.status(stream) == 0


async def test_an_old_connection_answers_its_calls_and_goes() -> None:
    async with serve(Core(lambda call: None), Limits(grpc_age_s=0.1)) as edge, client_of(edge) as client:
        stream = client.call(RAW)
        await client.until(lambda: client.goaway is not None)
        edge.core.open[1](completed(edge.core.calls[0]))
        assert await client.status(stream) == 0
        await client.closed()


async def test_at_the_end_each_connection_is_told_answered_and_closed() -> None:
    async with serve(Core(lambda call: None)) as edge, client_of(edge) as client, client_of(edge) as idle:
        stream = client.call(RAW)
        idle.flush()
        client.flush()
        await edge.core.change()
        stopping = asyncio.create_task(edge.server.stop(60))
        await client.until(lambda: client.goaway is not None)
        assert not stopping.done()
        edge.core.open[1](completed(edge.core.calls[0]))
        assert await client.status(stream) == 0
        async with asyncio.timeout(30):
            await asyncio.gather(client.closed(), idle.closed(), stopping)
        assert not edge.server.listening


async def test_where_all_places_are_taken_an_idle_connection_makes_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(places, "GRACE_S", 0.0)
    held = Core(lambda call: None), Limits(connection_count=2)
    async with serve(*held) as edge, client_of(edge) as busy, client_of(edge) as idle:
        stream = busy.call(RAW)
        busy.flush()
        await edge.core.change()
        assert await idle.status(idle.call(b"\xff")) == 3
        edge.core.answer = completed
        assert await works(edge)
        await idle.closed()
        edge.core.open[1](completed(edge.core.calls[0]))
        assert await busy.status(stream) == 0


async def test_a_listener_that_ended_listens_again_on_its_port() -> None:
    async with serve() as edge, client_of(edge) as client:
        assert await client.status(client.call(RAW)) == 0
        await edge.server.again()
        assert edge.server.listening
        assert await client.status(client.call(RAW)) == 0
        assert await works(edge)


async def test_a_read_full_of_calls_lets_others_have_turns() -> None:
    """Thousands of heads in one piece: other connections are answered in between."""
    async with serve() as edge, wire(edge) as raw, client_of(edge) as client:
        raw.send(b"".join(h2wire.call(stream, b"/none", end=True) for stream in range(1, 8_001, 2)))
        assert await client.status(client.call(RAW)) == 0
        assert await raw.status(7_999) == 12
