"""What one gateway says to another: a call that the other's models answer, and how that ended.

    caller -> cell   CALL CANCEL, NOTE with a Ping
    cell -> caller   REPLY, PART for each answer of a decoupled model, NOTE with a Pong

A frame's metadata is JSON, and its payload is the tensors one behind the other. Instants do not travel, as
each machine has a clock of its own: a call says how old it is.
"""

import hashlib
import struct
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, Final, NamedTuple  # Any: what JSON may hold

import orjson

from serving.ports import Call, Reply
from serving.values.sequences import SequenceStep
from serving.values.specs import ModelSpec, ServedModel, find_version
from serving.values.tensor import ABSENT, ITEM_BYTES, Buffer, Tensor
from serving.values.traces import trace_context
from serving.values.versions import MARK, model_of
from serving.values.vocabulary import ALL_OUTCOMES
from serving.worker.frames.wire import Frame, FrameKind, ProtocolError, pack_frame

_NUMBER: Final = struct.Struct("<Q")
_OUTCOMES: Final = {each.reason.value: each for each in ALL_OUTCOMES}
_TIMES: Final = (
    "queue_us",
    "batch_us",
    "input_us",
    "compute_us",
    "output_us",
    "batch_rows",
    "retry_us",
    "age_us",
    "version",
)
_LIKENESSES_MAX: Final = 8192
_likenesses: dict[int, tuple[ModelSpec, str]] = {}  # by the spec's identity: hashing one takes long
_WORDS: Final = ("variant", "downgrade", "votes", "query", "cache", "limits", "detail")


class OtherModelError(Exception):
    """The call was made for a model that takes other tensors than the one here; the text says so."""


class Asked(NamedTuple):
    """A call of another gateway. `number`: the caller's; `age_us`: since its request arrived there."""

    number: int
    call: Call
    age_us: int


def likeness(spec: ModelSpec) -> str:
    """Return what two gateways' specs of a model have in common where one may send the other its calls."""
    known = _likenesses.get(id(spec))
    if known is None or known[0] is not spec:
        variants = [each.name for each in spec.variants]
        said = repr((spec.inputs, spec.outputs, spec.parameters, variants, spec.unbatched, spec.decoupled))
        if len(_likenesses) >= _LIKENESSES_MAX:
            _likenesses.clear()
        known = _likenesses[id(spec)] = spec, hashlib.sha256(said.encode()).hexdigest()[:16]
    return known[1]


def pack_call(number: int, call: Call, age_us: int, waited_us: int = 0) -> list[Buffer]:
    """Return the buffers of a CALL. `age_us`: since the client's request arrived, and what the answer's way
    back takes; `waited_us`: what that leaves out, though the client's own deadline runs."""
    objective, step, timeout_us = call.objective, call.sequence, call.timeout_us
    if timeout_us is not None:
        timeout_us = max(timeout_us - waited_us, 1)
    said = (
        call.model.name, likeness(call.model.spec), call.rows, call.size, age_us, timeout_us,
        call.variant, objective.tier, objective.accuracy_min, call.tenant, call.parameters, call.max_age_us,
        call.store, call.priority, None if step is None else (step.id, step.start, step.end),
        call.name, call.trace, call.trace_state, call.model.spec.version if call.model.stays else 0,
        [(each.datatype, each.shape, len(each.data)) for each in call.inputs],
    )  # fmt: skip
    return _pack(FrameKind.CALL, number, said, call.inputs)


def unpack_call(frame: Frame, models: Mapping[str, ServedModel]) -> Asked:
    """Return the call of a CALL, with tensors of its own.

    Raises KeyError if the model is not here, OtherModelError if it is another one, and ProtocolError if the
    frame is none that a gateway sends.
    """
    number, said = _unpack(frame)
    try:
        name, alike, rows, size, age_us, timeout_us, variant, tier, floor, tenant, parameters, *rest = said
        max_age_us, store, priority, step, call_name, trace, state, version, places = rest
        model = _asked(models, name, int(version))
        if alike != likeness(model.spec):
            raise OtherModelError(f"takes other tensors for '{name}': its files are of another revision")
        specs = model.spec.inputs
        inputs = _tensors(
            [(spec.name, *place) for spec, place in zip(specs, places, strict=True)], frame.payload
        )
        _check(inputs, rows)
        call = Call(model, inputs, rows)
        call.size, call.timeout_us, call.variant, call.tenant = (
            int(size),
            timeout_us,
            str(variant),
            str(tenant),
        )
        call.objective = model.objective(tier if tier in model.by_tier else "", float(floor))
        call.parameters = tuple((str(key), value) for key, value in parameters)
        call.max_age_us, call.store, call.priority = max_age_us, bool(store), int(priority)
        call.sequence = None if step is None else SequenceStep(*step)
        call.name = str(call_name)
        if trace:
            call.trace, call.trace_state = trace_context(str(trace), str(state))
        return Asked(number, call, int(age_us))
    except (TypeError, ValueError, OverflowError) as error:
        raise ProtocolError(f"sends a call that cannot be read: {error}") from None


