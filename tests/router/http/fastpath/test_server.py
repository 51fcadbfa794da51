"""Starting, draining, and what the protocol relies on inside uvicorn."""

import asyncio
import concurrent.futures
import dataclasses
import gc
import inspect
import socket
import time
from collections.abc import Iterator
from importlib.metadata import version

import pytest
from uvicorn.config import Config
from uvicorn.protocols.http import httptools_impl
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.server import ServerState

from router.http.app import create_app
from router.http.fastpath import create_server
from router.http.fastpath.exchange import Exchange
from router.payloads.bulk.pool import Bulk
from router.tensors.request.decoded import Decoded
from serving.values.vocabulary import TOO_LARGE
from tests.router.fakes import FakeServing
from tests.router.http.fastpath.conftest import Start
from tests.router.http.fastpath.wire import LIMITS, PATIENCE_S, Running, get, infer, request, total

pytestmark = pytest.mark.live


@pytest.fixture
def held() -> Iterator[Running]:
    """A server of the fast path whose core answers when it is told to."""
    running = Running(LIMITS)
    running.serving.held = True
    yield running
    running.stop()


def drain_in_background(running: Running) -> "concurrent.futures.Future[bool]":
    drained = asyncio.run_coroutine_threadsafe(running.server.drain(PATIENCE_S / 2), running.loop)
    running.settle()
    return drained


def decoded_requests(running: Running) -> int:
    running.settle()
    return sum(type(each) is Decoded for each in gc.get_objects())


def test_neither_an_idle_connection_nor_a_closed_one_keeps_the_tensors_of_its_requests(held: Running) -> None:
    gc.collect()
    gc.disable()  # a closed connection is a cycle: its request must not wait for the collector
    try:
        with held.connect() as idle, held.connect() as leaving:
            idle.send(infer(1))
            leaving.send(infer(2))
            held.serving.wait_calls(2)
            assert decoded_requests(held) == 2
            leaving.reset()
            held.serving.wait_cancelled(1)
            held.serving.release()
            assert total(idle.read()) == 2
            assert decoded_requests(held) == 0
    finally:
        gc.enable()


def test_a_drain_closes_idle_connections_at_once_and_refuses_new_ones(start: Start) -> None:
    running = start(LIMITS)
    with running.connect() as idle:
        idle.send(infer(1))
        assert total(idle.read()) == 2
        assert running.run(running.server.drain(PATIENCE_S / 2))
        assert idle.at_end()
    with pytest.raises(ConnectionRefusedError):
        running.connect()
    running.restart()


@pytest.mark.parametrize("requests", [infer(1), infer(1) + infer(2), infer(1) + get("/v2")])
def test_a_drain_answers_what_was_asked(held: Running, requests: bytes) -> None:
    with held.connect() as wire:
        wire.send(requests)
        held.serving.wait_calls(1)
        drained = drain_in_background(held)
        assert not drained.done()
        held.serving.release()
        answers = [wire.read() for _ in range(requests.count(b"HTTP/1.1"))]
        assert [a.status for a in answers] == [200] * len(answers)
        assert answers[-1].fields["connection"] == "close"
        assert wire.at_end()
    assert drained.result(PATIENCE_S)


def test_a_body_over_the_limit_is_counted_for_its_tenant(held: Running) -> None:
    held.serving.held = False
    assert held.ask(request(content_length=str(LIMITS.body_bytes + 1), x_tenant="gold")).status == 413
    assert held.serving.turned_away == [("simple", TOO_LARGE, "gold")]


def test_a_drain_waits_for_a_request_that_is_being_received(held: Running) -> None:
    held.serving.held = False
    data = infer(1)
    with held.connect() as wire:
        wire.send(data.replace(b"\r\n\r\n", b"\r\nexpect: 100-continue\r\n\r\n")[:-10])
        assert wire.read_head()[0] == 100
        drained = drain_in_background(held)
        wire.send(data[-10:])
        assert total(wire.read()) == 2
        assert wire.at_end()
    assert drained.result(PATIENCE_S)


def test_a_drain_ends_in_time_and_says_that_it_cut_off(held: Running) -> None:
    with held.connect() as wire:
        wire.send(infer(1))
        held.serving.wait_calls(1)
        began_s = time.monotonic()
        assert not held.run(held.server.drain(0.1))
        assert time.monotonic() - began_s < PATIENCE_S / 2
        with pytest.raises((ConnectionError, AssertionError)):
            wire.read()
    assert held.serving.cancelled == [1]


