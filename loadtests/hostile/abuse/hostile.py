"""Hostile and broken requests, each with the statuses that are a good answer to it.

Requests that state a falsehood in their bytes; what needs a conversation is in `conversations.py`.
"""

import gzip
import json
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from select import select

from loadtests.harness.gateway import Gateway
from loadtests.harness.wire import Answer, post, read_answer

PATH = "/v2/models/simple/infer"
OCTETS = {"Content-Type": "application/octet-stream"}
PATIENCE_S = 20.0
CLOSED = 0
"""In place of a status: the connection was closed without an answer."""

Play = Callable[[Gateway], tuple[int, str]]


@dataclass(frozen=True, slots=True)
class Case:
    """`play` returns the status that came back (or CLOSED) and what was said."""

    name: str
    play: Play
    expected: tuple[int, ...]


def good_body(rows: int = 1) -> bytes:
    return json.dumps({"inputs": [tensor("INPUT0", rows), tensor("INPUT1", rows)]}).encode()


def tensor(name: object, rows: int = 1, **changes: object) -> dict[str, object]:
    """Return an input of `simple`: 0 to 15 in every row."""
    data = list(range(16)) * rows
    return {"name": name, "datatype": "INT32", "shape": [rows, 16], "data": data} | changes


def is_right(answer: Answer | None) -> bool:
    """Return whether it is the answer to `good_body`: the sum doubles every element, the difference is
    zero."""
    if answer is None or answer.status != 200:
        return False
    outputs = {one["name"]: one["data"] for one in json.loads(answer.body)["outputs"]}
    rows = len(outputs["OUTPUT1"]) // 16
    return outputs == {"OUTPUT0": list(range(0, 32, 2)) * rows, "OUTPUT1": [0] * 16 * rows}


def exchange(request: bytes, gateway: Gateway) -> tuple[int, str]:
    """Send until all is sent or something comes back, then read one answer."""
    with socket.create_connection((gateway.host, gateway.rest_port), PATIENCE_S) as connection:
        rest = memoryview(request)
        try:
            while rest:
                readable, writable, _ = select([connection], [connection], [], PATIENCE_S)
                if readable or not writable:
                    break
                rest = rest[connection.send(rest[: 1 << 16]) :]
        except (BrokenPipeError, ConnectionResetError):
            pass  # it closed early; what it said before may still be there to read
        return said(connection)


def said(connection: socket.socket) -> tuple[int, str]:
    """Return the next answer's status and error, a wrong 200 being 999."""
    try:
        with connection.makefile("rb") as stream:
            answer = read_answer(stream)
    except ConnectionResetError:
        return CLOSED, "reset"
    except TimeoutError:
        return CLOSED, f"nothing came in {PATIENCE_S:.0f} s, and it was not closed"
    if answer is None:
        return CLOSED, "closed"
    if answer.status == 200:
        return (200, "right") if is_right(answer) else (999, "wrong answer")
    return answer.status, answer.body.decode(errors="replace")


SHAPES: tuple[object, ...] = (
    [16], [1, 15], [1, 17], [0, 16], [-1, 16], [1, 16, 1], [2, 16], [1 << 62, 16], [1, 1 << 64], [1.5, 16],
    [True, 16], "x", None,
)  # fmt: skip
DATA: tuple[object, ...] = (
    [1] * 15, [1] * 17, [[1] * 8] * 2 + [1], ["1"] * 16, [1.5] * 16, [True] * 16, [1 << 31] * 16, [None] * 16,
    {}, "x", None,
)  # fmt: skip
ASKED: tuple[dict[str, object], ...] = (
    {"outputs": [{"name": "OUTPUT9"}]},
    {"outputs": [{"name": "OUTPUT0"}] * 2},
    {"outputs": [{}]},
    {"outputs": 3},
    {"parameters": {"variant": "nonesuch"}},
    {"parameters": {"timeout": -1}},
    {"parameters": {"timeout": "soon"}},
    {"parameters": {"binary_data_output": 3}},
    {"parameters": 7},
    {"id": {}},
)
BINARY_SIZES: tuple[tuple[object, int], ...] = (
    (64, 127), (64, 129), (64, 0), (63, 126), (-64, 128), (1 << 62, 128), ("64", 128), (0, 0), (None, 128),
)  # fmt: skip
"""What `binary_data_size` states for each of two inputs, and the bytes that follow; 64 and 128 is right."""


