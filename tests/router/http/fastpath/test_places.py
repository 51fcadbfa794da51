"""Silent connections lock out nobody: others push them out, and probes have places of their own."""

import contextlib
import dataclasses
from collections.abc import Iterator

import pytest

from router.http.fastpath.places import RESERVED_PATHS
from tests.router.http.fastpath.conftest import Start
from tests.router.http.fastpath.wire import LIMITS, Running, Wire, get, infer, request, total

OTHER = "127.0.0.2"


@contextlib.contextmanager
def silent(running: Running, count: int, source: str = "127.0.0.1") -> Iterator[list[Wire]]:
    """So many connections that say nothing."""
    with contextlib.ExitStack() as stack:
        wires = [stack.enter_context(running.connect(source=source)) for _ in range(count)]
        while sum(running.server.connection_counts) < count:  # the last may not be accepted yet
            running.settle()
        yield wires


def crowded(start: Start, count: int, reserved: int = 4) -> Running:
    return start(dataclasses.replace(LIMITS, connection_count=count, reserved_connection_count=reserved))


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """No idle connection makes room."""
    monkeypatch.setattr("router.http.fastpath.places.GRACE_S", 1000.0)


@pytest.mark.usefixtures("kept")
def test_probes_are_answered_where_silent_connections_have_all_places(start: Start) -> None:
    running = crowded(start, 200)
    with silent(running, 200):
        for path in ("/livez", "/readyz", "/v2/health/ready", "/v2/models/simple/ready"):
            assert running.ask(get(path)).status == 200
        assert running.ask(get("/v2/status")).status == 404  # this application has none: it was asked
        answer = running.ask(infer(1))
        assert (answer.status, answer.fields["connection"]) == (503, "close")
        assert "limit of 200 connections" in answer.error
        assert "the others are for probes, status and operators" in answer.error
        assert running.ask(get("/v2")).status == 503


@pytest.mark.usefixtures("kept")
def test_a_silent_connection_does_not_keep_its_place_of_the_reserve(start: Start) -> None:
    running = crowded(start, 1)
    with silent(running, 1), running.connect() as quiet, running.connect() as halfway:
        halfway.send(b"GET /livez HT")
        while running.server.connection_counts != (1, 2):
            running.settle()
        running.pass_time(3.0)
        assert quiet.at_end()
        assert halfway.at_end()


@pytest.mark.usefixtures("kept")
def test_a_full_reserve_makes_room_for_a_probe_at_once(start: Start) -> None:
    running = crowded(start, 1, reserved=2)
    with silent(running, 3):
        assert running.server.connection_counts == (1, 2)
        assert running.ask(get("/livez"), OTHER).status == 200
        assert running.server.turned_out == (1, 0)


def test_a_second_address_is_served_while_the_first_fills_all_places(start: Start) -> None:
    running = crowded(start, 50)
    with silent(running, 50):
        running.pass_time(1.0)
        with running.connect(source=OTHER) as wire:
            for number in (1, 2, 3):
                wire.send(infer(number))
                assert total(wire.read()) == number + 1
        assert running.server.turned_out == (1, 0)


def test_the_address_that_holds_most_loses_and_others_keep_theirs(start: Start) -> None:
    running = crowded(start, 10)
    with silent(running, 3, OTHER) as few, silent(running, 7):
        running.pass_time(1.0)
        for number in range(20):
            assert total(running.ask(infer(number), "127.0.0.3")) == number + 1
            while sum(running.server.connection_counts) == 10:  # the server has not seen it leave yet
                running.settle()
        for wire in few:
            wire.send(infer(5))
            assert total(wire.read()) == 6


def test_a_connection_with_a_request_under_way_keeps_its_place(start: Start) -> None:
    running = crowded(start, 2)
    running.serving.held = True
    with running.connect() as first, running.connect() as second:
        first.send(infer(1))
        running.serving.wait_calls(1)
        second.send(request(content_length="1000") + b"{")
        while running.server.connection_counts != (2, 0):
            running.settle()
        running.pass_time(LIMITS.slow_client_s / 2)
        assert running.ask(infer(1), OTHER).status == 503
        assert running.ask(get("/livez"), OTHER).status == 200
        running.serving.release()
        assert total(first.read()) == 2
        assert running.server.turned_out == (0, 0)


@pytest.mark.parametrize(
    "path",
    [b"/livez", b"/readyz", b"/healthz", b"/v2/health/live", b"/v2/status", b"/v2/status?x=1",
     b"/v2/models/a/ready", b"/v2/models/a/versions/1/ready", b"/v2/placement", b"/v2/repository/index",
     b"/v2/repository/models/a/load", b"/v2/slices/cpu0/lost"],
)  # fmt: skip
def test_what_probes_and_operators_ask_for_is_reserved(path: bytes) -> None:
    assert RESERVED_PATHS.match(path)


@pytest.mark.parametrize(
    "path",
    [b"/", b"/v2", b"/v2/models/a/infer", b"/v2/models/a/infer?/ready", b"/livezz", b"/v2/statusx",
     b"/v2/models/a/b/ready", b"/v2/models", b"http://a/livez"],
)  # fmt: skip
def test_nothing_else_is(path: bytes) -> None:
    assert not RESERVED_PATHS.match(path)