def test_listeners_close_while_open_connections_are_served(held: Running) -> None:
    held.serving.held = False
    with held.connect() as wire:
        wire.send(infer(1))
        assert total(wire.read()) == 2
        held.loop.call_soon_threadsafe(held.server.stop_listening)
        held.settle()
        wire.send(infer(2))
        assert total(wire.read()) == 3
        with pytest.raises(ConnectionRefusedError):
            held.connect()
        wire.send(infer(3))
        assert total(wire.read()) == 4


async def test_a_taken_port_is_named() -> None:
    serving = FakeServing()
    app = create_app(serving, serving.telemetry.statistics, name="penstock", version="0", bulk=Bulk(LIMITS))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server = create_server(serving, app, "127.0.0.1", port, LIMITS)
        with pytest.raises(OSError, match=f"cannot serve REST on 127.0.0.1:{port}: .*address already in use"):
            await server.start()


async def test_the_server_runs_on_asyncios_own_loop() -> None:
    serving = FakeServing()
    app = create_app(serving, serving.telemetry.statistics, name="penstock", version="0", bulk=Bulk(LIMITS))
    server = create_server(serving, app, "127.0.0.1", 0, LIMITS)
    reader, writer = await asyncio.open_connection("127.0.0.1", await server.start())
    writer.write(infer(1) + get("/v2") + b"GARBAGE\r\n\r\n")
    answers = (await reader.read()).split(b"HTTP/1.1 ")[1:]
    assert [answer[:3] for answer in answers] == [b"200", b"200", b"400"]
    writer.close()
    assert await server.drain(PATIENCE_S / 2)


def test_the_application_alone_answers_under_plain_uvicorn() -> None:
    """What a deployment without our protocol gets; limits on heads and time are uvicorn's then."""
    serving = FakeServing()
    limits = dataclasses.replace(LIMITS, body_bytes=2000)
    app = create_app(serving, serving.telemetry.statistics, name="penstock", version="0", bulk=Bulk(limits))
    config = Config(app, log_config=None, lifespan="off", ws="none")
    config.load()
    state = ServerState()

    async def ask(data: bytes) -> bytes:
        loop = asyncio.get_running_loop()
        listener = await loop.create_server(
            lambda: httptools_impl.HttpToolsProtocol(config, state, {}), "127.0.0.1", 0
        )
        reader, writer = await asyncio.open_connection(*listener.sockets[0].getsockname())
        writer.write(data)
        answer = await reader.read()
        writer.close()
        listener.close()
        return answer

    close = {"connection": "close"}
    assert b"HTTP/1.1 200" in asyncio.run(ask(infer(1, **close)))
    assert b"HTTP/1.1 413" in asyncio.run(ask(request(body=bytes(2001), **close)))


def test_uvicorn_is_the_version_that_the_protocol_was_written_for() -> None:
    assert version("uvicorn") == "0.54.0", "read its httptools_impl again, then change this line"


def test_what_the_protocol_uses_inside_uvicorn_is_there() -> None:
    protocol = httptools_impl.HttpToolsProtocol
    source = inspect.getsource(httptools_impl)
    assert list(inspect.signature(protocol.__init__).parameters) == [
        "self", "config", "server_state", "app_state", "_loop",
    ]  # fmt: skip
    for name in (
        "connection_made", "connection_lost", "data_received", "eof_received", "on_message_begin",
        "on_url", "on_header", "on_headers_complete", "on_body", "on_message_complete",
        "on_response_complete", "_start_asgi_task", "shutdown", "pause_writing", "resume_writing",
    ):  # fmt: skip
        assert callable(getattr(protocol, name)), name
    for line in (
        "self.pipeline.appendleft((self.cycle, app))",
        "if existing_cycle is None or existing_cycle.response_complete:",
        "on_response=self.on_response_complete",
        "if self.cycle is None or self.cycle.response_complete:\n            self.transport.close()",
        "self.cycle.message_event.set()",
        "default_headers=self.server_state.default_headers",
    ):
        assert line in source, line
    flow = inspect.getsource(FlowControl)
    assert "self.read_paused = False" in flow
    assert "self.write_paused = False" in flow
    for name in ("disconnected", "keep_alive", "message_event", "response_complete", "response_started"):
        assert f"self.{name}" in source
        assert hasattr(Exchange, name), name
