"""What a worker sends, and what it is sent: a worker gone mad must cost its slice alone, and no other byte.

And answers out of Redis, which are held against the model before a client gets them.
"""

import asyncio
import contextlib
import hmac
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from math import prod
from typing import Any, Final  # Any: what unpacks a frame returns what that kind says

from loadtests.hostile.fuzz.http import Line
from loadtests.hostile.fuzz.playing import Fault, Target
from loadtests.hostile.fuzz.served import IDENTITY, MODELS, SIMPLE, TEXT
from router.tensors import rest
from router.tensors.parts.errors import RequestError
from router.tensors.request.decoded import Decoded, RequestedOutput
from serving.cache.entries import KeptAnswer
from serving.cache.soundness import fault_of
from serving.cache.values import decode, seal_of
from serving.ports import Call, Reply
from serving.runtime.nodes.notes import NOTE_NAMES, unpack_note
from serving.runtime.workers.link import Link
from serving.values.tensor import DATATYPES, ITEM_BYTES
from serving.values.vocabulary import COMPLETED
from serving.worker.frames.batches import BatchInput, BatchResult, unpack_leave, unpack_run
from serving.worker.frames.orders import Loaded, MeasuredBatches, unpack_load, unpack_measure, unpack_unload
from serving.worker.frames.wire import HEADER, MAGIC, VERSION, FrameBuffer, FrameKind, ProtocolError

ROWS: Final = replace(SIMPLE, spec=replace(SIMPLE.spec, name="rows", decoupled=True))
"""SIMPLE with any number of answers."""
BATCHES: Final = {7: (1, SIMPLE), 8: (2, IDENTITY), 9: (3, TEXT), 10: (4, ROWS)}
"""What the worker has been given: by batch its replica and model, of two rows each."""
KEY: Final = bytes(range(32))
SEAL: Final = seal_of("")
_BODY_AT = 37  # after magic and signature

FRAME_WORDS: Final = (
    MAGIC, *(HEADER.pack(MAGIC, VERSION, kind, 0, 0) for kind in FrameKind),
    HEADER.pack(MAGIC, VERSION, 7, 48, 64), HEADER.pack(MAGIC, VERSION, 7, 16 << 20, 1 << 30),
    HEADER.pack(MAGIC, VERSION, 1, 1 << 20, 0),
    *(struct.pack("<BBxxxxxxQ", code, 1, 32) for code in range(len(DATATYPES))),
    struct.pack("<BBxxxxxxQ", 10, 255, 0) + b"\xff" * 255 * 8, struct.pack("<Q", 7), struct.pack("<Q", 8),
    b'{"replica":1}', b'"replica":', b'"load_us":', b'"versions":', b'"latencies_us":', b"[]", b"{}", b"null",
    b'"differs":""', b'"disturbed":true',
)  # fmt: skip
ANSWER_WORDS: Final = (
    b"PNST\x02", b"simple", b"exact", b"OUTPUT0", b"OUTPUT1", b"SCORES",
    *(struct.pack("<HBBQ", 7, code, 2, 32) for code in range(len(DATATYPES))), struct.pack("<2Q", 2, 4),
    struct.pack("<2Q", 1 << 32, 1 << 32), struct.pack("<HBBQ", 0, 0, 255, 0) + bytes(255 * 8),
)  # fmt: skip


class Heard:
    """A `LinkEvents` that counts: each batch has one end at most, its rows answer before, the worker has one
    end."""

    def __init__(self) -> None:
        self.ended: list[int] = []
        self.lost = 0

    def worker_ready(self, link: Link) -> None: ...

    def replica_loaded(self, link: Link, loaded: Loaded) -> None: ...

    def replica_failed(self, link: Link, replica: int, message: str) -> None: ...

    def replica_unloaded(self, link: Link, replica: int) -> None: ...

    def batch_done(self, link: Link, result: BatchResult) -> None:  # noqa: ARG002
        self.ended.append(result.batch_id)
        for output in result.outputs:
            if len(output.rows(0, 1)) + len(output.rows(1, 1)) != len(output.data):
                raise Fault("the rows of an answer are not all of it")

    def batch_failed(self, link: Link, batch_id: int, message: str, bad_input: bool = False) -> None:  # noqa: ARG002
        self.ended.append(batch_id)

    def row_answered(self, answer: BatchResult) -> None:
        """Hear an answer of a row."""
        if answer.batch_id in self.ended or answer.size >= 2:
            raise Fault(f"row {answer.size} of batch {answer.batch_id} has answered, which it cannot")

    def measured(self, link: Link, found: MeasuredBatches) -> None: ...

    def worker_lost(self, link: Link, reason: str) -> None:  # noqa: ARG002
        self.lost += 1


