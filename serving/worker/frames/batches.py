"""The hot frames: RUN, RESULT, FAILED, ROW and LEAVE, struct-packed, with the values they carry.

A payload is the tensors one behind the other; each tensor is the concatenation of its rows, so the
gateway sends its requests' buffers as they are and cuts the answer by byte offsets, BYTES included.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from math import prod
from mmap import MAP_PRIVATE, mmap
from typing import Final, NamedTuple

import orjson

from serving.values.specs import Parameters, ParameterValue
from serving.values.tensor import ABSENT, DATATYPES, ITEM_BYTES, Buffer
from serving.values.traces import NO_TRACE, TraceContext, trace_context
from serving.worker.frames.shared import PORTION_BYTES, SharedArea
from serving.worker.frames.wire import Frame, FrameKind, ProtocolError, pack_frame

SHARED: Final = 1
"""Flag: the payload lies at the start of the sender's shared area, not in the frame."""
REFUSED: Final = 2
"""Flag: behind the outputs stand the rows that their guards refuse."""
LAST: Final = 4
"""Flag of a ROW: its row has no further answers."""
TRACED: Final = 8
"""Flag of a RUN: behind the parameters stands the trace that what it asks of another server belongs to."""
NEVER_SHARE: Final = 0xFFFFFFFF
"""`share_over` of a RUN whose answer must come in its frame: no shared area is free."""

MESSAGE_CHARS_MAX: Final = 1000
"""Length of an error text on the wire."""

_RUN = struct.Struct("<QIIIHHI")  # batch, replica, rows, flags, share_over, inputs, bytes of parameters
_RESULT = struct.Struct("<QQQIIHH")  # batch, compute_us, ended_us, padded size, rows, flags, outputs
_COUNT, _REFUSED = struct.Struct("<I"), struct.Struct("<IHd")  # of rows; row, output, value
_FAILED = struct.Struct("<QI?")  # batch, bytes of the message, whether the input is at fault
_LEAVE = struct.Struct("<QI")  # batch, row
_TRACE = struct.Struct("<55sH")  # traceparent, bytes of tracestate
_TENSOR = struct.Struct("<BBxxxxxxQ")  # datatype, dims after the batch dimension, payload bytes
_DIMS = tuple(struct.Struct(f"<{count}Q") for count in range(256))
_ABSENT = 255
_CODES = {**{name: code for code, name in enumerate(DATATYPES)}, ABSENT: _ABSENT}


class BatchInput:
    """One input of a batch: `dims` after the batch dimension, `buffers` its requests' raw bytes in order."""

    __slots__ = ("buffers", "datatype", "dims")

    def __init__(self, datatype: str, dims: tuple[int, ...], buffers: Sequence[Buffer]) -> None:
        self.datatype = datatype
        self.dims = dims
        self.buffers = buffers


class BatchOutput:
    """One output of a batch: all rows in `data`, which belongs to the holder of this object.

    `row_ends` (BYTES only): where each row ends in `data`; other datatypes have rows of equal length. Once it
    is `cut`, `data` is empty, and each piece's rows are in a buffer of their own.
    """

    __slots__ = ("_pieces", "_row_bytes", "data", "datatype", "dims", "row_ends")

    def __init__(
        self, datatype: str, dims: tuple[int, ...], data: Buffer, rows: int, row_ends: Sequence[int] = ()
    ) -> None:
        self.datatype = datatype
        self.dims = dims
        self.data = data
        self.row_ends = row_ends
        self._row_bytes = len(data) // rows
        self._pieces: dict[tuple[int, int], Buffer] = {}  # by first row and count

    def cut(self, pieces: Sequence[int]) -> Iterator[tuple[memoryview, memoryview]]:
        """Yield for each piece, of that number of rows and in order, its part of `data` and a target memory.
        Its copy must be written to that memory before the next piece is asked for."""
        source, first = memoryview(self.data), 0
        for count in pieces:
            start, end = self._span(first, count)
            target = _memory(end - start)
            yield source[start:end], target
            self._pieces[first, count] = target.toreadonly()
            first += count
        self.data = b""

    def rows(self, first: int, count: int) -> Buffer:
        """Return the raw bytes of `count` rows from `first`. A part is a copy, so that one slow client pins
        only its own rows."""
        if self._pieces:
            return self._pieces[first, count]
        start, end = self._span(first, count)
        return self.data if end - start == len(self.data) else bytes(self.data[start:end])

    def _span(self, first: int, count: int) -> tuple[int, int]:
        if self.row_ends:
            return self.row_ends[first - 1] if first else 0, self.row_ends[first + count - 1]
        return first * self._row_bytes, (first + count) * self._row_bytes