def _asked(models: Mapping[str, ServedModel], name: str, version: int) -> ServedModel:
    """Return the model; `version`: the one that the client names, 0 for any."""
    if not version:
        return models[name]
    found = find_version(models, model_of(name), str(version))
    if found is None:
        raise KeyError(name)
    return found if MARK in found.name else found.pinned


def number_of(frame: Frame) -> int:
    """Return the number of the call that a frame is about. Raises ProtocolError."""
    if len(frame.meta) < _NUMBER.size:
        raise ProtocolError("sends a frame without the number of its call")
    number: int = _NUMBER.unpack_from(frame.meta)[0]
    return number


def pack_cancel(number: int) -> bytes:
    """Return a CANCEL: the client of the call is gone."""
    return pack_frame(FrameKind.CANCEL, _NUMBER.pack(number))


def pack_reply(number: int, reply: Reply, took_us: int) -> list[Buffer]:
    """Return the buffers of a REPLY. `took_us`: from when the call came until now."""
    said = (
        reply.outcome.reason, took_us, [getattr(reply, each) for each in _TIMES],
        [getattr(reply, each) for each in _WORDS], reply.accuracy, reply.confidence, reply.rehearsed,
        bool(reply.answered_us), _places(reply.outputs),
    )  # fmt: skip
    return _pack(FrameKind.REPLY, number, said, reply.outputs)


def unpack_reply(frame: Frame) -> tuple[Reply, int]:
    """Return the reply of a REPLY, and how long the other gateway had the call. Raises ProtocolError.

    `answered_us` of the reply is 1 if the call was computed: its receiver knows the instant.
    """
    _, said = _unpack(frame)
    try:
        reason, took_us, times, words, accuracy, confidence, rehearsed, computed, places = said
        reply = Reply(_OUTCOMES[reason])
        for name, value in zip(_TIMES, times, strict=True):
            setattr(reply, name, int(value))
        for name, value in zip(_WORDS, words, strict=True):
            setattr(reply, name, str(value))
        reply.accuracy = None if accuracy is None else float(accuracy)
        reply.confidence = None if confidence is None else float(confidence)
        reply.rehearsed, reply.answered_us = bool(rehearsed), int(bool(computed))
        reply.outputs = _tensors(places, frame.payload)
        return reply, int(took_us)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ProtocolError(f"sends a reply that cannot be read: {error}") from None


def pack_part(number: int, outputs: Sequence[Tensor], version: int) -> list[Buffer]:
    """Return the buffers of a PART: one of the answers of a decoupled model, and its version."""
    return _pack(FrameKind.PART, number, (version, _places(outputs)), outputs)


def unpack_part(frame: Frame) -> tuple[list[Tensor], int]:
    """Return the outputs of a PART, and its version. Raises ProtocolError."""
    _, said = _unpack(frame)
    try:
        version, places = said
        return _tensors(places, frame.payload), int(version)
    except (TypeError, ValueError, OverflowError) as error:
        raise ProtocolError(f"sends an answer that cannot be read: {error}") from None


def _check(inputs: Sequence[Tensor], rows: object) -> None:
    """Raise ValueError if inputs are not `rows` rows each, or have other bytes than they take."""
    for each in inputs:
        if each.datatype == ABSENT and not len(each.data):
            continue
        item = ITEM_BYTES.get(each.datatype)
        if item is None or each.shape[:1] != (rows,) or (item and prod(each.shape) * item != len(each.data)):
            raise ValueError(f"{each!r} is no input of {rows!r} rows")


def _places(tensors: Sequence[Tensor]) -> list[tuple[str, str, tuple[int, ...], int]]:
    return [(each.name, each.datatype, each.shape, len(each.data)) for each in tensors]


def _tensors(places: Sequence[Any], payload: memoryview) -> list[Tensor]:
    """Return the tensors that lie in a payload, over a copy of it: the receive buffer is used again."""
    data, start, found = memoryview(bytes(payload)), 0, []
    for name, datatype, shape, size in places:
        if size < 0 or start + size > len(data):
            raise ValueError(f"tensor {name!r} of {size} bytes is longer than its frame")
        found.append(Tensor(str(name), str(datatype), tuple(map(int, shape)), data[start : start + size]))
        start += size
    if start != len(data):
        raise ValueError(f"{len(data) - start} bytes belong to no tensor")
    return found


def _pack(kind: FrameKind, number: int, said: object, tensors: Sequence[Tensor]) -> list[Buffer]:
    meta = _NUMBER.pack(number) + orjson.dumps(said)
    payload = [each.data for each in tensors if len(each.data)]
    return [pack_frame(kind, meta, sum(map(len, payload))), *payload]


def _unpack(frame: Frame) -> tuple[int, Any]:
    number = number_of(frame)
    try:
        return number, orjson.loads(bytes(frame.meta[_NUMBER.size :]).rstrip(b"\0"))
    except orjson.JSONDecodeError as error:
        raise ProtocolError(f"sends a frame whose JSON is broken: {error}") from None