async def _hear(data: bytes) -> bool:
    """Return a worker's stream, as the gateway hears it."""
    heard = Heard()
    link = Link("cpu", heard)
    link.on_row = heard.row_answered
    line = _Closed(link)
    link.connection_made(line)
    for batch_id, (replica, model) in BATCHES.items():
        link.load(replica, model.spec, "exact")
        inputs = [BatchInput("INT32", (4,), [bytes(32)]) for _ in model.spec.inputs]
        link.run(batch_id, replica, 2, inputs, ())
    rest = memoryview(data)
    while rest and not line.closed:
        space = link.get_buffer(-1)
        count = min(len(space), len(rest), 1 + data[0] * 64)
        space[:count] = rest[:count]
        link.buffer_updated(count)
        rest = rest[count:]
    accepted = not line.closed
    line.abort()
    if heard.lost != 1 or len(set(heard.ended)) != len(heard.ended) or not BATCHES.keys() >= set(heard.ended):
        raise Fault(f"a worker was lost {heard.lost} times; batches that ended: {heard.ended}")
    return accepted


class _Closed(Line):
    """Tells its link when it is closed."""

    def __init__(self, link: Link) -> None:
        super().__init__(None)  # type: ignore[arg-type]  # a link asks for none
        self._link = link

    def write(self, data: bytes | bytearray | memoryview) -> None: ...

    def abort(self) -> None:
        if not self.closed:
            self.closed = True
            self._link.connection_lost(None)


UNPACK: Final[Mapping[FrameKind, Callable[[Any], object]]] = {
    FrameKind.RUN: lambda frame: unpack_run(frame, None),
    FrameKind.LOAD: unpack_load,
    FrameKind.UNLOAD: unpack_unload,
    FrameKind.MEASURE: unpack_measure,
    FrameKind.LEAVE: unpack_leave,
}


def play_orders(data: bytes) -> bool:
    """Return a gateway's stream, as a worker reads it."""
    return _read(data, UNPACK)


def play_notes(data: bytes) -> bool:
    """Return what a gateway and a node say to each other, as the other reads it."""
    return _read(data, {FrameKind.NOTE: unpack_note})


def _read(data: bytes, unpackers: Mapping[FrameKind, Callable[[Any], object]]) -> bool:
    frames = FrameBuffer()
    rest = memoryview(data)
    try:
        while rest:
            space = frames.space()
            count = min(len(space), len(rest))
            space[:count] = rest[:count]
            frames.filled(count)
            rest = rest[count:]
            while (frame := frames.next()) is not None:
                unpack = unpackers.get(frame.kind)
                if unpack is None:
                    return False
                unpack(frame)
    except ProtocolError:
        return False
    return True


def play_redis(data: bytes) -> bool:
    """Return a value out of Redis; one that is believed must be an answer that the model could have given."""
    entry = decode(KEY, data, "simple", (1_000, 2_000), SEAL)
    if entry is None:
        return False
    sound = False
    for model in MODELS.values():
        for rows in (1, 2):
            if not fault_of(entry, model.spec, rows):
                sound = True
                _answerable(entry, Call(model, (), rows))
    return sound


def _answerable(entry: KeptAnswer, call: Call) -> None:
    for tensor in entry.outputs:
        item = ITEM_BYTES[tensor.datatype]
        if tensor.shape[0] != call.rows or (item and prod(tensor.shape) * item != len(tensor.data)):
            raise Fault(f"{tensor!r} was believed for {call.rows} rows")
    reply = Reply(COMPLETED)
    reply.outputs = entry.outputs
    for binary in (True, False):
        wanted = tuple(RequestedOutput(index, binary) for index in range(len(entry.outputs)))
        with contextlib.suppress(RequestError):  # BYTES that are no text
            rest.encode(Decoded(call, "", wanted), reply)


def _sign(data: bytes) -> bytes:
    body = data[_BODY_AT:]
    return b"PNST\x02" + hmac.digest(SEAL, KEY + body, "sha256") + body


@contextlib.contextmanager
def worker_target() -> Iterator[Target]:
    with contextlib.closing(asyncio.new_event_loop()) as loop:
        yield Target("worker", lambda data: loop.run_until_complete(_hear(data)), FRAME_WORDS)


@contextlib.contextmanager
def notes_target() -> Iterator[Target]:
    yield Target("notes", play_notes, (*FRAME_WORDS, *(f'"{each}"'.encode() for each in NOTE_NAMES)))


@contextlib.contextmanager
def orders_target() -> Iterator[Target]:
    yield Target("orders", play_orders, FRAME_WORDS)


@contextlib.contextmanager
def redis_target() -> Iterator[Target]:
    yield Target("redis", play_redis, ANSWER_WORDS, mend=_sign)
