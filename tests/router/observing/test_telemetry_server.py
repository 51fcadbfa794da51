"""The metrics port: one path, sent in steps that let the event loop go on, to scrapers of any manners."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import uvloop
from prometheus_client.parser import text_string_to_metric_families

from router.observing.telemetry import LoopLag, MetricsServer, Telemetry
from router.observing.telemetry import server as server_module
from router.observing.telemetry.counting.lag import PERIOD_S, STALL_US
from router.observing.telemetry.server import CONNECTIONS_MAX, HEAD_BYTES_MAX
from tests.builders import model_spec, served
from tests.router.happenings import end, request, run

GET = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"


def telemetry(models: int = 2) -> Telemetry:
    names = [f"m{number}" for number in range(models)]
    made = Telemetry([served(model_spec(name)) for name in names])
    for name in names:
        end(made, request(name))
        run(made, name, "x", 2)
    return made


@asynccontextmanager
async def serving(counts: Telemetry) -> AsyncIterator[int]:
    """A server on some port, which is yielded."""
    server = MetricsServer(counts)
    port = await server.start("127.0.0.1", 0)
    try:
        yield port
    finally:
        await server.stop()


async def exchange(port: int, sent: bytes, source: str = "127.0.0.1") -> tuple[bytes, bytes]:
    """Head and body of the answer, as they came."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))
    try:
        writer.write(sent)
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        return head, body
    finally:
        writer.close()


def joined(body: bytes) -> tuple[bytes, int]:
    """What the chunks of a whole body hold, and how many they are."""
    held, count = b"", 0
    while True:
        size, _, body = body.partition(b"\r\n")
        length = int(size, 16)
        assert body[length : length + 2] == b"\r\n"
        held += body[:length]
        body = body[length + 2 :]
        if not length:
            assert body == b""
            return held, count
        count += 1


@pytest.mark.parametrize("target", [b"/metrics", b"/metrics?name[]=up"])
async def test_metrics_come_in_chunks(target: bytes) -> None:
    async with serving(telemetry(40)) as port:
        head, body = await exchange(port, b"GET " + target + b" HTTP/1.1\r\nHost: x\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n" in head
    assert b"Transfer-Encoding: chunked" in head
    held, count = joined(body)
    assert count > 10
    names = {family.name for family in text_string_to_metric_families(held.decode())}
    assert {"penstock_requests", "penstock_batch_rows", "nv_inference_count", "process_cpu_seconds"} <= names


async def test_a_client_of_http_1_0_gets_a_body_that_ends_with_the_connection() -> None:
    async with serving(telemetry()) as port:
        head, body = await exchange(port, b"GET /metrics HTTP/1.0\r\n\r\n")
    assert b"Transfer-Encoding" not in head
    assert body.startswith(b"# HELP penstock_requests_total")
    assert b"\nprocess_cpu_seconds_total " in body


@pytest.mark.parametrize(
    ("request_line", "status", "part"),
    [
        (b"GET /other HTTP/1.1", b"404 Not Found", b"Metrics are at /metrics."),
        (b"POST /metrics HTTP/1.1", b"405 Method Not Allowed", b"Use GET"),
        (b"nonsense", b"404 Not Found", b"/metrics"),
    ],
)
async def test_metrics_are_served_at_their_path_only(request_line: bytes, status: bytes, part: bytes) -> None:
    async with serving(telemetry()) as port:
        head, body = await exchange(port, request_line + b"\r\nHost: x\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 " + status)
    assert f"Content-Length: {len(body)}".encode() in head
    assert part in body


async def test_head_has_no_body() -> None:
    async with serving(telemetry()) as port:
        head, body = await exchange(port, b"HEAD /metrics HTTP/1.1\r\n\r\n")
    assert b"200 OK" in head
    assert body == b""


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_other_work_of_the_loop_goes_on_between_the_steps(loop_factory: object) -> None:
    async def scrape() -> None:
        turns, counts = 0, telemetry(100)
        loop = asyncio.get_running_loop()

        def turn() -> None:
            nonlocal turns
            turns += 1
            loop.call_soon(turn)

        taken: list[int] = []

        class Watched(Telemetry):
            def steps(self, openmetrics=False):  # type: ignore[no-untyped-def]
                for step in counts.steps():
                    taken.append(turns)
                    yield step

        async with serving(Watched([])) as port:
            turn()
            await exchange(port, GET)
        assert len(taken) > 30
        assert len(set(taken)) == len(taken)  # the loop turned between any two of them

    with asyncio.Runner(loop_factory=loop_factory) as runner:  # type: ignore[arg-type]
        runner.run(scrape())


@pytest.mark.slow
async def test_a_scraper_that_reads_nothing_holds_one_step_and_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server_module, "EXCHANGE_S_MAX", 1.0)
    made, ended = 0, asyncio.Event()

    class Endless(Telemetry):
        def steps(self, openmetrics=False):  # type: ignore[no-untyped-def]
            nonlocal made
            try:
                while True:
                    made += 1
                    yield b"x" * (1 << 20)
            finally:
                ended.set()

    async with serving(Endless([])) as port:
        with socket.create_connection(("127.0.0.1", port)) as deaf:
            deaf.setblocking(False)
            await asyncio.get_running_loop().sock_sendall(deaf, GET)
            async with asyncio.timeout(60):
                await ended.wait()
            received = 0
            with contextlib.suppress(ConnectionResetError):
                while piece := await asyncio.get_running_loop().sock_recv(deaf, 1 << 20):
                    received += len(piece)
        assert made < 50  # what the kernel's buffers took; an unbounded one would go on for a second
        assert received < made << 20  # the rest of the last step was dropped, not kept for it


