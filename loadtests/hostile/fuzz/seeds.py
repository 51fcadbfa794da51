"""Writes the seeds whose form is in the code: run it where a format has changed, and commit what it wrote.

Seeds named good-... are accepted by their targets, bad-... refused; a test holds them to that. Those of
`settings` and `model` are written by hand, and so are inputs that once were faults.
Run: python -m loadtests.hostile.fuzz.seeds
"""

import gzip
import json
import struct
import zlib
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from tritonclient.grpc import service_pb2

from loadtests.harness.wire import post
from loadtests.hostile import h2wire
from loadtests.hostile.fuzz.frames import KEY, ROWS, SEAL
from loadtests.hostile.fuzz.playing import CORPUS
from loadtests.hostile.fuzz.served import IDENTITY, SIMPLE, TEXT
from serving import recording
from serving.cache.entries import entry_of
from serving.cache.values import encode
from serving.profile.curve import Origin, Point, Profile
from serving.profile.files import document
from serving.profile.profiles import ProfileSet
from serving.runtime.nodes.notes import (
    Chunk,
    Ended,
    Greet,
    Join,
    Offer,
    ParcelFile,
    Pong,
    Proof,
    Start,
    pack_note,
)
from serving.values.slice_specs import Share, SliceSpec
from serving.values.tensor import Tensor
from serving.worker.frames.batches import (
    LAST,
    BatchInput,
    EncodedOutput,
    pack_failed,
    pack_leave,
    pack_result,
    pack_run,
)
from serving.worker.frames.orders import (
    Loaded,
    LoadOrder,
    MeasuredBatches,
    MeasureOrder,
    Raised,
    pack_hello,
    pack_load,
    pack_load_failed,
    pack_loaded,
    pack_measure,
    pack_measured,
    pack_raised,
    pack_unload,
)
from serving.worker.frames.wire import FrameKind

Seeds = Iterator[tuple[str, bytes]]
INFER: Final = "/v2/models/{}/infer"
FOLDER: Final = Path("/models/of/any")  # the same on each machine
ROW: Final = struct.pack("<4i", 1, 2, 3, 4)
RPC_INFER: Final = b"/inference.GRPCInferenceService/ModelInfer"


def main() -> None:
    """Write them; files by other names stay as they are."""
    made = {
        "http": _http, "rest": _rest, "json": _json, "protobuf": _protobuf, "compression": _compression,
        "redis": _redis, "worker": _worker, "orders": _orders, "notes": _notes, "profile": _profile,
        "placement": _placement, "capacities": _capacities, "recording": _recording, "h2": _h2,
    }  # fmt: skip
    for target, seeds in made.items():
        (CORPUS / target).mkdir(parents=True, exist_ok=True)
        for name, data in seeds():
            (CORPUS / target / name).write_bytes(data)


def _tensor(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "datatype": "INT32", "shape": [1, 4], **more}


def _simple(**more: Any) -> bytes:
    inputs = [_tensor("INPUT0", data=[1, 2, 3, 4]), _tensor("INPUT1", data=[[5, 6, 7, 8]])]
    return json.dumps({"inputs": inputs, **more}).encode()


def _binary(**more: Any) -> tuple[bytes, int]:
    sized = {"parameters": {"binary_data_size": 16}}
    text = json.dumps({"inputs": [_tensor("INPUT0", **sized), _tensor("INPUT1", **sized)], **more}).encode()
    return text + ROW * 2, len(text)


