"""Small requests that are meant to cost much: they inflate, repeat, or ask for a large answer.

Each attack is made before the watch begins, so that making it disturbs no one. `said` is what came back.
"""

import gzip
import json
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial

import grpc

from loadtests.harness.gateway import Gateway
from loadtests.harness.wire import ask, post
from loadtests.hostile.abuse.hostile import OCTETS

PATIENCE_S = 60.0
INFER = "/inference.GRPCInferenceService/ModelInfer"
LOAD = "/inference.GRPCInferenceService/RepositoryModelLoad"
PATH = "/v2/models/identity/infer"
JSON_GZIP = {"Content-Encoding": "gzip"}
BODY_BYTES = 62_000_000
"""Below the default limit of 64 MB: what each attack inflates to."""


@dataclass(frozen=True, slots=True)
class Attack:
    """`play` sends it once and returns what came back: a status of HTTP or gRPC, and its first words. It
    raises Broken where a promise to the attacker was broken. `own`: starts a gateway for this attack alone,
    which serves `simple`. `refuses`: others may be refused meanwhile. `known`: it still harms others, and
    where that is written; it fails no run."""

    name: str
    wire_bytes: int
    play: Callable[[Gateway], str]
    own: Callable[[], AbstractContextManager[Gateway]] | None = None
    refuses: bool = False
    known: str = ""


def attacks() -> Iterator[Attack]:
    """Yield each made when it is asked for: together they hold a gigabyte."""
    yield from _over_rpc()
    yield from _over_rest()
    yield from _members()
    yield from _large_answers()


