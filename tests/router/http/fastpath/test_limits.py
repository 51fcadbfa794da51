"""What no client can do to the server: each breach gets a clear answer, and memory stays bounded."""

import contextlib
import dataclasses
import json

import pytest

from tests.router.http.fastpath.conftest import Start
from tests.router.http.fastpath.wire import (
    LIMITS,
    PATIENCE_S,
    Running,
    body_of,
    chunked,
    get,
    infer,
    request,
    total,
)

CHUNKED = {"content_length": None, "transfer_encoding": "chunked"}


@pytest.mark.parametrize(
    "data",
    [
        b"GARBAGE\r\n\r\n",
        b"GET\r\n\r\n",
        b"POST /v2/models/simple/infer HTTP/9.9\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64),
        b"GET /v2 HTTP/1.1\r\nbad name: 1\r\n\r\n",
        b"GET /v2 HTTP/1.1\r\nhost: a\r\n\tfolded\x00\r\n\r\n",
        request(content_length="abc"),
        request(content_length="-1"),
        request(content_length="99999999999999999999999"),
        request(content_length="5", transfer_encoding="chunked") + b"0\r\n\r\n",
        request(**CHUNKED) + b"zz\r\nab\r\n0\r\n\r\n",  # type: ignore[arg-type]
        request(**CHUNKED) + b"2\r\nabcd\r\n0\r\n\r\n",  # type: ignore[arg-type]
        b"POST http://[bad/infer HTTP/1.1\r\nhost: a\r\n\r\n",
    ],
)
def test_malformed_http_is_400_in_json_and_the_last_of_its_connection(running: Running, data: bytes) -> None:
    with running.connect() as wire:
        wire.send(data)
        answer = wire.read()
        assert (answer.status, answer.fields["connection"]) == (400, "close")
        assert answer.error.startswith("malformed HTTP request: ")
        assert wire.at_end()


def test_a_tunnel_is_refused(running: Running) -> None:
    assert running.ask(b"CONNECT example:443 HTTP/1.1\r\nhost: a\r\n\r\n").status == 405


def test_malformed_http_waits_for_its_turn(running: Running) -> None:
    running.serving.held = True
    with running.connect() as wire:
        wire.send(infer(1) + get("/v2") + b"GARBAGE\r\n\r\n")
        running.serving.wait_calls(1)
        running.serving.release()
        assert [total(wire.read()), wire.read().status, wire.read().status] == [2, 200, 400]
        assert wire.at_end()


@pytest.mark.parametrize("path", ["/v2/models/simple/infer", "/v2/models/nobody/infer", "/v2"])
def test_a_body_that_announces_itself_too_large_is_refused_at_once(running: Running, path: str) -> None:
    with running.connect() as wire:
        wire.send(request(path, content_length=str(LIMITS.body_bytes + 1)))
        answer = wire.read()
        assert (answer.status, answer.fields["connection"]) == (413, "close")
        assert "1048576 bytes (limits.body_mb)" in answer.error
        assert answer.fields["x-penstock-reason"] == json.loads(answer.body)["reason"] == "too_large"
        with contextlib.suppress(ConnectionError):  # a client may go on for a while without being cut off
            wire.send(bytes(1 << 20))
        assert wire.at_end()


@pytest.mark.parametrize("path", ["/v2/models/simple/infer", "/v2/models/nobody/infer"])
def test_a_chunked_body_is_refused_once_it_is_too_large(running: Running, path: str) -> None:
    with running.connect() as wire:
        wire.send(request(path, **CHUNKED))  # type: ignore[arg-type]
        with contextlib.suppress(ConnectionError):
            wire.send(chunked(bytes(LIMITS.body_bytes + 1), 1 << 16))
        answer = wire.read()
        assert answer.status == (404 if "nobody" in path else 413)  # 404 was said before all of it came
        assert answer.error
        assert wire.at_end()


