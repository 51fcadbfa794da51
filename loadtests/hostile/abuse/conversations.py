"""Hostile clients that need more than one message: pipelining, slow readers, half-open connections."""

import contextlib
import json
import socket
import struct
import threading
import time
from collections.abc import Iterator

from loadtests.harness.gateway import Gateway
from loadtests.harness.wire import ask, post, read_answer
from loadtests.hostile.abuse.hostile import CLOSED, PATH, PATIENCE_S, Case, good_body, is_right, said

PIPELINED = 50
CROWD = 200  # connections that misbehave at once
LARGE_ROWS, LARGE_COLUMNS = 16, 16_384
SLOW_ANSWERS = 60  # of 1 MiB each, far above any write buffer


def cases() -> Iterator[Case]:
    yield Case("one byte at a time", _drip, (200,))
    yield Case(f"{PIPELINED} pipelined", _pipelined, (200,))
    yield Case("pipelined: good, bad, good", _pipelined_around_an_error, (200,))
    yield Case("client closes its half, then reads", _half_close, (200,))
    yield Case("body never finished, client closes its half", _cut_short, (400, CLOSED))
    yield Case("chunked body never finished", _cut_chunked, (400, CLOSED))
    yield Case(f"{CROWD} half-sent requests held open", _half_open_crowd, (200,))
    yield Case(f"{CROWD} silent connections held open", _silent_crowd, (200,))
    yield Case(f"{CROWD} resets in the middle of a body", _resets, (200,))
    yield Case(f"{CROWD} clients gone before their answer", _gone_early, (200,))
    yield Case(f"slow reader of {SLOW_ANSWERS} MB", _slow_reader, (200,))
    yield Case(f"reader that never reads {SLOW_ANSWERS} MB", _never_reader, (200,))


def _connect(gateway: Gateway) -> socket.socket:
    return socket.create_connection((gateway.host, gateway.rest_port), PATIENCE_S)


def good_answer(gateway: Gateway) -> tuple[int, str]:
    """Return what a good request gets now."""
    started_s = time.monotonic()
    answer = ask(gateway, post(PATH, good_body()), PATIENCE_S)
    took = f"a good request took {(time.monotonic() - started_s) * 1e3:.0f} ms"
    return (200, took) if is_right(answer) else (answer.status, answer.body.decode(errors="replace"))


def _drip(gateway: Gateway) -> tuple[int, str]:
    with _connect(gateway) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in post(PATH, good_body()):
            connection.sendall(bytes([byte]))
        return said(connection)


def _pipelined(gateway: Gateway) -> tuple[int, str]:
    """Send PIPELINED requests at once and check that their answers come in order; rows tell which is
    which."""
    rows = [1 + number % 8 for number in range(PIPELINED)]
    with _connect(gateway) as connection, connection.makefile("rb") as stream:
        connection.sendall(b"".join(post(PATH, good_body(count)) for count in rows))
        for number, count in enumerate(rows):
            answer = read_answer(stream)
            if answer is None or not is_right(answer):
                return 999, f"answer {number} of {PIPELINED} is missing or wrong"
            if json.loads(answer.body)["outputs"][0]["shape"] != [count, 16]:
                return 999, f"answer {number} belongs to another request"
    return 200, "all right, in order"


def _pipelined_around_an_error(gateway: Gateway) -> tuple[int, str]:
    with _connect(gateway) as connection, connection.makefile("rb") as stream:
        connection.sendall(post(PATH, good_body()) + post(PATH, b"{") + post(PATH, good_body()))
        answers = [read_answer(stream) for _ in range(3)]
    statuses = [answer.status if answer else CLOSED for answer in answers]
    return (200, "right, 400, right") if statuses == [200, 400, 200] else (999, f"statuses {statuses}")


def _half_close(gateway: Gateway) -> tuple[int, str]:
    with _connect(gateway) as connection:
        connection.sendall(post(PATH, good_body()))
        connection.shutdown(socket.SHUT_WR)
        return said(connection)


def _cut_short(gateway: Gateway) -> tuple[int, str]:
    with _connect(gateway) as connection:
        connection.sendall(post(PATH, good_body())[:-10])
        connection.shutdown(socket.SHUT_WR)
        return said(connection)


def _cut_chunked(gateway: Gateway) -> tuple[int, str]:
    head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab"
    with _connect(gateway) as connection:
        connection.sendall(head.encode())
        connection.shutdown(socket.SHUT_WR)
        return said(connection)


def _half_open_crowd(gateway: Gateway) -> tuple[int, str]:
    request = post(PATH, good_body())
    with contextlib.ExitStack() as held:
        for number in range(CROWD):
            held.enter_context(_connect(gateway)).sendall(request[: 1 + number * (len(request) - 1) // CROWD])
        return good_answer(gateway)


def _silent_crowd(gateway: Gateway) -> tuple[int, str]:
    with contextlib.ExitStack() as held:
        for _ in range(CROWD):
            held.enter_context(_connect(gateway))
        return good_answer(gateway)


def _resets(gateway: Gateway) -> tuple[int, str]:
    for _ in range(CROWD):
        with _connect(gateway) as connection:
            connection.sendall(post(PATH, good_body())[:-10])
            _reset(connection)
    return good_answer(gateway)


def _gone_early(gateway: Gateway) -> tuple[int, str]:
    for _ in range(CROWD):
        with _connect(gateway) as connection:
            connection.sendall(post(PATH, good_body()))
            _reset(connection)
    return good_answer(gateway)


def _reset(connection: socket.socket) -> None:
    """Make closing the connection send RST: no lingering (socket(7), SO_LINGER with a timeout of zero)."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _slow_reader(gateway: Gateway) -> tuple[int, str]:
    """Send many requests, read nothing until a good request of another client was answered, then read
    everything."""
    with _connect(gateway) as connection, connection.makefile("rb") as stream:
        sender = threading.Thread(target=connection.sendall, args=(_large_request() * SLOW_ANSWERS,))
        sender.start()
        good = good_answer(gateway)
        answers = [read_answer(stream) for _ in range(SLOW_ANSWERS)]
        sender.join()
    right = sum(answer is not None and answer.status == 200 for answer in answers)
    return good if right == SLOW_ANSWERS else (999, f"{right} of {SLOW_ANSWERS} answers are right")


def _never_reader(gateway: Gateway) -> tuple[int, str]:
    """Send until the gateway stops reading, which it must; else all that it holds for this client would
    grow."""
    with _connect(gateway) as connection:
        connection.settimeout(1.0)
        with contextlib.suppress(TimeoutError):
            connection.sendall(_large_request() * SLOW_ANSWERS)
            return 999, f"the gateway took in {SLOW_ANSWERS} requests while nobody read its answers"
        return good_answer(gateway)


def _large_request() -> bytes:
    size = LARGE_ROWS * LARGE_COLUMNS * 4
    shape = [LARGE_ROWS, LARGE_COLUMNS]
    tensor = {"name": "INPUT0", "datatype": "FP32", "shape": shape, "parameters": {"binary_data_size": size}}
    asked = {"inputs": [tensor], "parameters": {"binary_data_output": True}}
    header = json.dumps(asked).encode()
    stated = {"Inference-Header-Content-Length": len(header)}
    return post("/v2/models/identity/infer", header + bytes(size), stated)
