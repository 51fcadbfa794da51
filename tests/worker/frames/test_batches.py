"""Promises of RUN, RESULT and FAILED: what goes in comes out; contradictions are errors, never answers."""

import struct
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.values.specs import Parameters
from serving.values.tensor import ABSENT, DATATYPES, ITEM_BYTES
from serving.values.traces import NO_TRACE, TraceContext
from serving.worker.frames.batches import (
    MESSAGE_CHARS_MAX,
    NEVER_SHARE,
    SHARED,
    BatchInput,
    BatchOutput,
    BatchResult,
    EncodedOutput,
    pack_failed,
    pack_result,
    pack_run,
    unpack_failed,
    unpack_result,
    unpack_run,
)
from serving.worker.frames.shared import SharedArea
from serving.worker.frames.wire import HEADER, Frame, FrameBuffer, FrameKind, ProtocolError

PARENT = f"00-{'a' * 32}-{'b' * 16}-01"

parameters = st.dictionaries(
    st.text(max_size=5),
    st.one_of(st.booleans(), st.integers(-(2**63), 2**63), st.text(max_size=5)),
    max_size=3,
)


def framed(*buffers: bytes) -> Frame:
    stream, buffer = b"".join(buffers), FrameBuffer()
    buffer.space()[: len(stream)] = stream
    buffer.filled(len(stream))
    frame = buffer.next()
    assert frame is not None
    return frame


@st.composite
def inputs(draw: st.DrawFn) -> BatchInput:
    if draw(st.integers(0, 4)) == 0:
        return BatchInput(ABSENT, (), [])
    dims = tuple(draw(st.lists(st.integers(0, 2**64 - 1), max_size=3)))
    return BatchInput(
        draw(st.sampled_from(DATATYPES)), dims, draw(st.lists(st.binary(max_size=9), max_size=3))
    )


@st.composite
def outputs(draw: st.DrawFn, rows: int) -> EncodedOutput:
    datatype = draw(st.sampled_from(DATATYPES))
    dims = tuple(draw(st.lists(st.integers(0, 3), max_size=2)))
    if datatype == "BYTES":
        lengths = draw(st.lists(st.integers(0, 9), min_size=rows, max_size=rows))
        return EncodedOutput(
            "BYTES", dims, draw(st.binary(min_size=sum(lengths), max_size=sum(lengths))), lengths
        )
    count = rows * ITEM_BYTES[datatype]
    for dim in dims:
        count *= dim
    return EncodedOutput(datatype, dims, draw(st.binary(min_size=count, max_size=count)))


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1), st.lists(inputs(), max_size=4), parameters)
def test_a_run_arrives_as_it_was_ordered(
    batch_id: int, replica: int, sent: list[BatchInput], values: dict[str, bool | int | str]
) -> None:
    counts = [sum(map(len, entry.buffers)) for entry in sent]
    given_parameters: Parameters = tuple(sorted(values.items()))
    head = pack_run((batch_id, replica, 5, NEVER_SHARE, 0), sent, counts, given_parameters)
    payload = b"".join(buffer for entry in sent for buffer in entry.buffers)
    order = unpack_run(framed(head, payload), None)
    assert (order.batch_id, order.replica, order.rows, order.share_over) == (
        batch_id,
        replica,
        5,
        NEVER_SHARE,
    )
    assert order.parameters == values
    assert bytes(order.payload) == payload
    assert [(place.datatype, place.dims, place.byte_count) for place in order.inputs] == [
        (entry.datatype, entry.dims, count) for entry, count in zip(sent, counts, strict=True)
    ]


@pytest.mark.parametrize("values", [(), (("a", 1),)])
@pytest.mark.parametrize(
    "trace", [NO_TRACE, TraceContext(PARENT, ""), TraceContext(PARENT, "rojo=1,congo=2")]
)
def test_a_run_brings_its_trace(values: Parameters, trace: TraceContext) -> None:
    head = pack_run((1, 2, 1, 0, 0), [BatchInput("FP32", (2,), [bytes(8)])], [8], values, trace)
    order = unpack_run(framed(head, bytes(8)), None)
    assert (order.trace, order.parameters, len(order.payload)) == (trace, dict(values), 8)


@pytest.mark.parametrize(
    ("old", "new"), [(b"00-a", b"00-A"), (b"rojo=1", b"rojo\xff1"), (b"\x06\0rojo=1", b"\x09\0rojo=1")]
)
def test_a_trace_that_is_none_is_refused(old: bytes, new: bytes) -> None:
    trace = TraceContext(PARENT, "rojo=1")
    head = pack_run((1, 2, 1, 0, 0), [BatchInput("FP32", (2,), [bytes(8)])], [8], (), trace)
    assert old in head
    with pytest.raises(ProtocolError, match="the trace of a RUN frame"):
        unpack_run(framed(head.replace(old, new), bytes(8)), None)


@given(st.integers(1, 4).flatmap(lambda rows: st.tuples(st.just(rows), st.lists(outputs(rows), max_size=4))))
def test_a_result_is_cut_into_the_rows_that_were_sent(sent: tuple[int, list[EncodedOutput]]) -> None:
    rows, answers = sent
    payload = b"".join(bytes(answer.data) for answer in answers)
    result = unpack_result(framed(pack_result((9, 8, 70, 7, rows, 0), answers, len(payload)), payload), None)
    assert (result.batch_id, result.compute_us, result.ended_us) == (9, 8, 70)
    assert (result.size, result.rows) == (7, rows)
    for answer, output in zip(answers, result.outputs, strict=True):
        assert (output.datatype, output.dims, output.data) == (answer.datatype, answer.dims, answer.data)
        cuts = [output.rows(row, 1) for row in range(rows)]
        assert b"".join(cuts) == output.rows(0, rows) == answer.data
        assert output.rows(1, rows - 1) == b"".join(cuts[1:])
        if answer.datatype == "BYTES":
            assert [len(part) for part in cuts] == list(answer.row_bytes)