def _http() -> Seeds:
    path = INFER.format("simple")
    good = post(path, _simple())
    body, length = _binary(parameters={"binary_data_output": True})
    stated = {"Inference-Header-Content-Length": length}
    yield "good-json", good
    yield "good-binary", post(path, body, stated)
    yield "good-gzip", post(path, gzip.compress(_simple(), mtime=0), {"Content-Encoding": "gzip"})
    yield (
        "good-pipelined",
        good + post("/v2/nowhere", b"abc") + good + b"GET /v2 HTTP/1.1\r\nHost: a\r\n\r\n" + good,
    )
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(each), each) for each in (_simple()[:20], _simple()[20:]))
    chunked = {"Content-Length": "", "Transfer-Encoding": "chunked"}
    head = post(path, b"", chunked).replace(b"Content-Length: \r\n", b"")
    yield "good-chunked", head + chunks + b"0\r\nTrailer: a\r\n\r\n" + good
    yield "good-expect", post(path, _simple(), {"Expect": "100-continue", "x-request-id": "7"})
    fields = {
        "x-timeout-ms": 500,
        "Cache-Control": "no-store",
        "Accept-Encoding": "gzip",
        "x-tenant": "default",
    }
    yield "good-fields", post(path, _simple(id="a"), fields)
    yield "good-upgrade", post(path, _simple(), {"Connection": "Upgrade", "Upgrade": "h2c"}) * 3
    old = good.replace(b"HTTP/1.1", b"HTTP/1.0").replace(b"Host: localhost\r\n", b"")
    yield "good-1.0", old
    yield "bad-host", good.replace(b"Host: localhost", b"Host: a, b")
    yield "bad-lengths", good.replace(b"Host:", b"Content-Length: 3\r\nHost:")
    yield (
        "bad-smuggled",
        head.replace(b"Transfer-Encoding", b"Content-Length: 5\r\nTransfer-Encoding") + chunks,
    )
    yield "bad-unfinished", good[:-9]
    yield "bad-connect", b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n"


def _rest() -> Seeds:
    yield from (
        (name, data.replace(b"[1, 4]", b"[1, 16]")) for name, data in _http() if name.startswith("bad")
    )
    inputs = [_tensor(name, shape=[1, 16], data=list(range(16))) for name in ("INPUT0", "INPUT1")]
    yield "good-infer", post(INFER.format("simple"), json.dumps({"inputs": inputs}).encode())
    for name, path in (
        ("status", "/v2/status"), ("metadata", "/v2/models/simple"), ("config", "/v2/models/simple/config"),
        ("stats", "/v2/models/stats"), ("health", "/v2/health/ready"), ("docs", "/openapi.json"),
        ("example", "/v2/models/simple/example"),
    ):  # fmt: skip
        yield f"good-{name}", f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode()
    yield "good-index", post("/v2/repository/index", b"{}")
    yield "bad-feedback", post("/v2/models/simple/feedback", b'{"query":"a","loss":1}')
    yield "bad-load", post("/v2/repository/models/nosuch/load", b'{"parameters":{}}')
    yield "bad-cache", b"DELETE /v2/cache/nosuch HTTP/1.1\r\nHost: a\r\n\r\n"
    put = post("/v2/placement", b'{"format":1}').replace(b"POST", b"PUT")
    yield "bad-placement", put


def _json() -> Seeds:
    body, length = _binary(id="a", outputs=[{"name": "OUTPUT0", "parameters": {"binary_data": True}}])
    yield "good-numbers", b"simple -\n" + _simple(id="7", parameters={"timeout": 50, "variant": "exact"})
    yield "good-binary", b"simple %d\n" % length + body
    mixed = [_tensor("INPUT0", data=[1] * 4), _tensor("INPUT1", parameters={"binary_data_size": 16})]
    text = json.dumps({"inputs": mixed}).encode()
    yield "good-mixed", b"simple %d\n" % len(text) + text + ROW
    for datatype, data in (
        ("BOOL", [True, False]), ("UINT64", [0, (1 << 64) - 1]), ("INT8", [-128, 127]), ("FP16", [1.5, -2]),
        ("BF16", [1e38, 0]), ("FP32", [0.1, 1e-40]), ("FP64", [1e308, 5]), ("BYTES", ["a", "\u00e9\u20ac"]),
    ):  # fmt: skip
        entry = {"name": "INPUT0", "datatype": datatype, "shape": [1, 2], "data": data}
        asked = {"inputs": [entry], "parameters": {"execute_delay_ms": 0}}
        yield f"good-{datatype.lower()}", b"identity -\n" + json.dumps(asked).encode()
    words = {"name": "TEXT", "datatype": "BYTES", "shape": [2, 1], "data": ["some words", ""]}
    yield "good-text", b"text -\n" + json.dumps({"inputs": [words]}).encode()
    yield "good-raw", b"text 0\nthe whole body"
    yield "bad-shape", b"simple -\n" + _simple().replace(b"[1, 4]", b"[2, 4]", 1)
    yield "bad-deep", b"simple -\n" + b'{"inputs":' + b"[" * 40 + b"]" * 40 + b"}"


