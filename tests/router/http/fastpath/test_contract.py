"""What a client may rely on, whichever way inference takes: framing, order, connections."""

import json
import resource
import struct
import threading

import pytest

from tests.router.http.fastpath.wire import (
    SIMPLE_INFER,
    Running,
    binary_infer,
    body_of,
    chunked,
    get,
    infer,
    request,
    total,
)


def test_a_json_request_is_answered(running: Running) -> None:
    answer = running.ask(infer(4))
    assert total(answer) == 5
    assert answer.fields["content-type"] == "application/json"
    assert "inference-header-content-length" not in answer.fields
    assert "date" in answer.fields


def test_a_binary_request_is_answered_in_binary(running: Running) -> None:
    answer = running.ask(binary_infer(4))
    assert (answer.status, answer.fields["content-type"]) == (200, "application/octet-stream")
    length = int(answer.fields["inference-header-content-length"])
    assert [o["name"] for o in json.loads(answer.body[:length])["outputs"]] == ["OUTPUT0", "OUTPUT1"]
    assert struct.unpack("<32i", answer.body[length:]) == (5,) * 16 + (3,) * 16


def test_a_connection_serves_many_requests(running: Running) -> None:
    with running.connect() as wire:
        for number in range(20):
            wire.send(infer(number))
            assert total(wire.read()) == number + 1


@pytest.mark.parametrize(
    "path",
    [
        "/v2/models/simple/infer",
        "/v2/models/simple/versions/1/infer",
        "/v2/models/simple/infer?test_1=1&test_2=x",
        "/v2/models/s%69mple/infer",
        "/v2/models/simple/versions/%31/infer?a=b",
    ],
)
def test_every_spelling_of_a_path_reaches_the_model(running: Running, path: str) -> None:
    assert total(running.ask(infer(1, path))) == 2


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("/v2/models/nobody/infer", "Request for unknown model: 'nobody' is not found"),
        ("/v2/models/simple/versions/2/infer", "Request for unknown model: 'simple' version 2 is not found"),
        ("/v2/models/simple/infer/", "Not Found"),
        ("/v2//models/simple/infer", "Not Found"),
        ("//v2/models/simple/infer", "Not Found"),
        ("/v2/models//infer", "Not Found"),
    ],
)
def test_a_path_that_is_none_is_404_with_a_sentence(running: Running, path: str, sentence: str) -> None:
    answer = running.ask(infer(1, path))
    assert answer.status == 404
    assert sentence in answer.error


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "OPTIONS"])
def test_a_wrong_method_is_405_and_names_the_right_one(running: Running, method: str) -> None:
    answer = running.ask(request(method=method))
    assert (answer.status, answer.fields["allow"]) == (405, "POST")
    assert method in answer.error


def test_pipelined_answers_come_in_the_order_of_the_requests(running: Running) -> None:
    running.serving.held = True
    with running.connect() as wire:
        wire.send(b"".join(infer(number) for number in range(5)))
        running.serving.wait_calls(1)
        running.serving.release()
        assert [total(wire.read()) for _ in range(5)] == [1, 2, 3, 4, 5]


def test_pipelined_answers_keep_their_order_where_both_ways_mix(running: Running) -> None:
    running.serving.later_s = 0.002
    ask = b"".join(get("/v2/models") + infer(n) + get("/nothing") + infer(n + 100) for n in range(10))
    with running.connect() as wire:
        wire.send(ask)
        for number in range(10):
            assert json.loads(wire.read().body)["models"][0] == "simple"
            assert total(wire.read()) == number + 1
            assert wire.read().status == 404
            assert total(wire.read()) == number + 101


def test_thousands_of_pipelined_requests_are_answered(running: Running) -> None:
    running.serving.later_s = 0
    with running.connect() as wire:
        for _ in range(4):
            wire.send(b"".join(infer(number) for number in range(100)))
            assert [total(wire.read()) for _ in range(100)] == list(range(1, 101))


@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_a_chunked_body_is_read(running: Running, size: int) -> None:
    chunks = chunked(body_of(6), size)
    answer = running.ask(request(content_length=None, transfer_encoding="chunked") + chunks)
    assert total(answer) == 7


def test_trailers_after_a_chunked_body_are_ignored(running: Running) -> None:
    chunks = chunked(body_of(6), trailer=b"X-Request-Id: 3\r\nX-Sum: 1\r\n")
    with running.connect() as wire:
        wire.send(request(content_length=None, transfer_encoding="chunked") + chunks + infer(7))
        assert [total(wire.read()), total(wire.read())] == [7, 8]


@pytest.mark.parametrize("kind", ["JSON", "binary", "chunked"])
def test_a_request_may_arrive_byte_by_byte(running: Running, kind: str) -> None:
    data = {
        "JSON": infer(3),
        "binary": binary_infer(3),
        "chunked": request(content_length=None, transfer_encoding="chunked") + chunked(body_of(3)),
    }[kind]
    with running.connect() as wire:
        for byte in data:
            wire.send(bytes((byte,)))
        assert wire.read().status == 200


def test_a_client_that_waits_is_told_to_continue(running: Running) -> None:
    body = body_of(3)
    with running.connect() as wire:
        wire.send(request(expect="100-continue", content_length=str(len(body))))
        assert wire.read_head()[0] == 100
        wire.send(body)
        assert total(wire.read()) == 4


def test_a_client_that_waits_is_told_at_once_that_its_body_is_too_large(running: Running) -> None:
    with running.connect() as wire:
        wire.send(request(expect="100-continue", content_length=str(1 << 30)))
        assert wire.read_head()[0] == 413