async def test_an_endless_head_is_cut_off_and_the_next_scrape_answered() -> None:
    async with serving(telemetry()) as port:
        with contextlib.suppress(ConnectionResetError):  # as good an end: bytes were left unread
            cut = await exchange(port, b"GET /metrics HTTP/1.1\r\nx: " + b"y" * (HEAD_BYTES_MAX + 1))
            assert cut == (b"", b"")
        head, _ = await exchange(port, GET)
        assert b"200 OK" in head


@pytest.mark.parametrize("source", ["127.0.0.1", "127.0.0.2"])
async def test_silent_connections_make_room_for_a_scrape(source: str) -> None:
    server = MetricsServer(telemetry())
    port = await server.start("127.0.0.1", 0)
    silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(CONNECTIONS_MAX)]
    async with asyncio.timeout(60):
        while server.connection_count < CONNECTIONS_MAX:  # noqa: ASYNC110  # until it has taken all
            await asyncio.sleep(0)
        for count in range(1, 6):
            head, _ = await exchange(port, GET, source)
            assert b"200 OK" in head
            assert server.turned_out[0] <= count
    assert server.turned_out[1] == 0
    assert server.turned_out[0] >= 1
    await server.stop()
    for _, writer in silent:
        writer.close()


async def test_stopping_ends_what_is_connected_and_leaves_no_task_behind() -> None:
    server = MetricsServer(telemetry())
    port = await server.start("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    await exchange(port, GET)  # accepted after the other
    await server.stop()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    with contextlib.suppress(ConnectionResetError):
        assert await reader.read() == b""
    writer.close()


async def test_a_taken_port_is_an_error_that_names_it() -> None:
    async with serving(telemetry()) as port:
        with pytest.raises(OSError, match=f"cannot serve metrics on 127.0.0.1:{port}"):
            await MetricsServer(telemetry()).start("127.0.0.1", port)


async def test_the_loops_lag_is_how_late_a_timer_was() -> None:
    period_us = round(PERIOD_S * 1e6)
    instants = iter([0, period_us + 7_000, period_us + 7_000, 2 * period_us + 6_000, 0])
    observed: list[int] = []
    twice = asyncio.Event()

    def observe(lag_us: int) -> None:
        observed.append(lag_us)
        if len(observed) == 2:
            twice.set()

    lag = LoopLag(lambda: next(instants), observe, _no_stall)
    lag.start()
    await twice.wait()
    lag.stop()
    assert observed == [7_000, 0]  # the second was early


async def test_a_stall_is_counted_each_time_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    period_us = round(PERIOD_S * 1e6)
    lags_us = (STALL_US - 1, STALL_US, 2_500_000, 0)
    starts_us = [sum(lags_us[:n]) + n * period_us for n in range(len(lags_us) + 1)]
    instants = iter([0] + [each for at in starts_us[1:] for each in (at, at)])
    counted = telemetry()
    done = asyncio.Event()

    def observe(lag_us: int) -> None:
        counted.observe_lag(lag_us)
        if not lag_us:
            done.set()

    lag = LoopLag(lambda: next(instants), observe, counted.stalled)
    lag.start()
    await done.wait()
    lag.stop()
    found = b"".join(counted.steps())
    assert b"\npenstock_event_loop_stalls_total 2\n" in found
    assert b"\npenstock_event_loop_stall_max_seconds 2.5\n" in found
    assert [record.message for record in caplog.records] == [
        "the gateway stood still for 1.0 s: no request was answered"
    ]


def _no_stall(stall_us: int) -> None:
    raise AssertionError(f"a lag of {stall_us} us is no stall")
