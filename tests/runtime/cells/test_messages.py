"""Promises of messages between cells: a call and its reply arrive as they were, and garbage is refused."""

from dataclasses import replace

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.ports import Call, Reply
from serving.runtime.cells.messages import (
    OtherModelError,
    number_of,
    pack_call,
    pack_cancel,
    pack_part,
    pack_reply,
    unpack_call,
    unpack_part,
    unpack_reply,
)
from serving.values.objectives import Needs
from serving.values.sequences import SequenceStep
from serving.values.specs import ServedModel
from serving.values.tensor import Buffer, Tensor
from serving.values.traces import trace_context
from serving.values.vocabulary import ALL_OUTCOMES, COMPLETED
from serving.worker.frames.wire import Frame, FrameBuffer, FrameKind, ProtocolError, pack_frame
from tests.builders import graded, model_spec, served

CALL = (
    "max_age_us", "model", "objective", "parameters", "priority", "rows", "sequence", "size", "store",
    "tenant", "timeout_us", "variant",
)  # fmt: skip
REPLY = (
    "accuracy", "age_us", "batch_rows", "batch_us", "cache", "compute_us", "confidence", "detail",
    "downgrade", "input_us", "limits", "outcome", "output_us", "query", "queue_us", "rehearsed",
    "retry_us", "variant", "version", "votes",
)  # fmt: skip
MODEL = graded({"a": 0.9, "b": 0.8}, Needs(optimize="balanced"), (Needs(tier="gold", slo_us=5_000),))


def arrive(buffers: list[Buffer]) -> Frame:
    """The frame as the other side gets it."""
    data, frames = b"".join(map(bytes, buffers)), FrameBuffer()
    while data:
        space = frames.space()
        part, data = data[: len(space)], data[len(space) :]
        space[: len(part)] = part
        frames.filled(len(part))
    frame = frames.next()
    assert frame is not None
    return frame


def call_of(model: ServedModel, rows: int = 2) -> Call:
    (spec,) = model.spec.inputs
    return Call(model, [Tensor(spec.name, "FP32", (rows, 4), b"\1\2\3\4" * 4 * rows)], rows)


def said(frame: Frame) -> list[object]:
    found: list[object] = orjson.loads(bytes(frame.meta[8:]).rstrip(b"\0"))
    return found


IDS = st.integers(0, 2**63) | st.text(min_size=1)
STEPS = st.none() | st.builds(SequenceStep, IDS, st.booleans(), st.booleans())
VALUES = st.booleans() | st.integers(-5, 5) | st.floats(-1, 1) | st.text()
TIMEOUTS = st.none() | st.integers(1, 10**9)
TRACE = f"00-{'a' * 32}-{'b' * 16}-01"


@given(
    st.integers(1, 9),
    st.integers(0, 10**9),
    TIMEOUTS,
    st.sampled_from(["", "gold"]),
    STEPS,
    st.lists(st.tuples(st.text(), VALUES), max_size=3),
)
def test_a_call_arrives_as_it_was_made(
    rows: int,
    age_us: int,
    timeout_us: int | None,
    tier: str,
    step: SequenceStep | None,
    parameters: list[tuple[str, bool | int | float | str]],
) -> None:
    call = call_of(MODEL, rows)
    call.size, call.timeout_us, call.variant, call.tenant = 7, timeout_us, "b", "shop"
    call.objective = MODEL.objective(tier, 0.85)
    call.parameters, call.max_age_us, call.store, call.priority = tuple(parameters), 3, False, 2
    call.sequence = step
    number, got, age = unpack_call(arrive(pack_call(5, call, age_us)), {"m": MODEL})
    assert (number, age) == (5, age_us)
    for name in CALL:
        assert getattr(got, name) == getattr(call, name), name
    (sent,), (came,) = call.inputs, got.inputs
    assert (came.name, came.datatype, came.shape) == (sent.name, sent.datatype, sent.shape)
    assert bytes(came.data) == bytes(sent.data)


@pytest.mark.parametrize(
    "named", [("", "", ""), ("mine", "", ""), ("mine", TRACE, ""), (TRACE[3:35], TRACE, "rojo=1,congo=2")]
)
def test_a_call_keeps_its_name_and_its_trace(named: tuple[str, str, str]) -> None:
    call = call_of(MODEL)
    call.name, call.trace, call.trace_state = named
    got = unpack_call(arrive(pack_call(5, call, 0)), {"m": MODEL}).call
    assert (got.name, got.trace, got.trace_state) == named


@pytest.mark.parametrize("outcome", ALL_OUTCOMES, ids=lambda each: each.reason)
def test_a_reply_arrives_as_it_was_given(outcome: object) -> None:
    reply = Reply(next(each for each in ALL_OUTCOMES if each is outcome), "because")
    reply.outputs = [Tensor("Y", "FP32", (1, 2), b"12345678"), Tensor("Z", "BYTES", (1,), b"")]
    reply.variant, reply.accuracy, reply.downgrade, reply.confidence = "b", 0.5, "load", 0.25
    reply.queue_us, reply.batch_us, reply.compute_us, reply.batch_rows, reply.retry_us = 1, 2, 3, 4, 5
    reply.votes, reply.query, reply.cache, reply.age_us, reply.limits = "2/3", "q", "hit", 6, "\r\nx: y"
    reply.rehearsed, reply.answered_us = True, 12345
    got, took_us = unpack_reply(arrive(pack_reply(9, reply, 77)))
    assert took_us == 77
    for name in REPLY:
        assert getattr(got, name) == getattr(reply, name), name
    assert [(each.name, each.shape, bytes(each.data)) for each in got.outputs] == [
        (each.name, each.shape, bytes(each.data)) for each in reply.outputs
    ]
    assert got.answered_us == 1


