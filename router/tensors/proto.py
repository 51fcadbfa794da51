"""Open Inference Protocol over gRPC: `ModelInferRequest` in, `ModelInferResponse` out.

Inputs come raw (`raw_input_contents`) or typed (`contents`); outputs always leave raw, because that
is what Triton's clients read.
"""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any  # the generated protobuf classes carry no types

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from tritonclient.grpc import service_pb2

from router.tensors.check import ClaimedInput, arrange, check_count, check_size, find_outputs
from router.tensors.classes import PARAMETER as CLASSES
from router.tensors.classes import classify, read_classes
from router.tensors.decoded import MODEL_VERSION, Decoded, RequestedOutput
from router.tensors.elements import pack_elements
from router.tensors.errors import bad_input, too_large
from router.tensors.extensions import OUTPUT, only_binary, refuse_unread
from router.tensors.heading import Heading
from router.tensors.messages import SMALL_BYTES, Outline, count_contents, damaged, outline, split
from router.tensors.parameters import read
from router.tensors.wording import quoted, written
from serving.ports import Reply
from serving.specs import Limits, ServedModel
from serving.tensor import Buffer, Tensor

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
    datatype: service_pb2.InferTensorContents.DESCRIPTOR.fields_by_name[_CONTENTS[datatype]].number << 3 | 2
    for datatype in ("BOOL", "FP32", "FP64")
}
"""Tags of the fields whose packed wire form is the tensor's raw form, byte by byte."""


_RAW = service_pb2.ModelInferResponse.DESCRIPTOR.fields_by_name["raw_output_contents"].number << 3 | 2


def parse(message: bytes, found: Outline) -> tuple[Any, Sequence[Buffer] | None]:
    """Return the ModelInferRequest, and of a large one its raw contents apart, as views of the message.
    RequestError (BAD_INPUT) for a damaged one."""
    raw: Sequence[Buffer] | None = None
    rest = message
    if len(message) > SMALL_BYTES:
        rest, raw = split(message, found)
    try:
        request = service_pb2.ModelInferRequest.FromString(rest)
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
    arrange(model, claims, limits)
    if raw:
        _only_raw(inputs, raw)
        return message
    for claim, entry in zip(claims, inputs, strict=True):
        request.raw_input_contents.append(_typed(claim, entry.contents))
        entry.ClearField("contents")
    unfolded: bytes = request.SerializeToString()
    return unfolded


def check_besides(found: Outline) -> None:
    """TOO_LARGE where a request whose tensors are raw says more besides them than can be read at once."""
    if found.besides > SMALL_BYTES:
        raise too_large(
            f"the request has {found.besides} bytes besides its tensors; at most {SMALL_BYTES} are accepted"
        )


def decode(
    request: Any, model: ServedModel, limits: Limits, apart: Sequence[Buffer] | None = None
) -> Decoded:
    """Return the request; RequestError for everything that cannot be served as it stands. `apart`: its raw
    contents, where `parse` has kept them out of it."""
    raw = request.raw_input_contents if apart is None else apart
    inputs = request.inputs
    check_count("inputs", len(inputs), limits)
    claims = [ClaimedInput(entry.name, entry.datatype, tuple(entry.shape)) for entry in inputs]
    order = arrange(model, claims, limits)
    for entry in inputs:
        if entry.parameters:
            refuse_unread(f"input '{entry.name}'", _values(entry.parameters), ("binary_data_size",))
    if raw:
        _only_raw(inputs, raw)
    tensors: list[Tensor] = []
    for place in order:
        claim = claims[place]
        data = raw[place] if raw else _typed(claim, inputs[place].contents)
        check_size(claim, len(data), limits)
        if inputs[place].parameters:
            _same_size(claim, _values(inputs[place].parameters), len(data))
        tensors.append(Tensor(claim.name, claim.datatype, claim.shape, data))
    parameters = _values(request.parameters)
    only_binary("the request", parameters, "binary_data_output")
    heading = Heading(
        model,
        [claims[place] for place in order],
        request.id,
        _wanted(request, model, limits),
        read(parameters, model),
    )
    return heading.complete(tensors)


def encode(decoded: Decoded, reply: Reply) -> bytes:
    """Return the ModelInferResponse of a COMPLETED request, as it is sent: raw contents are its last field,
    and a message with them in it would copy each twice more."""
    response = service_pb2.ModelInferResponse(
        model_name=decoded.call.model.spec.name, model_version=MODEL_VERSION, id=decoded.id
    )
    raw: list[Buffer] = []
    for wanted in decoded.wanted:
        tensor = reply.outputs[wanted.index]
        if wanted.classes:
            tensor = classify(tensor, decoded.call.model.spec.outputs[wanted.index], wanted.classes)
        response.outputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
        raw += (_head(_RAW, len(tensor.data)), tensor.data)
    return b"".join((response.SerializeToString(), *raw))


def _only_raw(inputs: Any, raw: Any) -> None:
    if len(raw) != len(inputs):
        raise bad_input(
            f"the request has {len(inputs)} inputs, but {len(raw)} entries in raw_input_contents; "
            "expected one for each input"
        )
    for entry in inputs:
        if entry.HasField("contents") and entry.contents.ByteSize():
            raise bad_input(
                f"input '{entry.name}' has contents although raw_input_contents is in use; send one of them"
            )


def _typed(claim: ClaimedInput, contents: Any) -> bytes:
    """Return the raw form of typed contents, whose number of elements has to be that of the shape."""
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
            f"input '{claim.name}': shape {written(claim.shape)} takes {elements} elements, got {len(values)}"
        )
    return pack_elements(claim.name, datatype, claim.shape, values, booleans=False)


def _same_size(claim: ClaimedInput, parameters: Mapping[str, object], size: int) -> None:
    """Some clients repeat here what they say over REST."""
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
        return tuple(RequestedOutput(index, True) for index in range(len(model.spec.outputs)))
    check_count("outputs", len(asked), limits)
    classes = [_classes(entry) if entry.parameters else 0 for entry in asked]
    indices = find_outputs(model, [entry.name for entry in asked])
    return tuple(RequestedOutput(index, True, count) for index, count in zip(indices, classes, strict=True))


def _classes(entry: Any) -> int:
    """Return how many classes are asked for in place of an output."""
    what, asked = f"output {quoted(entry.name)}", _values(entry.parameters)
    refuse_unread(what, asked, OUTPUT)
    only_binary(what, asked, "binary_data")
    return read_classes(asked.get(CLASSES), what)


def _values(parameters: Any) -> Mapping[str, object]:
    """Request parameters as plain values; one without a value reads None."""
    values: dict[str, object] = {}
    for name, parameter in parameters.items():
        kind = parameter.WhichOneof("parameter_choice")
        values[name] = getattr(parameter, kind) if kind else None
    return values