TRACE = TraceContext(PARENT, "rojo=1,congo=2")
RUN = pack_run((1, 2, 3, 0, 0), [BatchInput("FP32", (2, 2), [bytes(48)])], [48], (("a", 1),), TRACE)
RESULT = pack_result(
    (1, 2, 30, 3, 2, 0),
    [EncodedOutput("BYTES", (1,), bytes(8), [3, 5]), EncodedOutput("INT8", (4,), bytes(8))],
    16,
)


@pytest.mark.parametrize(
    ("unpack", "head", "payload_bytes"), [(unpack_run, RUN, 48), (unpack_result, RESULT, 16)]
)
@given(data=st.data())
def test_spoilt_metadata_is_an_error_or_some_other_batch_but_never_a_crash(
    unpack: Callable[[Frame, SharedArea | None], object], head: bytes, payload_bytes: int, data: st.DataObject
) -> None:
    meta = bytearray(head[HEADER.size :])
    for _ in range(data.draw(st.integers(1, 4))):
        meta[data.draw(st.integers(0, len(meta) - 1))] = data.draw(st.integers(0, 255))
    spoilt = bytes(meta[: data.draw(st.integers(0, len(meta)))])
    with suppress(ProtocolError):
        unpack(Frame(FrameKind.RUN, memoryview(spoilt), memoryview(bytes(payload_bytes))), None)


def test_an_absent_input_has_nothing_and_no_output_is_absent() -> None:
    order = (1, 2, 5, NEVER_SHARE, 0)
    for dims, count in (((4,), 0), ((), 8)):
        head = pack_run(order, [BatchInput(ABSENT, dims, [bytes(count)])], [count], ())
        with pytest.raises(ProtocolError, match="an absent input has"):
            unpack_run(framed(head, bytes(count)), None)
    result = pack_result((1, 2, 3, 0, 5, 0), [EncodedOutput(ABSENT, (), b"")], 0)
    with pytest.raises(ProtocolError, match="unknown datatype code 255"):
        unpack_result(framed(result), None)


def test_contradictions_of_a_result_are_named() -> None:
    def complaint(rows: int, output: EncodedOutput, payload: bytes, flags: int = 0) -> str:
        head = pack_result((1, 2, 30, 3, rows, flags), [output], len(payload))
        with pytest.raises(ProtocolError) as raised:
            unpack_result(framed(head, b"" if flags else payload), None)
        return str(raised.value)

    four = EncodedOutput("FP32", (1,), bytes(4))
    assert "4 bytes for 2 rows of FP32 [1], expected 8" in complaint(2, four, bytes(4))
    assert "no rows" in complaint(0, four, bytes(4))
    assert "carries 3 bytes, its tensors take 4" in complaint(1, four, bytes(3))
    assert "shared memory, there is none" in complaint(1, four, bytes(4), SHARED)
    assert "expected 9" in complaint(2, EncodedOutput("BYTES", (1,), bytes(8), [4, 5]), bytes(8))
    huge = EncodedOutput(
        "FP32", ((1 << 64) - 1,) * 255, bytes(4)
    )  # a product of more digits than Python writes
    assert "expected far more" in complaint(2, huge, bytes(4))
    assert "before the lengths" in complaint(50, EncodedOutput("BYTES", (1,), bytes(8), [8]), bytes(8))


@given(st.text(max_size=3 * MESSAGE_CHARS_MAX))
def test_a_failure_carries_its_message_up_to_a_bound(message: str) -> None:
    batch_id, text, bad_input = unpack_failed(framed(pack_failed(4, message, True)))
    assert bad_input
    assert (batch_id, text) == (4, message[:MESSAGE_CHARS_MAX])


def test_a_failure_without_a_batch_is_an_error() -> None:
    with pytest.raises(ProtocolError, match="FAILED"):
        unpack_failed(Frame(FrameKind.FAILED, memoryview(struct.pack("<I", 1)), memoryview(b"")))


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.booleans(), st.data())
def test_each_piece_of_a_batch_has_its_rows_in_memory_of_its_own(
    pieces: list[int], texts: bool, data: st.DataObject
) -> None:
    rows = [data.draw(st.binary(max_size=9) if texts else st.binary(min_size=8, max_size=8))
            for _ in range(sum(pieces))]  # fmt: skip
    whole = bytearray(b"".join(rows))
    ends = [sum(map(len, rows[: count + 1])) for count in range(len(rows))] if texts else ()
    output = BatchOutput("BYTES" if texts else "FP64", (1,), memoryview(whole), len(rows), ends)
    result = BatchResult(1, 5, 0, len(rows), [output])
    result.is_shared = True
    for _ in result.copying(pieces):
        pass
    whole[:] = bytes(len(whole))  # the area is the next batch's
    first = 0
    for count in pieces:
        assert bytes(output.rows(first, count)) == b"".join(rows[first : first + count])
        first += count
    assert not result.is_shared