def test_a_wait_shortens_the_clients_own_deadline_alone() -> None:
    call = call_of(MODEL)
    call.timeout_us = 1000
    asked = unpack_call(arrive(pack_call(1, call, 5, waited_us=400)), {"m": MODEL})
    assert (asked.age_us, asked.call.timeout_us) == (5, 600)
    asked = unpack_call(arrive(pack_call(1, call, 5, waited_us=4000)), {"m": MODEL})
    assert asked.call.timeout_us == 1
    assert call.timeout_us == 1000


def test_parts_and_cancels_name_their_call() -> None:
    part = arrive(pack_part(3, [Tensor("Y", "FP32", (1,), b"1234")], 7))
    assert (part.kind, number_of(part)) == (FrameKind.PART, 3)
    outputs, version = unpack_part(part)
    assert ([bytes(each.data) for each in outputs], version) == ([b"1234"], 7)
    cancel = arrive([pack_cancel(4)])
    assert (cancel.kind, number_of(cancel)) == (FrameKind.CANCEL, 4)


def test_a_call_for_other_tensors_is_refused() -> None:
    frame = arrive(pack_call(1, call_of(MODEL), 0))
    other = served(replace(model_spec(variants=("a", "b")), parameters=(), decoupled=True))
    with pytest.raises(OtherModelError, match="takes other tensors for 'm'"):
        unpack_call(frame, {"m": other})
    with pytest.raises(KeyError):
        unpack_call(frame, {})


def test_another_promise_is_no_other_model() -> None:
    """During an edit of the files, cells may state other SLOs and tiers for a while."""
    frame = arrive(pack_call(1, call_of(MODEL), 0))
    assert unpack_call(frame, {"m": replace(MODEL, slo_us=1, tiers=())}).call.objective.slo_us == 1


SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text()
)
GARBAGE = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=3)
)


@given(st.integers(0, 18), GARBAGE)
def test_garbage_in_a_call_is_refused(place: int, garbage: object) -> None:
    frame = arrive(pack_call(1, call_of(MODEL), 0))
    broken = changed(frame, place, garbage)
    try:
        got = unpack_call(broken, {"m": MODEL}).call
    except (ProtocolError, KeyError, OtherModelError):
        return
    assert [(each.shape, len(each.data)) for each in got.inputs] == [((2, 4), 32)]  # no batch can be harmed
    assert got.rows == 2
    assert trace_context(got.trace, got.trace_state) == (got.trace, got.trace_state)  # none, or a good one


@given(st.integers(0, 8), GARBAGE)
def test_garbage_in_a_reply_is_refused(place: int, garbage: object) -> None:
    reply = Reply(COMPLETED)
    reply.outputs = [Tensor("Y", "FP32", (1,), b"1234")]
    try:
        unpack_reply(changed(arrive(pack_reply(1, reply, 0)), place, garbage))
    except ProtocolError:
        return


def changed(frame: Frame, place: int, garbage: object) -> Frame:
    """The frame with something else at a place of its JSON."""
    fields = said(frame)
    fields[place] = garbage
    meta = bytes(frame.meta[:8]) + orjson.dumps(fields)
    return arrive([pack_frame(frame.kind, meta, len(frame.payload)), bytes(frame.payload)])


def test_a_number_beyond_all_bounds_is_refused() -> None:
    frame = arrive(pack_call(1, call_of(MODEL), 7))
    meta = bytes(frame.meta).rstrip(b"\0").replace(b",2,0,7,", b",2,1e999,7,")
    assert b"1e999" in meta
    with pytest.raises(ProtocolError):
        unpack_call(
            arrive([pack_frame(frame.kind, meta, len(frame.payload)), bytes(frame.payload)]), {"m": MODEL}
        )


@pytest.mark.parametrize("meta", [b"", b"1234567", b"12345678{", b'12345678[1, "a"]', b"12345678null"])
def test_garbage_is_refused(meta: bytes) -> None:
    frame = Frame(FrameKind.REPLY, memoryview(meta), memoryview(b""))
    for unpack in (unpack_reply, unpack_part):
        with pytest.raises(ProtocolError, match=r"sends a"):
            unpack(frame)


def test_a_tensor_longer_than_its_frame_is_refused() -> None:
    reply = Reply(COMPLETED)
    reply.outputs = [Tensor("Y", "FP32", (1,), b"1234")]
    frame = arrive(pack_reply(1, reply, 0))
    with pytest.raises(ProtocolError, match="longer than its frame"):
        unpack_reply(Frame(frame.kind, frame.meta, memoryview(b"12")))
    with pytest.raises(ProtocolError, match="belong to no tensor"):
        unpack_reply(Frame(frame.kind, frame.meta, memoryview(b"123456")))


def test_a_call_that_names_a_version_is_answered_by_that_and_by_no_candidate() -> None:
    second = replace(MODEL, spec=replace(MODEL.spec, version=2))
    third = replace(MODEL, spec=replace(MODEL.spec, version=3))
    moved = replace(second, spec=replace(second.spec, name="m@2"))
    frame = arrive(pack_call(1, call_of(second.pinned), 0))
    assert unpack_call(frame, {"m": second}).call.model is second.pinned
    assert unpack_call(frame, {"m": third, "m@2": moved}).call.model is moved
    aside = arrive(pack_call(1, call_of(moved.pinned), 0))
    assert unpack_call(aside, {"m": second}).call.model is second.pinned
    with pytest.raises(KeyError):
        unpack_call(frame, {"m": third})
    assert unpack_call(arrive(pack_call(1, call_of(second), 0)), {"m": third}).call.model is third