def _message(name: str, *inputs: tuple[str, str, list[int]], **fields: Any) -> Any:
    request = service_pb2.ModelInferRequest(model_name=name, **fields)
    for tensor, datatype, shape in inputs:
        request.inputs.add(name=tensor, datatype=datatype, shape=shape)
    return request


def _protobuf() -> Seeds:
    pair = ("INPUT0", "INT32", [1, 4]), ("INPUT1", "INT32", [1, 4])
    request = _message("simple", *pair, id="7")
    request.raw_input_contents.extend([ROW, ROW])
    request.parameters["timeout"].int64_param = 5000
    yield "good-raw", request.SerializeToString(deterministic=True)
    request = _message("simple", *pair, model_version="1")
    for each in request.inputs:
        each.contents.int_contents.extend([1, -2, 3, 4])
    request.outputs.add(name="OUTPUT1")
    yield "good-typed", request.SerializeToString(deterministic=True)
    for datatype, field, values in (
        ("FP32", "fp32_contents", [0.5, 1.0]), ("FP64", "fp64_contents", [0.5, 1.0]),
        ("BOOL", "bool_contents", [True, False]),
        ("UINT64", "uint64_contents", [1, (1 << 64) - 1]), ("BYTES", "bytes_contents", [b"a", b"\xff"]),
    ):  # fmt: skip
        request = _message("identity", ("INPUT0", datatype, [1, 2]))
        getattr(request.inputs[0].contents, field).extend(values)
        yield f"good-{datatype.lower()}", request.SerializeToString(deterministic=True)
    request = _message("text", ("TEXT", "BYTES", [1, 1]))
    request.raw_input_contents.append(struct.pack("<I", 10) + b"some words")
    yield "good-text", request.SerializeToString(deterministic=True)
    yield "bad-cut", request.SerializeToString(deterministic=True)[:-3]
    yield "bad-empty", b""


def _compression() -> Seeds:
    packed = gzip.compress(_simple(), mtime=0)
    yield "good-gzip", b"gzip\n" + packed
    yield "good-members", b"gzip\n" + packed * 3
    yield "good-zlib", b"deflate\n" + zlib.compress(_simple())
    raw = zlib.compressobj(6, zlib.DEFLATED, -15)
    yield "good-raw", b"deflate\n" + raw.compress(_simple()) + raw.flush()
    yield "bad-bomb", b"gzip\n" + gzip.compress(bytes(4 << 20), mtime=0)
    yield "bad-members", b"gzip\n" + gzip.compress(b"", mtime=0) * 20
    yield "bad-cut", b"gzip\n" + packed[:-9]


def _redis() -> Seeds:
    pair = [Tensor(name, "INT32", (1, 4), ROW) for name in ("OUTPUT0", "OUTPUT1")]
    yield "good-simple", encode(KEY, entry_of("simple", "exact", pair, 1_500), 0, SEAL)
    texts = Tensor("OUTPUT0", "BYTES", (2, 1), b"\x01\x00\x00\x00a\x00\x00\x00\x00")
    yield "good-bytes", encode(KEY, entry_of("identity", "quick", [texts], 1_500), 0, SEAL)
    scores = Tensor("SCORES", "FP32", (2, 2), bytes(16))
    yield "good-scores", encode(KEY, entry_of("text", "exact", [scores], 1_500), 0, SEAL)
    yield (
        "bad-rows",
        encode(
            KEY, entry_of("text", "exact", [Tensor("SCORES", "FP32", (1000, 2), bytes(8000))], 0), 0, SEAL
        ),
    )
    yield "bad-none", encode(KEY, entry_of("simple", "exact", [], 0), 0, SEAL)


