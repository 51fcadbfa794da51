"""Bodies of inference requests: JSON with and without binary tensors, protobuf messages, compression.

What is accepted must say the same once its tensors are made binary, and must be answerable.
"""

import contextlib
import gzip
import zlib
from collections.abc import Iterator
from typing import Final

from loadtests.hostile.fuzz.playing import Fault, Target, words_of
from loadtests.hostile.fuzz.served import LIMITS, MODELS, SIMPLE, outputs_of
from router.tensors import proto, rest
from router.tensors.messages import SMALL_BYTES, count_contents, outline
from router.tensors.parts.compression import CODINGS, FREE_BYTES, inflate
from router.tensors.parts.errors import RequestError
from router.tensors.request.decoded import Decoded
from serving.ports import Reply
from serving.values.specs import ServedModel
from serving.values.vocabulary import COMPLETED, TOO_LARGE

JSON_WORDS: Final = words_of("json.dict")
PROTOBUF_WORDS: Final = words_of("protobuf.dict")
CODING_WORDS: Final = (
    b"gzip\n", b"deflate\n", gzip.compress(b"", mtime=0), b"\x03\x00", b"\x78\x9c", b"\x1f\x8b\x08",
    bytes(64),
    b"\x00\x00\x00\xff\xff", gzip.compress(bytes(100_000), mtime=0),
)  # fmt: skip


def play_json(data: bytes) -> bool:
    """Return a first line of the model and the stated length of the JSON (none: -), then the body."""
    model, length, body = _split(data)
    try:
        decoded = rest.decode(body, length, model, LIMITS)
    except RequestError:
        return False
    reply = _reply(decoded)
    with contextlib.suppress(RequestError):  # what cannot be written as JSON
        rest.encode(decoded, reply)
    if length == 0:
        return True
    try:
        again = rest.decode(*rest.unfold(body, length, model, LIMITS), model, LIMITS)
    except RequestError as error:
        if error.outcome is TOO_LARGE:
            return True
        raise
    _same(decoded, again)
    return True


def _split(data: bytes) -> tuple[ServedModel, int | None, bytes]:
    line, _, body = data.partition(b"\n")
    name, _, length = line.partition(b" ")
    model = MODELS.get(name.decode(errors="replace"))
    if model is None:
        return SIMPLE, None, data
    return model, int(length) if length.isdigit() and len(length) <= 18 else None, body


def play_protobuf(data: bytes) -> bool:
    """Return a ModelInferRequest as the gRPC edge reads it."""
    try:
        found = outline(data, LIMITS)
        model = MODELS.get(found.name)
        if model is None:
            return False
        count_contents(data, found, LIMITS)
        if found.besides > SMALL_BYTES and not found.raw:
            data = proto.unfold(data, model, LIMITS)
            found = outline(data, LIMITS)
        proto.check_besides(found)
        decoded = _decoded(data, model)
    except RequestError:
        return False
    proto.encode(decoded, _reply(decoded))
    _same(decoded, _decoded(proto.unfold(data, model, LIMITS), model))
    return True


def _decoded(data: bytes, model: ServedModel) -> Decoded:
    request, apart = proto.parse(data, outline(data, LIMITS))
    return proto.decode(request, model, LIMITS, apart)


def play_compression(data: bytes) -> bool:
    """Return a first line of the coding, then the body."""
    coding, _, body = data.partition(b"\n")
    if coding not in CODINGS:
        return False
    try:
        found = inflate(body, coding, LIMITS)
    except RequestError:
        return False
    if len(found) > min(LIMITS.body_bytes, max(FREE_BYTES, LIMITS.inflation * len(body))):
        raise Fault(f"{len(body)} bytes inflate to {len(found)}")
    return True


def _compressed(data: bytes) -> bytes:
    """Return the input with its body compressed as it says; for an odd length a second member follows."""
    coding, _, body = data.partition(b"\n")
    packed = gzip.compress(body, 1, mtime=0) if coding != b"deflate" else zlib.compress(body, 1)
    return (coding if coding in CODINGS else b"gzip") + b"\n" + packed * (1 + len(body) % 2)


def _reply(decoded: Decoded) -> Reply:
    reply = Reply(COMPLETED)
    reply.outputs = outputs_of(decoded.call)
    return reply


def _same(one: Decoded, other: Decoded) -> None:
    """Raise Fault unless both ask for the same of the same tensors."""
    for a, b in zip(one.call.inputs, other.call.inputs, strict=True):
        if (a.name, a.datatype, a.shape, bytes(a.data)) != (b.name, b.datatype, b.shape, bytes(b.data)):
            raise Fault(f"the tensor {a.name!r} is another once it is made binary")
    if one.call.rows != other.call.rows or one.call.size != other.call.size or one.id != other.id:
        raise Fault("the request is another once its tensors are made binary")


@contextlib.contextmanager
def json_target() -> Iterator[Target]:
    yield Target("json", play_json, JSON_WORDS)


@contextlib.contextmanager
def protobuf_target() -> Iterator[Target]:
    yield Target("protobuf", play_protobuf, PROTOBUF_WORDS)


@contextlib.contextmanager
def compression_target() -> Iterator[Target]:
    yield Target("compression", play_compression, CODING_WORDS, mend=_compressed)
