"""REST over TLS: the fast path and the application, Triton's clients, and clients that do it wrong."""

import json
import os
import socket
import ssl
from collections.abc import Callable, Iterator

import pytest
import tritonclient.http as triton
import tritonclient.http.aio as triton_aio

from router.security.auth.guard import KeyGuard
from router.security.auth.keys import KeyFile
from router.security.tls import Certificates, Gate
from router.security.tls.gate import HANDSHAKES_MAX
from router.security.tls.stream import FAILED, LEFT, PIECE_BYTES, PLAIN, TOO_MANY, TOO_SLOW
from router.settings.keys import KeySpec
from tests.certificates import Authority
from tests.router.http.fastpath.wire import (
    LIMITS,
    PATIENCE_S,
    Running,
    Wire,
    body_of,
    get,
    infer,
    request,
    total,
)
from tests.router.rpc_edge import simple_inputs


def guard() -> KeyGuard:
    """Lets in the certificate `app1` by its URI, for the tenant gold."""
    spec = KeySpec("app", "", "", "gold", ("infer",), certificate="URI:spiffe://example.com/app1")
    return KeyGuard(KeyFile([spec]))


Start = Callable[..., Running]


@pytest.fixture
def start(signed: Authority) -> Iterator[Start]:
    """Starts servers that speak TLS, and ends them."""
    running: list[Running] = []

    def begin(*, asks: bool = False, requires: bool = False, direct: bool = True) -> Running:
        tls = signed.tls(client_ca=signed.ca if asks else None, requires=requires)
        gate = Gate(Certificates(tls), LIMITS)
        found = Running(LIMITS, direct=direct, guard=guard() if asks else None, gate=gate)
        found.tls = signed.client()
        running.append(found)
        return found

    yield begin
    for each in running:
        each.stop()
        gate_of(each).close()


def gate_of(running: Running) -> Gate:
    gate = running._gate
    assert gate is not None
    return gate


def wait(running: Running, why: str, count: int) -> None:
    """Until so many handshakes have ended for that reason."""
    for _ in range(10_000):
        if gate_of(running).ended[why] >= count:
            return
        running.settle()
    raise AssertionError(gate_of(running).ended)


@pytest.mark.parametrize("direct", [True, False], ids=["fast path", "ASGI"])
def test_requests_are_answered_in_turn_over_one_connection(start: Start, direct: bool) -> None:
    running = start(direct=direct)
    with running.connect() as wire:
        wire.send(infer(1) + infer(2) + get("/v2/health/live"))
        assert [total(wire.read()), total(wire.read())] == [2, 3]
        assert wire.read().status == 200
        assert isinstance(wire.socket, ssl.SSLSocket)
        assert wire.socket.version() == "TLSv1.3"
    assert gate_of(running).done == 1


def test_the_oldest_version_is_1_2_and_http_is_agreed_on(start: Start, signed: Authority) -> None:
    running = start()
    running.tls = signed.client()
    running.tls.maximum_version = ssl.TLSVersion.TLSv1_2
    running.tls.set_alpn_protocols(["h2", "http/1.1"])
    with running.connect() as wire:
        wire.send(infer(1))
        assert total(wire.read()) == 2
        assert isinstance(wire.socket, ssl.SSLSocket)
        assert (wire.socket.version(), wire.socket.selected_alpn_protocol()) == ("TLSv1.2", "http/1.1")
    running.tls = ssl.create_default_context(cafile=str(signed.ca))
    running.tls.maximum_version = ssl.TLSVersion.TLSv1_2
    running.tls.set_ciphers("AES128-SHA:@SECLEVEL=0")
    with pytest.raises((ssl.SSLError, ConnectionError)):
        running.connect()
    wait(running, FAILED, 1)


def test_large_bodies_and_answers_pass_whole(start: Start) -> None:
    running = start()
    rows = 3000
    values = list(range(16)) * rows
    inputs = [
        {"name": name, "shape": [rows, 16], "datatype": "INT32", "data": values}
        for name in ("INPUT0", "INPUT1")
    ]
    body = json.dumps({"inputs": inputs}).encode()
    assert len(body) > 2 * PIECE_BYTES
    with running.connect() as wire:
        for _ in range(2):
            wire.send(request(body=body))
            answer = wire.read()
            assert answer.status == 200
            assert json.loads(answer.body)["outputs"][0]["data"] == [2 * value for value in values]
            assert len(answer.body) > 2 * PIECE_BYTES


def test_a_client_that_has_finished_sending_still_gets_its_answer(start: Start) -> None:
    running = start()
    with running.connect() as wire:
        wire.send(infer(41))
        with socket.socket(fileno=os.dup(wire.socket.fileno())) as raw:
            raw.shutdown(socket.SHUT_WR)
        assert total(wire.read()) == 42
        assert wire.at_end()