def _over_rpc() -> Iterator[Attack]:
    empty_texts = lengthed(8, b"") * (BODY_BYTES // 2 // 2)
    tensor = (
        lengthed(1, b"INPUT0")
        + lengthed(2, b"BYTES")
        + lengthed(3, b"\x01" + varint(BODY_BYTES // 4))
        + lengthed(5, empty_texts)
    )
    for name, field in (
        ("typed contents of 15 M empty texts", lengthed(5, tensor)),
        ("31 M empty inputs", b"\x2a\x00" * (BODY_BYTES // 2)),
        ("31 M empty raw contents", b"\x3a\x00" * (BODY_BYTES // 2)),
        ("20 M empty outputs asked for", b"\x32\x00" * (BODY_BYTES // 3)),
        ("9 M empty parameters", b"\x22\x04\x0a\x00\x12\x00" * (BODY_BYTES // 6)),
    ):
        message = lengthed(1, b"identity") + field
        packed = len(gzip.compress(message, 6))
        yield Attack(f"gRPC, gzip: {name}", packed, partial(_call, message, grpc.Compression.Gzip))
    message = lengthed(1, b"identity") + b"\x2a\x00" * (BODY_BYTES // 2)
    yield Attack("gRPC, plain: 31 M empty inputs", len(message), partial(_call, message, None))
    message = b"\x12\x06simple" + b"".join([b"\x1a\x09\x0a\x07%07d" % key for key in range(5_000_000)])
    load = partial(_call, message, None, method=LOAD)
    yield Attack("gRPC, plain: a load with 5 M parameters", len(message), load)


def _over_rest() -> Iterator[Attack]:
    texts = b'{"inputs":[{"name":"INPUT0","datatype":"BYTES","shape":[1,15000000],"data":['
    for name, body in (
        ("15 M empty texts", texts + b",".join([b'""'] * 15_000_000) + b"]}]}"),
        ("21 M empty objects as inputs", b'{"inputs":[' + b",".join([b"{}"] * 20_500_000) + b"]}"),
        ("31 M numbers as inputs", b'{"inputs":[' + b",".join([b"1"] * 31_000_000) + b"]}"),
        (
            "31 M numbers as a shape",
            b'{"inputs":[{"name":"INPUT0","shape":[' + b",".join([b"1"] * 30_900_000) + b"]}]}",
        ),
        ("one text of 60 MB", b'{"id":"' + b"x" * 60_000_000 + b'"}'),
    ):
        yield _rest(f"REST, gzip: {name}", gzip.compress(body, 6), JSON_GZIP)
    header: dict[str, object] = {"name": "INPUT0", "datatype": "BYTES", "shape": [1, 15_500_000]}
    header["parameters"] = {"binary_data_size": BODY_BYTES}
    text = json.dumps({"inputs": [header]}).encode()
    stated = OCTETS | JSON_GZIP | {"Inference-Header-Content-Length": str(len(text))}
    yield _rest("REST, gzip: 15 M empty texts as binary", gzip.compress(text + bytes(BODY_BYTES)), stated)


def _members() -> Iterator[Attack]:
    member, stream = gzip.compress(b""), b"\x03\x00"
    for count in (40_000, 200_000):
        yield _rest(f"REST, gzip: {count:,} empty members", member * count, JSON_GZIP)
    deflate = {"Content-Encoding": "deflate"}
    yield _rest("REST, deflate: 200,000 empty streams", stream * 200_000, deflate)
    framed = zlib.compress(b"")
    yield _rest("REST, deflate: 200,000 empty frames", framed * 200_000, deflate)


def _large_answers() -> Iterator[Attack]:
    for name, datatype, size, fields in (
        ("60 MB of INT8 in, JSON out", "INT8", 60_000_000, {"Content-Encoding": "gzip"}),
        ("4 MB of FP32 in, JSON out", "FP32", 4_000_000, {}),
        ("4 MB of FP32 in, gzip JSON out", "FP32", 4_000_000, {"Accept-Encoding": "gzip"}),
        ("60 MB of FP32 in, binary out", "FP32", 60_000_000, {}),
        ("60 MB of FP32 in, gzip binary out", "FP32", 60_000_000, {"Accept-Encoding": "gzip"}),
    ):
        columns = size // (1 if datatype == "INT8" else 4)
        entry: dict[str, object] = {"name": "INPUT0", "datatype": datatype, "shape": [1, columns]}
        entry["parameters"] = {"binary_data_size": size}
        document: dict[str, object] = {"inputs": [entry]}
        if "binary out" in name:
            document["parameters"] = {"binary_data_output": True}
        text = json.dumps(document).encode()
        body = text + bytes(size)
        if "Content-Encoding" in fields:
            body = gzip.compress(body, 6)
        stated = OCTETS | fields | {"Inference-Header-Content-Length": str(len(text))}
        yield _rest(f"REST: {name}", body, stated)
    numbers = json.dumps([[1] * 500_000]).encode()
    question = b'{"inputs":[{"name":"INPUT0","datatype":"INT32","shape":[1,500000],"data":' + numbers + b"}]}"
    yield _rest("REST: half a million numbers each way, as allowed", question, {})
    objects = b"[" + b",".join([b"{}"] * 349_000) + b"]"
    for path in ("/v2/models/simple/feedback", "/v2/repository/index"):
        yield Attack(
            f"REST: 349,000 empty objects to {path}", len(objects), partial(_post, objects, {}, path=path)
        )


def _rest(name: str, body: bytes, fields: dict[str, str]) -> Attack:
    return Attack(name, len(body), partial(_post, body, fields))


def _post(body: bytes, fields: dict[str, str], gateway: Gateway, path: str = PATH) -> str:
    answer = ask(gateway, post(path, body, fields), PATIENCE_S)
    return f"{answer.status} {answer.body[:90].decode(errors='replace')}"


def _call(message: bytes, compression: grpc.Compression | None, gateway: Gateway, method: str = INFER) -> str:
    with grpc.insecure_channel(f"{gateway.host}:{gateway.rpc_port}") as channel:
        infer = channel.unary_unary(method, bytes, bytes)
        try:
            return f"OK, {len(infer(message, timeout=PATIENCE_S, compression=compression))} bytes"
        except grpc.RpcError as error:
            return f"{error.code().name} {error.details()[:90]}"


def lengthed(number: int, content: bytes) -> bytes:
    """Return a length-delimited field of a protobuf message."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)