class RefusedRow(NamedTuple):
    """A row that the guard of an output refuses, and the value that is not as it has to be."""

    row: int
    output: int
    value: float


class BatchResult:
    """A batch that ran: `compute_us` is the model's own time, `size` its padded tokens per row or 0.
    `refused`: rows that must not be answered, ascending.

    `ended_us`: when the model was done, by the worker's monotonic clock, which on one machine is also the
    gateway's; 0 where it is not said.

    A ROW is one too: an answer of row `size` of its batch, perhaps without outputs, and of one row itself.
    `is_last`: the row has no further answers.
    """

    __slots__ = (
        "batch_id", "compute_us", "ended_us", "is_last", "is_shared", "outputs", "refused", "rows", "size",
    )  # fmt: skip

    def __init__(
        self, batch_id: int, compute_us: int, size: int, rows: int, outputs: Sequence[BatchOutput]
    ) -> None:
        self.batch_id = batch_id
        self.compute_us = compute_us
        self.ended_us = 0
        self.size = size
        self.rows = rows
        self.outputs = outputs
        self.refused: Sequence[RefusedRow] = ()
        self.is_shared = False  # the outputs still lie in shared memory
        self.is_last = False

    def copying(self, pieces: Sequence[int] = ()) -> Iterator[int]:
        """Copy the outputs out of shared memory, a portion at each step; yields how many bytes are copied,
        while there are more to come. `pieces`: how many rows each of the batch has, in order; without any,
        all are one."""
        copied, pause = 0, PORTION_BYTES
        for output in self.outputs:
            for source, target in output.cut(pieces or (self.rows,)):
                at = 0
                while at < len(source):
                    if copied == pause:
                        yield copied
                        pause += PORTION_BYTES
                    step = min(len(source) - at, pause - copied)
                    target[at : at + step] = source[at : at + step]
                    at += step
                    copied += step
        self.is_shared = False


def _memory(size: int) -> memoryview:
    """Return memory of that size. Above PORTION_BYTES it is mapped: a bytearray would be cleared at once, and
    numpy asks for huge pages, which take 5 ms each."""
    if size <= PORTION_BYTES:
        return memoryview(bytearray(size))
    return memoryview(mmap(-1, size, MAP_PRIVATE))


class TensorPlace:
    """A tensor of a RUN as the worker finds it: `byte_count` bytes of the payload, in order."""

    __slots__ = ("byte_count", "datatype", "dims")

    def __init__(self, datatype: str, dims: tuple[int, ...], byte_count: int) -> None:
        self.datatype = datatype
        self.dims = dims
        self.byte_count = byte_count


class RunOrder:
    """A RUN as the worker reads it; `payload` is void once the next frame is received.

    `share_over`: an answer of more bytes may go through shared memory. `trace`: what the model's calls to
    other servers belong to.
    """

    __slots__ = ("batch_id", "inputs", "parameters", "payload", "replica", "rows", "share_over", "trace")

    def __init__(self, batch_id: int, replica: int, rows: int, share_over: int) -> None:
        self.batch_id = batch_id
        self.replica = replica
        self.rows = rows
        self.share_over = share_over
        self.inputs: list[TensorPlace] = []
        self.parameters: dict[str, ParameterValue] = {}
        self.payload = memoryview(b"")
        self.trace = NO_TRACE


class EncodedOutput:
    """One output as the worker sends it; `row_bytes` (BYTES only) the length of each row."""

    __slots__ = ("data", "datatype", "dims", "row_bytes")

    def __init__(
        self, datatype: str, dims: tuple[int, ...], data: Buffer, row_bytes: Sequence[int] = ()
    ) -> None:
        self.datatype = datatype
        self.dims = dims
        self.data = data
        self.row_bytes = row_bytes


def pack_run(
    order: tuple[int, int, int, int, int],
    inputs: Sequence[BatchInput],
    byte_counts: Sequence[int],
    parameters: Parameters,
    trace: TraceContext = NO_TRACE,
) -> bytes:
    """Return the RUN frame up to its payload; `order` is (batch id, replica, rows, share_over, flags)."""
    values = orjson.dumps(dict(parameters)) if parameters else b""
    if trace is not NO_TRACE:
        order = (*order[:4], order[4] | TRACED)
    parts = [_RUN.pack(*order, len(inputs), len(values))]
    for entry, count in zip(inputs, byte_counts, strict=True):
        dims = entry.dims
        parts.append(_TENSOR.pack(_CODES[entry.datatype], len(dims), count))
        parts.append(_DIMS[len(dims)].pack(*dims))
    parts.append(values)
    if trace is not NO_TRACE:
        state = trace.state.encode()
        parts += [_TRACE.pack(trace.parent.encode(), len(state)), state]
    return pack_frame(FrameKind.RUN, b"".join(parts), 0 if order[4] & SHARED else sum(byte_counts))