@pytest.mark.parametrize("kind", ["one field", "many fields", "target", "trailer"])
def test_a_head_without_end_is_refused_while_it_arrives(running: Running, kind: str) -> None:
    piece = {"many fields": b"x-a: 1\r\n" * 8192}.get(kind, b"a" * 65536)
    start = {
        "one field": b"POST /v2/models/simple/infer HTTP/1.1\r\nx-long: ",
        "many fields": b"POST /v2/models/simple/infer HTTP/1.1\r\n",
        "target": b"GET /",
        "trailer": request(**CHUNKED) + b"1\r\n{\r\n0\r\nx-long: ",  # type: ignore[arg-type]
    }[kind]
    with running.connect() as wire:
        wire.send(start)
        sent = 0
        with contextlib.suppress(ConnectionError):
            for _ in range(160):  # 10 MB
                wire.send(piece)
                sent += len(piece)
        answer = wire.read()
        assert answer.status == 431
        assert "(limits.header_kb)" in answer.error


def test_a_head_is_counted_before_it_is_complete(running: Running) -> None:
    with running.connect() as wire:
        wire.send(b"GET /v2 HTTP/1.1\r\nx-long: ")
        with contextlib.suppress(ConnectionError):  # it reads on for a while only
            for _ in range(9):  # 3 reads at least, of which 1 is not counted
                wire.send(b"a" * 65536)
        assert wire.read().status == 431


@pytest.mark.parametrize("path", ["/v2/models/simple/infer", "/v2"])
def test_a_complete_head_over_a_limit_is_refused(running: Running, path: str) -> None:
    big = request(path, x_long="a" * LIMITS.header_bytes)
    many = request(path, b"", "POST", **{f"x-{number}": "1" for number in range(LIMITS.header_count)})
    assert "(limits.header_kb)" in running.ask(big).error
    assert "66 header fields, over the limit of 64 (limits.header_count)" in running.ask(many).error


def test_a_head_just_within_the_limits_is_served(running: Running) -> None:
    fields = {f"x-{number}": "a" * 240 for number in range(LIMITS.header_count - 2)}
    assert total(running.ask(infer(1, **fields))) == 2


def test_json_of_100000_levels_is_refused(running: Running) -> None:
    body = b'{"inputs":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    with running.connect() as wire:
        wire.send(request(body=body) + infer(1))
        assert wire.read().status == 400
        assert total(wire.read()) == 2


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'{"inputs":[]}', b"\xff\xfe", body_of(1)[:-3]])
def test_a_body_that_is_no_request_is_400_and_the_connection_goes_on(running: Running, body: bytes) -> None:
    with running.connect() as wire:
        wire.send(request(body=body) + infer(1))
        assert wire.read().status == 400
        assert total(wire.read()) == 2


@pytest.mark.parametrize("length", ["abc", "-1", "1000000", "9" * 40, "1", "²"])
def test_a_false_length_of_the_json_part_is_400(running: Running, length: str) -> None:
    answer = running.ask(request(body=body_of(1), inference_header_content_length=length))
    assert answer.status == 400
    assert answer.error


@pytest.mark.parametrize("cut", ["head", "body", "chunk"])
def test_a_request_that_ends_early_is_400(running: Running, cut: str) -> None:
    data = {
        "head": infer(1)[:30],
        "body": infer(1)[:-5],
        "chunk": request(**CHUNKED) + b"40\r\nabc",  # type: ignore[arg-type]
    }[cut]
    with running.connect() as wire:
        wire.send(data)
        wire.end()
        answer = wire.read()
        assert (answer.status, answer.error) == (400, "the connection ended in the middle of a request")
        assert wire.at_end()