def _worker() -> Seeds:
    hello = pack_hello(False, {"numpy": "2"})
    loads = b"".join(pack_loaded(Loaded(replica, 1000, 1 << 20, 10)) for replica in (1, 2, 3, 4))
    outputs = [EncodedOutput("INT32", (4,), ROW * 2)] * 2
    simple = pack_result((7, 50, 1, 0, 2, 0), outputs, 64) + ROW * 4
    text = pack_result((9, 50, 1, 16, 2, 0), [EncodedOutput("FP32", (2,), bytes(16))], 16) + bytes(16)
    yield "good-answers", hello + loads + simple + text + pack_failed(8, "ValueError: no")
    yield "good-measured", hello + loads + pack_measured(MeasuredBatches(1, 1, 0, [100, 120], [500], 4096))
    raised = pack_raised(Raised("simple", "exact", "a batch", "ValueError", "no", "Traceback\n  x"))
    yield "good-raised", hello + raised + pack_load_failed(2, "no such file") + simple
    half = [EncodedOutput("INT32", (4,), ROW)] * 2
    row = pack_result((10, 50, 1, 1, 1, 0), half, 32, (), FrameKind.ROW) + ROW * 2
    last = pack_result((10, 5, 1, 1, 1, LAST), (), 0, (), FrameKind.ROW)
    end = pack_result((10, 60, 1, 0, 2, 0), (), 0)
    yield "good-rows", hello + loads + row * 2 + last + end
    yield "bad-row-after-end", hello + loads + end + row
    yield "bad-row-of-a-batch", hello + loads + row.replace((10).to_bytes(8, "little"), b"\7" + bytes(7), 1)
    yield "bad-answered-twice", hello + loads + simple * 2
    yield "bad-late-hello", loads + hello


def _orders() -> Seeds:
    orders = [LoadOrder.of(1, each.spec, "exact", "r") for each in (SIMPLE, IDENTITY, TEXT)]
    load = b"".join(pack_load(replace(each, folder=FOLDER)) for each in orders)
    inputs = [BatchInput("INT32", (4,), [ROW, ROW])] * 2
    run = pack_run((7, 1, 2, 1 << 20, 0), inputs, [32, 32], (("execute_delay_ms", 1),)) + ROW * 4
    yield "good-run", load + run * 2
    decoupled = replace(LoadOrder.of(4, ROWS.spec, "exact", "r"), folder=FOLDER)
    yield "good-leave", load + pack_load(decoupled) + run + pack_leave(7, 1) + pack_leave(6, 0)
    yield "good-measure", load + pack_measure(MeasureOrder(1, 8, 0, 10, 5000, 2)) + pack_unload(1)
    yield "bad-hello", pack_hello(False, {})


def _notes() -> Seeds:
    join = pack_note(Join("cpu-x", 8, 1 << 34, {"cuda:0": "gpu-x"}, "1"))
    files = (ParcelFile("folder", "model.py", 4, "ab" * 32),)
    start = pack_note(Start(3, "key", SliceSpec("s", (0, 1), device="cuda:0", part=Share("mps", 30.0))))
    yield "good-node", join + pack_note(Pong(1, 5)) + pack_note(Ended(3, "exited with 0"))
    offer = pack_note(Offer("cd" * 32, files)) + pack_note(Chunk("ab" * 32, True), 4) + b"code"
    yield "good-gateway", start + offer
    yield "good-greeting", pack_note(Greet("node", "box", "00")) + pack_note(Proof("11"))
    yield "bad-frame", join + pack_hello(False, {})
    yield "bad-note", join.replace(b'"cores"', b'"doors"')


def _profile() -> Seeds:
    points = tuple(
        Point(0, rows, 20.0 * rows, 30.0 * rows, 100, 40.0 * rows, 495.0) for rows in (1, 2, 4, 8, 64)
    )
    origin = Origin("2026-11-21T15:33:52+00:00", "penstock profile", (("cores", "2"),), "7" * 64, 4.9, 0.1)
    whole = Profile(
        "digits",
        "linear",
        "cpu-amd-epyc-f25m17",
        points,
        1000,
        1 << 20,
        "",
        Share.parse("cores:1"),
        7,
        origin,
    )
    yield (
        "good-one",
        document.render(ProfileSet("digits", "linear", "cpu-amd-epyc-f25m17", (whole,))).encode(),
    )
    yield "bad-schema", b'{"schema": 1}'