def cases() -> Iterator[Case]:
    yield Case("a good request", partial(exchange, post(PATH, good_body())), (200,))
    for name, body in (*_broken_bodies(), *_broken_tensors()):
        yield Case(name, partial(exchange, post(PATH, body)), (400, 413))
    for name, body, header_bytes in _broken_binaries():
        headers = OCTETS | {"Inference-Header-Content-Length": header_bytes}
        yield Case(name, partial(exchange, post(PATH, body, headers)), (400, 413))
    for name, request, expected in _broken_http():
        yield Case(name, partial(exchange, request), expected)
    for name, request, expected in _compressed():
        yield Case(name, partial(exchange, request), expected)


def _broken_bodies() -> Iterator[tuple[str, bytes]]:
    yield "empty body", b""
    yield "malformed JSON", b'{"inputs": [}'
    yield "truncated JSON", good_body()[:-20]
    yield "JSON, then more", good_body() + b"{}"
    yield "not UTF-8", good_body().replace(b"INPUT0", b"\xff\xfe\x80")
    yield "not JSON at all", bytes(range(256)) * 4
    for text in ("null", "[]", '"x"', "1e999", "{}", '{"inputs": []}', '{"inputs": 3}', '{"inputs": [null]}'):
        yield f"body {text}", text.encode()
    yield "100,000-deep array", b"[" * 100_000 + b"]" * 100_000
    yield "100,000-deep object", b'{"a":' * 100_000 + b"1" + b"}" * 100_000
    yield (
        "100,000-deep data",
        _json(tensor("INPUT0", data=0)).replace(b'"data": 0', b'"data":' + b"[" * 100_000),
    )
    yield (
        "1,000-deep data, closed",
        _json(tensor("INPUT0", data=[])).replace(b"[]", b"[" * 1000 + b"]" * 1000),
    )


def _broken_tensors() -> Iterator[tuple[str, bytes]]:
    for shape in SHAPES:
        yield f"shape {json.dumps(shape)}", _json(tensor("INPUT0", shape=shape), tensor("INPUT1"))
    for datatype in ("FP32", "INT64", "BYTES", "INT33", "", 7, None):
        yield f"datatype {json.dumps(datatype)}", _json(tensor("INPUT0", datatype=datatype), tensor("INPUT1"))
    for name in ("INPUT2", "", 5, None, "x" * 100_000):
        yield f"name {json.dumps(name)[:12]}", _json(tensor(name), tensor("INPUT1"))
    yield "an input missing", _json(tensor("INPUT0"))
    yield "an input twice", _json(tensor("INPUT0"), tensor("INPUT1"), tensor("INPUT0"))
    yield "an input too many", _json(tensor("INPUT0"), tensor("INPUT1"), tensor("INPUT2"))
    yield "10,000 inputs", _json(*[tensor("INPUT0", data=[])] * 10_000)
    yield "rows that differ", _json(tensor("INPUT0", 2), tensor("INPUT1", 1))
    for data in DATA:
        yield f"data {json.dumps(data)[:16]}", _json(tensor("INPUT0", data=data), tensor("INPUT1"))
    for asked in ASKED:
        body = {"inputs": [tensor("INPUT0"), tensor("INPUT1")], **asked}
        yield json.dumps(asked)[1:40], json.dumps(body).encode()


def _json(*inputs: object) -> bytes:
    return json.dumps({"inputs": inputs}).encode()


def _broken_binaries() -> Iterator[tuple[str, bytes, object]]:
    """Yield names and bodies with the length that is stated for their JSON; 128 bytes of tensors would be
    right."""
    for size, tail in BINARY_SIZES:
        header = _binary_header(size)
        yield f"binary_data_size {size!r}, {tail} bytes", header + bytes(tail), len(header)
    header = _binary_header(64)
    for stated in (-1, "x", "", 1 << 62, 10**30, len(header) - 1, len(header) + 1, len(header) + 129, 1):
        yield f"JSON length stated {str(stated)[:8]}", header + bytes(128), stated


