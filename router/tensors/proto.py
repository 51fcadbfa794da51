"""Open Inference Protocol over gRPC: `ModelInferRequest` in, `ModelInferResponse` out.

Inputs come raw (`raw_input_contents`) or typed (`contents`); outputs always leave raw, because that
is what Triton's clients read.
"""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any  # the generated protobuf classes carry no types

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from router.tensors.answer.answered import Value, parameters_of, plain_outputs
from router.tensors.answer.classes import PARAMETER as CLASSES
from router.tensors.answer.classes import classify, read_classes
from router.tensors.heading import Heading
from router.tensors.messages import SMALL_BYTES, Outline, count_contents, damaged, outline, split
from router.tensors.parts.elements import pack_elements
from router.tensors.parts.errors import bad_input, too_large
from router.tensors.parts.places import (
    Memory,
    Place,
    fill,
    place_parameters,
    placed_inputs,
    read_place,
    refused_classes,
)
from router.tensors.parts.recent import Recent
from router.tensors.parts.wording import quoted, written
from router.tensors.protos.files import oip
from router.tensors.request.check import (
    ClaimedInput,
    arrange,
    check_count,
    check_size,
    find_outputs,
    in_one_row,
    left_out,
)
from router.tensors.request.decoded import Decoded, RequestedOutput
from router.tensors.request.extensions import INPUT, OUTPUT, only_binary, refuse_unread
from router.tensors.request.parameters import read
from serving.ports import Reply
from serving.values.specs import Limits, ServedModel
from serving.values.tensor import Buffer, Tensor
from serving.values.versions import ONLY, model_of

