"""Connections as both servers treat them: keepalive, and the goodbye at the end."""

import asyncio

import pytest

from loadtests.hostile import h2wire
from tests.router.rpc_edge import Core, completed, serve, simple_request
from tests.router.rpc_wire import PATH, Wire, wire

pytestmark = pytest.mark.usefixtures("both_servers")

RAW = simple_request().SerializeToString()


async def came(raw: Wire, kind: int) -> tuple[int, bytes]:
    """Flags and content of the first frame of that kind, whose acknowledgement counts for PING."""
    async with asyncio.timeout(60):
        while True:
            for each, flags, _, payload in h2wire.frames(raw.received):
                if each == kind and (kind != h2wire.PING or flags & h2wire.ACK):
                    return flags, payload
            data = await raw._reader.read(65536)
            assert data, "the connection was closed"
            raw.received += data


async def test_a_ping_is_answered_while_a_call_is_open_and_while_none_is() -> None:
    async with serve(Core(lambda call: None)) as edge, wire(edge) as raw:
        raw.send(h2wire.frame(h2wire.PING, 0, 0, b"nocalls."))
        assert (await came(raw, h2wire.PING))[1] == b"nocalls."
        raw.received = b""
        raw.send(h2wire.call(1, PATH) + h2wire.message(1, RAW))
        await edge.core.change()
        raw.send(h2wire.frame(h2wire.PING, 0, 0, b"one call"))
        assert (await came(raw, h2wire.PING))[1] == b"one call"
        edge.core.open[1](completed(edge.core.calls[0]))
        assert await raw.status(1) == 0


async def test_at_the_end_a_client_is_told_to_go_and_its_open_call_is_answered() -> None:
    async with serve(Core(lambda call: None)) as edge, wire(edge) as raw:
        raw.send(h2wire.call(1, PATH) + h2wire.message(1, RAW))
        await edge.core.change()
        stopping = asyncio.create_task(edge.server.stop(60))
        _, payload = await came(raw, h2wire.GOAWAY)
        assert payload[4:8] == bytes(4)  # NO_ERROR
        edge.core.open[1](completed(edge.core.calls[0]))
        assert await raw.status(1) == 0
        async with asyncio.timeout(60):
            await stopping