def _binary_header(size: object) -> bytes:
    inputs = [
        {"name": name, "datatype": "INT32", "shape": [1, 16], "parameters": {"binary_data_size": size}}
        for name in ("INPUT0", "INPUT1")
    ]
    return json.dumps({"inputs": inputs}).encode()


def _broken_http() -> Iterator[tuple[str, bytes, tuple[int, ...]]]:
    body = good_body()
    refused = (400, 413, 431, CLOSED)
    yield "unknown model", post("/v2/models/nonesuch/infer", body), (404,)
    yield "unknown path", post("/v2/nowhere", body), (404,)
    yield "GET where POST belongs", b"GET " + PATH.encode() + b" HTTP/1.1\r\nHost: x\r\n\r\n", (405,)
    yield "10 MB in one header", post(PATH, body, {"X-Big": "x" * 10_000_000}), (431, 400)
    yield (
        "10 MB in 1,000 headers",
        post(PATH, body, {f"X-{n}": "x" * 10_000 for n in range(1000)}),
        (431, 400),
    )
    yield "10,000 small headers", post(PATH, body, {f"X-{n}": "x" for n in range(10_000)}), (431, 400)
    yield "10 MB of URL", post("/" + "x" * 10_000_000, body), (414, 431, 400)
    yield "a body of 10 GB announced", post(PATH, body, {"Content-Length": 10**10}), (413,)
    for stated in (-5, "x", "5, 6", 1 << 64, "0x20", ""):
        yield f"Content-Length {str(stated)[:8]}", post(PATH, body, {"Content-Length": stated}), refused
    twice = post(PATH, body).replace(b"Host:", b"Content-Length: 3\r\nHost:")
    yield "two Content-Lengths", twice, refused
    both = post(PATH, b"0\r\n\r\n", {"Content-Length": 5, "Transfer-Encoding": "chunked"})
    yield "length and chunked at once", both, refused
    yield "Content-Length too short", post(PATH, body, {"Content-Length": 20}), (400,)
    chunked = {"Content-Length": "", "Transfer-Encoding": "chunked"}
    for name, chunks, expected in (
        ("chunked, right", b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n", (200,)),
        ("chunk size not a number", b"zz\r\nabc\r\n0\r\n\r\n", refused),
        ("chunk size negative", b"-3\r\nabc\r\n0\r\n\r\n", refused),
        ("chunk longer than stated", b"3\r\nabcdef\r\n0\r\n\r\n", refused),
        ("chunk of 2^64 announced", b"10000000000000000\r\nabc", refused),
    ):
        yield name, post(PATH, chunks, chunked).replace(b"Content-Length: \r\n", b""), expected
    yield "Expect: 100-continue", post(PATH, body, {"Expect": "100-continue"}), (200,)
    yield "HTTP/9.9", post(PATH, body).replace(b"HTTP/1.1", b"HTTP/9.9"), (400, 505, CLOSED)
    yield "a TLS greeting", bytes.fromhex("1603010200010001fc0303") + bytes(500), (400, CLOSED)
    yield "1 MB of zeros", bytes(1_000_000), (400, CLOSED)
    yield "1 MB without an end of line", b"P" * 1_000_000, (400, 431, CLOSED)


def _compressed() -> Iterator[tuple[str, bytes, tuple[int, ...]]]:
    body = good_body()
    packed = gzip.compress(body)
    bomb = gzip.compress(bytes(200_000_000), 9)
    yield "gzip, right", post(PATH, packed, {"Content-Encoding": "gzip"}), (200,)
    yield "gzip, truncated", post(PATH, packed[:-9], {"Content-Encoding": "gzip"}), (400,)
    yield (
        "gzip, damaged",
        post(PATH, packed[:20] + bytes(20) + packed[40:], {"Content-Encoding": "gzip"}),
        (400,),
    )
    yield "gzip that is none", post(PATH, body, {"Content-Encoding": "gzip"}), (400,)
    yield "unknown encoding", post(PATH, body, {"Content-Encoding": "br"}), (400, 415)
    yield "200 MB of zeros in gzip", post(PATH, bomb, {"Content-Encoding": "gzip"}), (413,)