def test_a_refused_request_is_told_why_before_the_connection_ends(start: Start) -> None:
    running = start()
    with running.connect() as wire:
        wire.send(request(body=b"x" * 10, content_length=str(LIMITS.body_bytes + 1)))
        answer = wire.read()
        assert answer.status == 413
        assert wire.at_end()


def test_the_names_of_a_certificate_stand_for_a_key(start: Start, signed: Authority) -> None:
    for direct in (True, False):
        running = start(asks=True, direct=direct)
        assert running.ask(infer(1)).status == 401
        assert running.ask(get("/v2/health/live")).status == 200
        running.tls = signed.client("app1")
        assert total(running.ask(infer(1))) == 2
        assert [call.tenant for call in running.serving.calls] == ["gold"]
        assert running.ask(get("/v2/status")).status == 403
        running.tls = signed.client("server")
        answer = running.ask(infer(1))
        assert answer.status == 401
        assert "DNS:localhost" in answer.error


def test_where_a_certificate_is_required_none_gets_no_answer(start: Start, signed: Authority) -> None:
    running = start(asks=True, requires=True)
    with pytest.raises((ssl.SSLError, ConnectionError, AssertionError)):
        running.ask(infer(1))
    wait(running, FAILED, 1)
    running.tls = signed.client("app1")
    assert total(running.ask(infer(1))) == 2


def test_what_is_no_tls_is_answered_in_plain_http(start: Start) -> None:
    running = start()
    with Wire(running.port) as wire:
        wire.send(get("/v2/health/live"))
        answer = wire.read()
        assert answer.status == 400
        assert "https://" in answer.error
        assert wire.at_end()
    with Wire(running.port) as wire:
        wire.send(b"\x00" * 100)
        assert wire.at_end()
    wait(running, FAILED, 1)
    assert gate_of(running).ended[PLAIN] == 1


def test_silent_clients_are_bounded_in_time(start: Start) -> None:
    running = start()
    patience_s, gate_of(running).handshake_s = gate_of(running).handshake_s, 0.05
    with Wire(running.port) as silent, Wire(running.port) as slow:
        slow.send(b"\x16\x03\x01")
        assert silent.at_end()
        assert slow.at_end()
    assert gate_of(running).ended[TOO_SLOW] == 2
    gate_of(running).handshake_s = patience_s
    assert total(running.ask(infer(1))) == 2


def test_a_flood_of_handshakes_takes_no_place_of_others(start: Start) -> None:
    running = start()
    flood = [socket.create_connection(("127.0.0.1", running.port)) for _ in range(HANDSHAKES_MAX + 20)]
    try:
        wait(running, TOO_MANY, 1)
        running.settle()
        with running.connect(source="127.0.0.2") as wire:  # another client's handshake
            wire.send(infer(1))
            assert total(wire.read()) == 2
        assert gate_of(running).under_way <= HANDSHAKES_MAX
    finally:
        for each in flood:
            each.close()
    wait(running, LEFT, 1)


def test_a_client_that_takes_no_answers_is_paused_and_then_gets_all(start: Start) -> None:
    running = start()
    padding = "x" * (LIMITS.write_buffer_bytes // 2)
    count = 24
    with running.connect(receive_buffer_bytes=4096) as wire:
        asked = request(body=body_of(1, id=padding))
        for _ in range(count):
            wire.send(asked)
        assert {total(wire.read()) for _ in range(count)} == {2}


def test_a_drain_answers_what_was_asked_and_closes(start: Start) -> None:
    running = start()
    with running.connect() as wire:
        wire.send(infer(1))
        assert total(wire.read()) == 2
        assert running.run(running.server.drain(PATIENCE_S))
        assert wire.at_end()
    running.restart()


def test_tritonclient_speaks_tls_by_its_own_options(start: Start, signed: Authority) -> None:
    running = start()
    options = {"ca_certs": str(signed.ca)}
    url = f"localhost:{running.port}"
    with triton.InferenceServerClient(url, ssl=True, ssl_options=options) as client:
        assert client.is_server_live()
        result = client.infer("simple", simple_inputs(triton))
        assert result.as_numpy("OUTPUT0")[0, 1] == 2
    with (
        triton.InferenceServerClient(url, ssl=True) as client,  # trusts the system's authorities only
        pytest.raises(ssl.SSLError),
    ):
        client.is_server_live()


async def test_tritonclient_aio_speaks_tls(start: Start, signed: Authority) -> None:
    running = start(asks=True)
    url = f"localhost:{running.port}"
    context = signed.client("app1")
    async with triton_aio.InferenceServerClient(url, ssl=True, ssl_context=context) as client:
        result = await client.infer("simple", simple_inputs(triton_aio))
        assert result.as_numpy("OUTPUT0")[0, 1] == 2