def _placement() -> Seeds:
    one = {"name": "a", "cores": 1, "on": [0], "threads": 1, "memory_bytes": 0, "price": 0.5, "spot": False}
    gpu = {"device": "cuda:0", "kind": "gpu-nvidia-h200", "share": "mig:2g.35gb*2", "rehearsed": False}
    load = {"requests": 10.0, "rows": 1.0, "capacity": 100.0}
    told = {"format": 2, "id": "1", "at": "2026-11-23", "digest": "0" * 64,
            "slices": [one, one | {"name": "b"}], "models": {"simple": ["a", "b"]},
            "loads": {"simple": load}}  # fmt: skip
    pair = [one | gpu | {"name": name, "instance": "i"} for name in ("a", "b")]
    earlier = [one | {"name": name, "cores": [0]} for name in ("a", "b")]
    for each in earlier:
        del each["on"]
    yield "good-two", json.dumps(told).encode()
    yield "good-processes", json.dumps(told | {"slices": pair}).encode()
    yield "good-earlier", json.dumps(told | {"format": 1, "slices": earlier}).encode()
    yield "bad-format", json.dumps(told | {"format": 9}).encode()


def _capacities() -> Seeds:
    points = (Point(0, 1, 100, 100, 3), Point(0, 8, 800, 800, 3))
    one = 9_900.0
    table = {
        "of": "simple exact",
        "one": one,
        "counts": [1, 2],
        "cvs": [1.0, 4.0],
        "rates": [[100.0, 210.0], [60.5, 150.0]],
    }
    yield "good-one", json.dumps({"KEY": table, "other": table}).encode()
    yield (
        "bad-other",
        json.dumps({"KEY": table | {"one": 1.0}, "points": [asdict(each) for each in points]}).encode(),
    )


def _recording() -> Seeds:
    flows = [
        recording.RecordedFlow("simple", "default", "", 25_000),
        recording.RecordedFlow("simple", "default", "exact", 0, "best"),
    ]
    records = b"".join(recording.RECORD.pack(at * 1000, 0, at % 2, 1 + at, 0) for at in range(20))
    whole = recording.header(1_700_000_000_000_000) + recording.flows_block(flows)
    yield (
        "good-two-flows",
        whole + recording.arrivals_block(0, records) + recording.arrivals_block(1 << 20, records),
    )
    yield "good-cut", (whole + recording.arrivals_block(0, records))[:-7]
    yield "bad-version", recording.header(0).replace(b"PENSTOCK\x02", b"PENSTOCK\x09")


def _h2() -> Seeds:
    request = _message("simple", ("INPUT0", "INT32", [1, 16]), ("INPUT1", "INT32", [1, 16]))
    request.raw_input_contents.extend([bytes(64), bytes(64)])
    call = h2wire.call(1, RPC_INFER) + h2wire.message(1, request.SerializeToString(deterministic=True))
    ack = h2wire.frame(h2wire.SETTINGS, h2wire.ACK, 0)
    yield "good-infer", ack + call
    yield "good-probes", ack + call + h2wire.call(3, b"/grpc.health.v1.Health/Check") + h2wire.message(3, b"")
    small = b"/inference.GRPCInferenceService/ModelMetadata"
    yield "good-metadata", ack + call + h2wire.call(5, small) + h2wire.message(5, b"\x0a\x06simple")
    stream = b"/inference.GRPCInferenceService/ModelStreamInfer"
    asked = request.SerializeToString(deterministic=True)
    several = h2wire.message(7, asked, end=False) * 2 + h2wire.message(7, asked)
    yield "good-stream", ack + call + h2wire.call(7, stream) + several
    yield "bad-path", ack + h2wire.call(1, b"/\xff", end=True)
    yield "bad-empty", ack + h2wire.call(1, RPC_INFER, end=True)
    yield "bad-part", ack + h2wire.call(1, RPC_INFER) + h2wire.message(1, b"part", stated=100)
    yield "bad-left", ack + h2wire.call(1, RPC_INFER) + h2wire.goaway(b"left")


if __name__ == "__main__":
    main()