_CONTENTS = {
    "BOOL": "bool_contents",
    "INT8": "int_contents", "INT16": "int_contents", "INT32": "int_contents",
    "INT64": "int64_contents",
    "UINT8": "uint_contents", "UINT16": "uint_contents", "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents", "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}  # fmt: skip
"""The field of InferTensorContents for each datatype; FP16 and BF16 have none."""

_PACKED = {
    datatype: oip.InferTensorContents.DESCRIPTOR.fields_by_name[_CONTENTS[datatype]].number << 3 | 2
    for datatype in ("BOOL", "FP32", "FP64")
}
"""Tags of the fields whose packed wire form is the tensor's raw form, byte by byte."""


PLANNED_BYTES = 2048
"""A request that says more besides its tensors is parsed each time; with the 1024 of _PLANS they bound its
memory (about 10 MiB)."""

_RAW = oip.ModelInferResponse.DESCRIPTOR.fields_by_name["raw_output_contents"].number << 3 | 2
_ID = oip.ModelInferResponse.DESCRIPTOR.fields_by_name["id"].number << 3 | 2


class Plan:
    """What a request says before its raw contents, checked. Clients say the same from call to call."""

    __slots__ = ("_heading", "_pieces", "_placed", "limits", "model")

    def __init__(
        self,
        heading: Heading,
        model: ServedModel,
        pieces: Sequence[tuple[ClaimedInput, int]],
        placed: Sequence[tuple[int, Place]],
        limits: Limits,
    ) -> None:
        """Build the plan. `pieces`: the inputs in the order of the spec, each with its place among the raw
        contents, -1 for those that are `placed` in the client's memory."""
        self.model = model
        self.limits = limits
        self._heading = heading
        self._placed = placed
        self._pieces = [
            (claim, place, -1 if claim.datatype == "BYTES" else claim.data_bytes) for claim, place in pieces
        ]

    def take(self, message: bytes, found: Outline, memory: Memory | None = None) -> Decoded:
        """Return the request; RequestError where its data are not what it says; CopyFirst."""
        raw, tensors = found.raw, []
        body: Buffer = memoryview(message) if len(message) > SMALL_BYTES else message
        for claim, place, size in self._pieces:
            if place < 0:
                tensors.append(Tensor(claim.name, claim.datatype, claim.shape, b""))
                continue
            each = raw[place]
            length = each.end - each.start
            if length != size:
                check_size(claim, length, self.limits)
            tensors.append(Tensor(claim.name, claim.datatype, claim.shape, body[each.start : each.end]))
        if self._placed:
            fill(tensors, self._placed, memory)
        return self._heading.complete(tensors, memory)


_PLANS: Recent[tuple[bytes, int], Plan] = Recent(512)
"""By what stands before the raw contents, and by how many these are."""

_OPENINGS: Recent[tuple[str, int], bytes] = Recent(256)
_OUTPUTS: Recent[tuple[str, str, tuple[int, ...]], bytes] = Recent(512)
_PLACED_OUTPUTS: Recent[tuple[str, str, tuple[int, ...], int, Place], bytes] = Recent(512)


def key_of(message: bytes, found: Outline) -> tuple[bytes, int] | None:
    """Return by what its plan is known; None for a request that has none: it is long, or its raw contents do
    not end it. One without raw contents may have all its inputs in the client's memory."""
    if found.key is not None:
        return found.key
    raw = found.raw
    if not raw:
        return (message, 0) if len(message) <= PLANNED_BYTES else None
    if raw[0].head > PLANNED_BYTES:
        return None
    at = raw[0].head
    for each in raw:
        if each.head != at:
            return None
        at = each.end
    if at == len(message):
        found.key = message[: raw[0].head], len(raw)
    return found.key


def recall(key: tuple[bytes, int] | None, limits: Limits) -> Plan | None:
    """Return the plan of such a request, where one was decoded before."""
    plan = None if key is None else _PLANS.get(key)
    return plan if plan is not None and plan.limits is limits else None


def parse(message: bytes, found: Outline) -> tuple[Any, Sequence[Buffer] | None]:
    """Return the ModelInferRequest, and of a large one its raw contents apart, as views of the message.
    RequestError (BAD_INPUT) for a damaged one."""
    raw: Sequence[Buffer] | None = None
    rest = message
    if len(message) > SMALL_BYTES:
        rest, raw = split(message, found)
    try:
        request = oip.ModelInferRequest.FromString(rest)
    except DecodeError:
        raise damaged(len(message)) from None
    return request, raw


def unfold(message: bytes, model: ServedModel, limits: Limits) -> bytes:
    """Return the same request with raw contents in place of typed ones. RequestError for what `decode`
    refuses of its inputs, and for more elements than the limits allow."""
    found = outline(message, limits)
    count_contents(message, found, limits)
    request, apart = parse(message, found)
    raw = request.raw_input_contents if apart is None else apart
    inputs = request.inputs
    check_count("inputs", len(inputs), limits)
    claims = [ClaimedInput(entry.name, entry.datatype, tuple(entry.shape)) for entry in inputs]
    in_one_row(model, claims)
    arrange(model, [*claims, *left_out(model, claims)], limits)
    places = [_place_of(entry) for entry in inputs]
    if raw:
        _only_raw(inputs, raw, places)
        return message
    for claim, entry, place in zip(claims, inputs, places, strict=True):
        if place is not None:
            continue
        request.raw_input_contents.append(_typed(claim, entry.contents))
        entry.ClearField("contents")
    unfolded: bytes = request.SerializeToString()
    return unfolded


def check_besides(found: Outline) -> None:
    """Raise RequestError (TOO_LARGE) if a request with raw tensors says more besides them than can be read at
    once."""
    if found.besides > SMALL_BYTES:
        raise too_large(
            f"the request has {found.besides} bytes besides its tensors; at most {SMALL_BYTES} are accepted"
        )


def decode(
    request: Any,
    model: ServedModel,
    limits: Limits,
    apart: Sequence[Buffer] | None = None,
    key: tuple[bytes, int] | None = None,
    memory: Memory | None = None,
) -> Decoded:
    """Return the request; RequestError for everything that cannot be served as it stands; CopyFirst.

    `apart`: its raw contents, where `parse` has kept them out of it. `key`: by what its plan is to be known.
    `memory`: what its caller has registered, None where no shared memory is served.
    """
    raw = request.raw_input_contents if apart is None else apart
    inputs = request.inputs
    check_count("inputs", len(inputs), limits)
    claims = [ClaimedInput(entry.name, entry.datatype, tuple(entry.shape)) for entry in inputs]
    in_one_row(model, claims)
    claims += left_out(model, claims)
    order = arrange(model, claims, limits)
    places = [_place_of(entry) for entry in inputs]
    at_raw = _only_raw(inputs, raw, places) if raw else []
    says_little = all(lies or not entry.parameters for lies, entry in zip(places, inputs, strict=True))
    lacking = len(claims) - len(inputs)
    places += [None] * lacking
    at_raw += [-1] * lacking
    tensors: list[Tensor] = []
    for at in order:
        claim, lies = claims[at], places[at]
        data: Buffer = b""
        if not claim.absent:
            data = b"" if lies else raw[at_raw[at]] if raw else _typed(claim, inputs[at].contents)
            _check_stated(claim, inputs[at], lies.size if lies else len(data), limits)
        tensors.append(Tensor(claim.name, claim.datatype, claim.shape, data))
    parameters = _values(request.parameters)
    only_binary("the request", parameters, "binary_data_output")
    wanted = _wanted(request, model, limits)
    heading = Heading(model, [claims[at] for at in order], request.id, wanted, read(parameters, model))
    placed = placed_inputs([places[at] for at in order])
    if placed:
        fill(tensors, placed, memory)
    decoded = heading.complete(tensors, memory)
    if key is not None and says_little and (raw or len(placed) == len(inputs)):
        pieces = [(claims[at], at_raw[at] if raw else -1) for at in order]
        _PLANS.put(key, Plan(heading, model, pieces, placed, limits))
    return decoded


def encode(decoded: Decoded, reply: Reply) -> bytes:
    """Return the ModelInferResponse of a COMPLETED request, as it is sent: raw contents are its last field,
    and a message with them in it would copy each twice more."""
    spec = decoded.call.model.spec
    told = spec.name, reply.version or spec.version
    parts: list[Buffer] = [_OPENINGS.get(told) or _opening(told)]
    if decoded.id:
        text = decoded.id.encode()
        parts += (_head(_ID, len(text)), text)
    if parameters := parameters_of(decoded, reply.outputs):
        parts.append(_parameters(parameters))
    raw: list[Buffer] = []
    for wanted in decoded.wanted:
        tensor = reply.outputs[wanted.index]
        if wanted.classes:
            tensor = classify(tensor, spec.outputs[wanted.index], wanted.classes)
        if spec.unbatched:
            tensor = tensor.without_batch()
        said = tensor.name, tensor.datatype, tensor.shape
        if wanted.place is not None:
            placed = (*said, len(tensor.data), wanted.place)
            parts.append(_PLACED_OUTPUTS.get(placed) or _placed_output(*placed))
            raw.append(_head(_RAW, 0))  # clients count the entries
            continue
        parts.append(_OUTPUTS.get(said) or _output(*said))
        raw += (_head(_RAW, len(tensor.data)), tensor.data)
    return b"".join((*parts, *raw))


def _parameters(values: Mapping[str, Value]) -> bytes:
    """Return the field of an answer's parameters."""
    response = oip.ModelInferResponse()
    for name, value in values.items():
        parameter = response.parameters[name]
        if isinstance(value, bool):
            parameter.bool_param = value
        elif isinstance(value, str):
            parameter.string_param = value
        elif isinstance(value, float):
            parameter.double_param = value
        elif value < 1 << 63:
            parameter.int64_param = value
        else:
            parameter.uint64_param = value
    field: bytes = response.SerializeToString()
    return field


def _opening(told: tuple[str, int]) -> bytes:
    """Return the first fields of every answer of a version of a model, and remember them."""
    name, version = told
    opening = oip.ModelInferResponse(model_name=model_of(name), model_version=str(version or ONLY))
    _OPENINGS.put(told, opening.SerializeToString())
    return bytes(opening.SerializeToString())


def _output(name: str, datatype: str, shape: tuple[int, ...]) -> bytes:
    """Return the field of an output without its data, and remember it."""
    response = oip.ModelInferResponse()
    response.outputs.add(name=name, datatype=datatype, shape=shape)
    field: bytes = response.SerializeToString()
    _OUTPUTS.put((name, datatype, shape), field)
    return field


def _placed_output(name: str, datatype: str, shape: tuple[int, ...], size: int, place: Place) -> bytes:
    """Return the field of an output that lies in the client's memory, and remember it."""
    response = oip.ModelInferResponse()
    output = response.outputs.add(name=name, datatype=datatype, shape=shape)
    for key, value in place_parameters(place, size).items():
        if isinstance(value, int):
            output.parameters[key].int64_param = value
        else:
            output.parameters[key].string_param = value
    field: bytes = response.SerializeToString()
    _PLACED_OUTPUTS.put((name, datatype, shape, size, place), field)
    return field


def _place_of(entry: Any) -> Place | None:
    """Return where an input lies in the client's memory, None for in the message."""
    if not entry.parameters:
        return None
    what, asked = f"input {quoted(entry.name)}", _values(entry.parameters)
    refuse_unread(what, asked, INPUT)
    place = read_place(asked, what)
    if place is not None and entry.HasField("contents") and entry.contents.ByteSize():
        raise bad_input(f"{what} has contents and a place in shared memory; send one of them")
    return place


def _only_raw(inputs: Any, raw: Any, places: Sequence[Place | None]) -> list[int]:
    """Return at which of the raw contents each input has its data, -1 where it has a place in shared
    memory. RequestError unless each input has its data in one place."""
    at_raw: list[int] = []
    count = 0
    for place in places:
        at_raw.append(count if place is None else -1)
        count += place is None
    if len(raw) != count:
        here, each = (
            ("inputs", "input") if count == len(inputs) else ("inputs outside shared memory", "of them")
        )
        raise bad_input(
            f"the request has {count} {here}, but {len(raw)} entries in raw_input_contents; "
            f"expected one for each {each}"
        )
    for entry in inputs:
        if entry.HasField("contents") and entry.contents.ByteSize():
            raise bad_input(
                f"input '{entry.name}' has contents although raw_input_contents is in use; send one of them"
            )
    return at_raw


def _typed(claim: ClaimedInput, contents: Any) -> bytes:
    """Return the raw form of typed contents; they must have as many elements as the shape says."""
    datatype = claim.datatype
    elements = prod(claim.shape)
    tag = _PACKED.get(datatype)
    if tag is not None and elements:
        # Serialising hands back the packed field in one piece, 20 times cheaper than a list of numbers.
        wire: bytes = contents.SerializeToString()
        head = _head(tag, claim.data_bytes)
        if len(wire) == len(head) + claim.data_bytes and wire.startswith(head):
            return wire[len(head) :]
    field = _CONTENTS.get(datatype)
    if field is None:
        raise bad_input(
            f"input '{claim.name}': {datatype} has no typed contents in this protocol; "
            "send it in raw_input_contents"
        )
    for descriptor, _ in contents.ListFields():
        if descriptor.name != field:
            raise bad_input(
                f"input '{claim.name}': {datatype} belongs into contents.{field}, got {descriptor.name}"
            )
    values = list(getattr(contents, field))
    if len(values) != elements:
        raise bad_input(
            f"input '{claim.name}': shape {written(claim.told)} takes {elements} elements, got {len(values)}"
        )
    return pack_elements(claim.name, datatype, claim.told, values, booleans=False)


def _check_stated(claim: ClaimedInput, entry: Any, size: int, limits: Limits) -> None:
    """Raise RequestError unless data of that size is what the input says of it."""
    check_size(claim, size, limits)
    if entry.parameters:
        _same_size(claim, _values(entry.parameters), size)


def _same_size(claim: ClaimedInput, parameters: Mapping[str, object], size: int) -> None:
    """Raise RequestError if the binary_data_size that some clients repeat here, as over REST, differs from
    the data."""
    stated = parameters.get("binary_data_size", size)
    if stated != size:
        raise bad_input(
            f"input '{claim.name}': binary_data_size says {quoted(stated)} bytes, its data has {size}"
        )


def _head(tag: int, size: int) -> bytes:
    """Tag and length (a varint) of a packed field."""
    head = [tag]
    while size > 0x7F:
        head.append(size & 0x7F | 0x80)
        size >>= 7
    head.append(size)
    return bytes(head)


def _wanted(request: Any, model: ServedModel, limits: Limits) -> tuple[RequestedOutput, ...]:
    asked = request.outputs
    if not asked:
        return tuple(RequestedOutput(index, True) for index in plain_outputs(model.spec))
    check_count("outputs", len(asked), limits)
    forms = [_form(entry) if entry.parameters else (0, None) for entry in asked]
    indices = find_outputs(model, [entry.name for entry in asked])
    return tuple(RequestedOutput(index, True, *form) for index, form in zip(indices, forms, strict=True))


def _form(entry: Any) -> tuple[int, Place | None]:
    """Return how many classes are asked for in place of an output, and where in the client's memory it is
    to lie."""
    what, asked = f"output {quoted(entry.name)}", _values(entry.parameters)
    refuse_unread(what, asked, OUTPUT)
    only_binary(what, asked, "binary_data")
    classes, place = read_classes(asked.get(CLASSES), what), read_place(asked, what)
    if classes and place is not None:
        raise refused_classes(what)
    return classes, place


def _values(parameters: Any) -> Mapping[str, object]:
    """Return the request parameters as plain values; a parameter without a value reads None."""
    values: dict[str, object] = {}
    for name, parameter in parameters.items():
        kind = parameter.WhichOneof("parameter_choice")
        values[name] = getattr(parameter, kind) if kind else None
    return values
