"""Edges that end by themselves, with real servers on real ports."""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Callable

import pytest

from router.http.app import create_app
from router.http.fastpath import create_server
from router.listening import is_listening
from router.observing.telemetry import MetricsServer, Telemetry
from router.payloads.bulk.pool import Bulk
from router.startup import edges
from router.startup.edges import Edges, Listener
from serving.values.specs import Limits
from tests.router.rpc_edge import Core

Started = tuple[Listener, int]


@contextlib.asynccontextmanager
async def rest() -> AsyncIterator[Started]:
    core, limits = Core(), Limits()
    app = create_app(core, core.telemetry.statistics, name="p", version="1", bulk=Bulk(limits))
    server = create_server(core, app, "127.0.0.1", 0, limits)
    yield server, await server.start()
    await server.drain(0)


@contextlib.asynccontextmanager
async def metrics() -> AsyncIterator[Started]:
    server = MetricsServer(Telemetry([]))
    yield server, await server.start("127.0.0.1", 0)
    await server.stop()


def end_listener(port: int) -> None:
    """As where its accept fails: what listens on the port in this process does so no longer."""
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(int(name))) as found:
            listens = found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
            if listens and found.getsockname()[1] == port:
                found.shutdown(socket.SHUT_RDWR)


async def connect(port: int) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.close()


@pytest.mark.parametrize("make", [rest, metrics])
async def test_a_listener_that_ends_is_started_again_on_its_port(
    make: Callable[[], contextlib.AbstractAsyncContextManager[Started]],
) -> None:
    async with make() as (edge, port), asyncio.timeout(60):
        assert edge.listening
        end_listener(port)
        assert not edge.listening
        watch = Edges({"it": edge})
        assert watch.states() == {"it": (False, 0)}
        task = asyncio.create_task(watch.run())
        while not edge.listening:
            await asyncio.wait((task,), timeout=0.01)
        await connect(port)
        assert watch.states() == {"it": (True, 1)}
        assert not watch.why_dead
        task.cancel()


@pytest.mark.parametrize("make", [rest, metrics])
async def test_an_edge_that_cannot_be_started_again_is_said_once_and_ends_the_watch(
    make: Callable[[], contextlib.AbstractAsyncContextManager[Started]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(edges, "PAUSES_S", (0.0, 0.0, 0.0))
    async with make() as (edge, port), asyncio.timeout(60):
        end_listener(port)
        with socket.create_server(("127.0.0.1", port)):
            watch = Edges({"it": edge})
            await watch.run()
        assert "the it edge has ended and cannot be started again: cannot serve" in watch.why_dead
        assert f"127.0.0.1:{port}: address already in use" in watch.why_dead
        assert watch.states() == {"it": (False, 0)}
    assert [record.message for record in caplog.records if record.name == edges.__name__] == [
        f"{watch.why_dead}; penstock ends"
    ]


async def test_what_never_listened_or_is_another_file_now_does_not_listen() -> None:
    assert not is_listening(None)
    server = await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", 0)
    assert is_listening(server)
    server.close()
    assert not is_listening(server)