def unpack_run(frame: Frame, area: SharedArea | None) -> RunOrder:
    """Return what a RUN frame orders; ProtocolError where it contradicts itself."""
    meta = frame.meta
    try:
        batch_id, replica, rows, share_over, flags, count, values_bytes = _RUN.unpack_from(meta)
        order = RunOrder(batch_id, replica, rows, share_over)
        position = _RUN.size
        for _ in range(count):
            place, position = _unpack_input(meta, position)
            order.inputs.append(place)
        if values_bytes:
            values = meta[position : position + values_bytes]
            order.parameters = _parameters(orjson.loads(values), len(values) == values_bytes)
        if flags & TRACED:
            order.trace = _unpack_trace(meta, position + values_bytes)
    except (struct.error, orjson.JSONDecodeError) as error:
        raise ProtocolError(f"a RUN frame cannot be read: {error}") from None
    total = sum(place.byte_count for place in order.inputs)
    order.payload = _payload(frame, flags, total, area)
    return order


def _unpack_trace(meta: memoryview, position: int) -> TraceContext:
    parent, count = _TRACE.unpack_from(meta, position)
    position += _TRACE.size
    state = bytes(meta[position : position + count])
    found = trace_context(parent.decode("latin-1"), state.decode("latin-1"))
    if not found.parent or len(found.state) != count:
        raise ProtocolError("the trace of a RUN frame is none")
    return found


def pack_result(
    batch: tuple[int, int, int, int, int, int],
    outputs: Sequence[EncodedOutput],
    payload_bytes: int,
    refused: Sequence[RefusedRow] = (),
    kind: FrameKind = FrameKind.RESULT,
) -> bytes:
    """Return the RESULT frame up to its payload; `batch` is (batch id, compute_us, ended_us, padded size,
    rows, flags). A ROW has its row in place of the padded size, and one row."""
    flags = batch[5] | (REFUSED if refused else 0)
    parts = [_RESULT.pack(*batch[:5], flags, len(outputs))]
    for output in outputs:
        parts.append(_TENSOR.pack(_CODES[output.datatype], len(output.dims), len(output.data)))
        parts.append(_DIMS[len(output.dims)].pack(*output.dims))
        if output.datatype == "BYTES":
            parts.append(struct.pack(f"<{len(output.row_bytes)}I", *output.row_bytes))
    if refused:
        parts.append(_COUNT.pack(len(refused)))
        parts += [_REFUSED.pack(*each) for each in refused]
    return pack_frame(kind, b"".join(parts), 0 if batch[5] & SHARED else payload_bytes)


def unpack_result(frame: Frame, area: SharedArea | None) -> BatchResult:
    """Return a RESULT or ROW frame; ProtocolError where it contradicts itself. Its outputs are copied out,
    but for a large answer that lies in shared memory: its receiver does that (`BatchResult.copying`)."""
    meta = frame.meta
    found: list[tuple[TensorPlace, Sequence[int]]] = []
    try:
        batch_id, compute_us, ended_us, size, rows, flags, count = _RESULT.unpack_from(meta)
        if rows == 0:
            raise ProtocolError("a RESULT frame has no rows")
        position = _RESULT.size
        for _ in range(count):
            place, position = _unpack_tensor(meta, position)
            ends: Sequence[int] = ()
            if place.datatype == "BYTES":
                if position + 4 * rows > len(meta):
                    raise ProtocolError(f"a RESULT frame ends before the lengths of its {rows} rows")
                ends = tuple(accumulate(struct.unpack_from(f"<{rows}I", meta, position)))
                position += 4 * rows
            _check_bytes(place, rows, ends)
            found.append((place, ends))
        refused = _unpack_refused(meta, position, rows, count) if flags & REFUSED else ()
    except struct.error as error:
        raise ProtocolError(f"a RESULT frame cannot be read: {error}") from None
    payload = _payload(frame, flags, sum(place.byte_count for place, _ in found), area)
    is_shared = bool(flags & SHARED) and len(payload) > PORTION_BYTES
    outputs, start = [], 0
    for place, ends in found:
        end = start + place.byte_count
        data = payload[start:end] if is_shared else bytes(payload[start:end])
        outputs.append(BatchOutput(place.datatype, place.dims, data, rows, ends))
        start = end
    result = BatchResult(batch_id, compute_us, size, rows, outputs)
    result.is_shared = is_shared
    result.is_last = bool(flags & LAST)
    result.ended_us = ended_us
    result.refused = refused
    return result