def test_a_client_that_leaves_in_the_middle_is_forgotten(running: Running) -> None:
    data = infer(1)
    for size in (1, 30, len(data) // 2, len(data) - 1):
        wire = running.connect()
        wire.send(data[:size])
        wire.reset()
    assert not running.serving.calls


@pytest.mark.slow
def test_a_reader_that_does_not_read_is_not_read_from(running: Running) -> None:
    """What it asks meanwhile stays in the kernel's buffers; when it reads, it gets every answer."""
    columns = 20_000
    tensor = {"name": "IN", "shape": [1, columns], "datatype": "INT8", "data": [7] * columns}
    body = json.dumps({"inputs": [tensor]}).encode()
    one = request("/v2/models/identity/infer", body)
    with running.connect(receive_buffer_bytes=4096) as wire:
        wire.socket.settimeout(0.3)
        sent = 0
        with contextlib.suppress(TimeoutError):
            while sent < 100 << 20:
                sent += wire.socket.send(one[sent % len(one) :])
        assert sent < 30 << 20
        taken = len(running.serving.calls)
        wire.socket.settimeout(PATIENCE_S)
        answers = [wire.read().status for _ in range(taken)]
        assert answers == [200] * taken


@pytest.mark.slow
def test_a_reader_that_never_reads_is_cut_off(start: Start) -> None:
    running = start(dataclasses.replace(LIMITS, slow_client_s=0.2))
    body = json.dumps(
        {"inputs": [{"name": "IN", "shape": [1, 300_000], "datatype": "INT8", "data": [7] * 300_000}]}
    ).encode()
    with running.connect(receive_buffer_bytes=4096) as wire:
        with contextlib.suppress(ConnectionError):
            for _ in range(30):
                wire.send(request("/v2/models/identity/infer", body))
        with contextlib.suppress(ConnectionError):
            while wire.socket.recv(1 << 16):
                pass


@pytest.mark.slow
@pytest.mark.parametrize("part", [b"POST /v2", infer(1)[:60], infer(1)[:-1]])
def test_a_request_that_does_not_arrive_is_408(start: Start, part: bytes) -> None:
    running = start(dataclasses.replace(LIMITS, slow_client_s=0.2))
    with running.connect() as wire:
        wire.send(part)
        answer = wire.read()
        assert (answer.status, answer.fields["connection"]) == (408, "close")
        assert "0.2 s (limits.slow_client_s)" in answer.error
        assert wire.at_end()


def test_a_slow_answer_is_no_slow_client(running: Running) -> None:
    running.serving.held = True
    with running.connect() as wire:
        wire.send(infer(1))
        running.serving.wait_calls(1)
        running.pass_time(10 * max(LIMITS.slow_client_s, LIMITS.idle_connection_s))
        running.serving.release()
        assert total(wire.read()) == 2


def test_an_idle_connection_is_closed(running: Running) -> None:
    with running.connect() as fresh, running.connect() as used:
        for number in (1, 2):
            used.send(infer(number))
            assert total(used.read()) == number + 1
            running.pass_time(LIMITS.idle_connection_s * 0.6)
        assert fresh.at_end()
        running.pass_time(LIMITS.idle_connection_s * 0.6)
        assert used.at_end()


def test_a_busy_connection_is_not_idle(running: Running) -> None:
    with running.connect() as wire:
        for number in range(5):
            wire.send(infer(number))
            assert total(wire.read()) == number + 1
            running.pass_time(LIMITS.idle_connection_s * 0.6)


def test_connections_over_the_limit_are_told_so(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("router.http.fastpath.places.GRACE_S", 1000.0)  # no idle one makes room
    running = start(dataclasses.replace(LIMITS, connection_count=2, reserved_connection_count=0))
    with running.connect() as first, running.connect() as second:
        for wire in (first, second):
            wire.send(infer(1))
            assert total(wire.read()) == 2
        with running.connect() as third:
            answer = third.read()
            assert (answer.status, answer.fields["connection"]) == (503, "close")
            assert "limit of 2 connections" in answer.error
            assert third.at_end()
        first.send(infer(2))
        assert total(first.read()) == 3


def test_a_flood_of_connections_over_the_limit_is_dropped(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    # none makes room while the flood comes
    monkeypatch.setattr("router.http.fastpath.sweep.LINGER_S", 1000.0)
    monkeypatch.setattr("router.http.fastpath.places.GRACE_S", 1000.0)
    one = dataclasses.replace(LIMITS, connection_count=1, reserved_connection_count=0)
    running = start(dataclasses.replace(one, slow_client_s=1000.0))
    wires = [running.connect() for _ in range(100)]
    ends = 0
    for wire in wires[1:]:
        with contextlib.suppress(ConnectionError, AssertionError):
            if wire.read().status == 503:
                ends += 1
    assert 30 < ends <= 64
    for wire in wires:
        wire.close()
    running.wait_left()
    assert total(running.ask(infer(1))) == 2