def test_connection_close_is_honoured(running: Running) -> None:
    with running.connect() as wire:
        wire.send(infer(1, connection="close"))
        answer = wire.read()
        assert (total(answer), answer.fields["connection"]) == (2, "close")
        assert wire.at_end()


@pytest.mark.parametrize("later_s", [None, 0.001])
def test_nothing_is_served_after_a_request_that_closes(running: Running, later_s: float | None) -> None:
    running.serving.later_s = later_s
    with running.connect() as wire:
        wire.send(infer(1) + infer(2, connection="close") + infer(3) + get("/v2") + b"GARBAGE\r\n")
        assert [total(wire.read()), total(wire.read())] == [2, 3]
        assert wire.at_end()
    assert len(running.serving.calls) == 2


@pytest.mark.parametrize("connection", ["", "Connection: keep-alive\r\n"])
def test_http_1_0_is_answered_and_closed(running: Running, connection: str) -> None:
    body = body_of(1)
    head = f"POST /v2/models/simple/infer HTTP/1.0\r\n{connection}Content-Length: {len(body)}\r\n\r\n"
    with running.connect() as wire:
        wire.send(head.encode() + body)
        assert total(wire.read()) == 2
        assert wire.at_end()


def test_a_client_that_has_finished_sending_still_gets_its_answers(running: Running) -> None:
    running.serving.held = True
    with running.connect() as wire:
        wire.send(infer(1) + infer(2))
        wire.end()
        running.serving.wait_calls(1)
        running.serving.release()
        assert [total(wire.read()), total(wire.read())] == [2, 3]
        assert wire.at_end()
    assert not running.serving.cancelled


@pytest.mark.parametrize("leave", ["close", "reset"])
def test_a_client_that_leaves_cancels_its_request(running: Running, leave: str) -> None:
    running.serving.held = True
    wire = running.connect()
    wire.send(infer(1))
    running.serving.wait_calls(1)
    getattr(wire, leave)()
    running.serving.wait_cancelled(1)
    assert running.serving.cancelled == [1]


@pytest.mark.parametrize("body", ["length", "chunked", "none"])
def test_an_offer_to_upgrade_is_ignored(running: Running, body: str) -> None:
    """Java's HTTP client offers h2c in every first request; the parser would skip the body of such a one."""
    offer = {"connection": "Upgrade, HTTP2-Settings", "upgrade": "h2c", "http2_settings": "AAMAAABk"}
    if body == "length":
        data = request(SIMPLE_INFER, body_of(1), "POST", **offer)
    elif body == "chunked":
        chunks = chunked(body_of(1))
        data = (
            request(SIMPLE_INFER, b"", "POST", content_length=None, transfer_encoding="chunked", **offer)
            + chunks
        )
    else:
        data = request("/v2/models/simple/ready", b"", "GET", **offer) + infer(1)
    with running.connect() as wire:
        wire.send(data + infer(5))
        if body == "none":
            assert wire.read().status == 200
        assert [total(wire.read()), total(wire.read())] == [2, 6]


@pytest.mark.slow
def test_many_pipelined_offers_to_upgrade_take_bounded_memory_and_are_answered_in_order() -> None:
    """Each would once hold a copy of all that follows it, and a frame of the stack."""
    count = 20_000
    running = Running()
    try:
        with running.connect() as wire:
            head = b"GET /%d HTTP/1.1\r\nhost: a\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\n"
            sender = threading.Thread(
                target=wire.send, args=(b"".join(head % each for each in range(count)),)
            )
            before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            sender.start()
            paths = [wire.read().error.rpartition(" ")[2] for _ in range(count)]
            sender.join()
        assert paths == [f"/{each}" for each in range(count)]
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb < 200 << 10
        assert total(running.ask(infer(1))) == 2
    finally:
        running.stop()


def test_an_offer_to_upgrade_by_http_1_0_is_one_of_http_1_0(running: Running) -> None:
    with running.connect() as wire:
        wire.send(b"GET /livez HTTP/1.0\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\n")
        assert wire.read().status == 200
        assert wire.at_end()


@pytest.mark.parametrize("path", [SIMPLE_INFER, "/v2", "/v2/nothing"])
@pytest.mark.parametrize("upgrade", [b"", b"upgrade: h2c\r\nconnection: upgrade\r\n"])
@pytest.mark.parametrize(
    ("hosts", "said"),
    [
        (b"", "has no Host"),
        (b"host: a\r\nHost: a\r\n", "has 2 Host"),
        (b"host: a/b\r\n", "not a host"),
        (b"host: a, b\r\n", "not a host"),
        (b"host: me@a\r\n", "not a host"),
    ],
)
def test_a_request_names_its_host_once(
    running: Running, path: str, upgrade: bytes, hosts: bytes, said: str
) -> None:
    """RFC 9112, 3.2: what is in between may have taken another one for the host."""
    with running.connect() as wire:
        head = b"POST " + path.encode() + b" HTTP/1.1\r\n" + hosts + upgrade
        wire.send(head + b"content-length: 0\r\n\r\n" + infer(1))
        answer = wire.read()
        assert (answer.status, said in answer.error) == (400, True), answer
        assert wire.at_end()  # nothing after it is taken for a request


@pytest.mark.parametrize("host", ["", "a", "a:8000", "[::1]:8000", "a_b.example", "127.0.0.1"])
def test_any_host_is_welcome(running: Running, host: str) -> None:
    assert total(running.ask(infer(1, host=host))) == 2
    with running.connect() as wire:
        wire.send(b"GET /livez HTTP/1.0\r\n\r\n")  # had no Host yet
        assert wire.read().status == 200