def _unpack_refused(meta: memoryview, position: int, rows: int, outputs: int) -> Sequence[RefusedRow]:
    (count,) = _COUNT.unpack_from(meta, position)
    position += _COUNT.size
    end = position + count * _REFUSED.size
    if end > len(meta):
        raise ProtocolError(f"a RESULT frame ends before its {count} refused rows")
    found = [RefusedRow(*each) for each in _REFUSED.iter_unpack(meta[position:end])]
    for each in found:
        if each.row >= rows or each.output >= outputs:
            raise ProtocolError(
                f"a RESULT frame refuses output {each.output} of row {each.row}; it has {outputs} outputs"
                f" of {rows} rows"
            )
    return found


def pack_failed(batch_id: int, message: str, bad_input: bool = False) -> bytes:
    text = message[:MESSAGE_CHARS_MAX].encode(errors="replace")
    return pack_frame(FrameKind.FAILED, _FAILED.pack(batch_id, len(text), bad_input) + text)


def unpack_failed(frame: Frame) -> tuple[int, str, bool]:
    """Return the batch id and message of a FAILED frame, and whether its input is at fault."""
    try:
        batch_id, count, bad_input = _FAILED.unpack_from(frame.meta)
    except struct.error as error:
        raise ProtocolError(f"a FAILED frame cannot be read: {error}") from None
    text = bytes(frame.meta[_FAILED.size : _FAILED.size + count]).decode(errors="replace")
    return batch_id, text[:MESSAGE_CHARS_MAX], bad_input


def pack_leave(batch_id: int, row: int) -> bytes:
    """Return the frame that says that nobody waits for a row's answers any more."""
    return pack_frame(FrameKind.LEAVE, _LEAVE.pack(batch_id, row))


def unpack_leave(frame: Frame) -> tuple[int, int]:
    """Return the batch and the row of a LEAVE frame."""
    try:
        batch_id, row = _LEAVE.unpack_from(frame.meta)
    except struct.error as error:
        raise ProtocolError(f"a LEAVE frame cannot be read: {error}") from None
    return batch_id, row


def _unpack_input(meta: memoryview, position: int) -> tuple[TensorPlace, int]:
    code, count, byte_count = _TENSOR.unpack_from(meta, position)
    if code != _ABSENT:
        return _unpack_tensor(meta, position)
    if count or byte_count:
        raise ProtocolError(f"an absent input has {count} dimensions and {byte_count} bytes")
    return TensorPlace(ABSENT, (), 0), position + _TENSOR.size


def _unpack_tensor(meta: memoryview, position: int) -> tuple[TensorPlace, int]:
    code, count, byte_count = _TENSOR.unpack_from(meta, position)
    if code >= len(DATATYPES):
        raise ProtocolError(f"a tensor has the unknown datatype code {code}")
    position += _TENSOR.size
    dims = _DIMS[count].unpack_from(meta, position)
    return TensorPlace(DATATYPES[code], dims, byte_count), position + 8 * count


def _check_bytes(place: TensorPlace, rows: int, ends: Sequence[int]) -> None:
    item = ITEM_BYTES[place.datatype]
    expected = rows * prod(place.dims) * item if item else ends[-1]
    if expected != place.byte_count:
        raise ProtocolError(
            f"a RESULT frame gives {place.byte_count} bytes for {rows} rows of {place.datatype}"
            f" {list(place.dims)}, expected {expected if expected < 1 << 64 else 'far more'}"
        )


def _payload(frame: Frame, flags: int, total: int, area: SharedArea | None) -> memoryview:
    if not flags & SHARED:
        if len(frame.payload) != total:
            raise ProtocolError(
                f"a {frame.kind.name} frame carries {len(frame.payload)} bytes, its tensors take {total}"
            )
        return frame.payload
    if area is None:
        raise ProtocolError(f"a {frame.kind.name} frame refers to shared memory, there is none")
    if len(frame.payload):
        raise ProtocolError(f"a {frame.kind.name} frame has its payload twice")
    return area.read(total)


def _parameters(found: object, whole: bool) -> dict[str, ParameterValue]:
    if not whole or not isinstance(found, Mapping):
        raise ProtocolError("the parameters of a RUN frame are no JSON object")
    return dict(found)
