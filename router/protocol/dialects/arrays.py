"""Values as JSON nests them, as input tensors: rows of one input, or of each input by its name."""

from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Mapping, Sequence
from math import prod

from router.protocol.dialects.question import Row
from router.tensors.parts.elements import pack_elements
from router.tensors.parts.errors import bad_input
from router.tensors.parts.nesting import flatten
from router.tensors.parts.wording import listed, quoted
from router.tensors.request.check import ClaimedInput, arrange, check_size
from serving.values.specs import Limits, ModelSpec, ServedModel, TensorSpec
from serving.values.tensor import ANY

Batches = Mapping[str, list[object]]
"""The values of each input: one a row."""


def from_rows(rows: list[object], model: ServedModel, limits: Limits) -> Sequence[Row]:
    """Return the tensors of rows: each is the value of the only input, or an object with all inputs."""
    spec = model.spec
    named = [_is_named(each) for each in rows]
    if not any(named):
        if len(spec.inputs) > 1:
            raise bad_input(f"each instance must be an object with {_inputs(spec)}, got {quoted(rows[0])}")
        return pack({spec.inputs[0].name: rows}, model, limits)
    batches: dict[str, list[object]] = {}
    for place, row in enumerate(rows):
        if not isinstance(row, dict) or not named[place]:
            raise bad_input(f"instances[{place}] must be an object with {_inputs(spec)}, as others are")
        if batches and row.keys() != batches.keys():
            raise bad_input(f"instances[{place}] has other inputs than instances[0]")
        for name, value in row.items():
            batches.setdefault(name, []).append(value)
    return pack(batches, model, limits)


def from_batches(content: object, model: ServedModel, limits: Limits) -> Sequence[Row]:
    """Return the tensors of batches: of the only input, or an object with the batch of each input."""
    spec = model.spec
    found = content if isinstance(content, dict) else {spec.inputs[0].name: content}
    if not isinstance(content, dict) and len(spec.inputs) > 1:
        raise bad_input(f"'inputs' of the request must be an object with {_inputs(spec)}")
    batches: dict[str, list[object]] = {}
    for name, batch in found.items():
        if not isinstance(batch, list) or not batch:
            raise bad_input(f"the batch of input {quoted(name)} must be a list of rows, got {quoted(batch)}")
        batches[name] = batch
    return pack(batches, model, limits)


def pack(batches: Batches, model: ServedModel, limits: Limits) -> Sequence[Row]:
    """Return the tensors, checked against the model and the limits. RequestError where they do not fit."""
    known = {tensor.name: tensor for tensor in model.spec.inputs}
    claims: list[ClaimedInput] = []
    flat: list[list[object]] = []
    for name, values in batches.items():
        tensor = known.get(name)
        claim, elements = _claim(name, tensor, values)
        claims.append(claim)
        flat.append(elements)
    arrange(model, claims, limits)
    tensors: list[Row] = []
    for claim, elements in zip(claims, flat, strict=True):
        content = flatten(claim.name, claim.shape, elements)
        if claim.datatype == "BYTES":
            content = [_unwrapped(claim.name, each) for each in content]
        data = pack_elements(claim.name, claim.datatype, claim.shape, content, booleans=True)
        check_size(claim, len(data), limits)
        tensors.append((claim.name, claim.datatype, claim.shape, data))
    return tensors


def _claim(name: str, tensor: TensorSpec | None, values: list[object]) -> tuple[ClaimedInput, list[object]]:
    """Return what the values are, and the values, flat where a row is flat and the model's is not."""
    first = values[0]
    dims = _dims(first)
    wanted = tensor.shape[1:] if tensor is not None else dims
    datatype = tensor.datatype if tensor is not None else "FP32"
    if datatype == ANY:
        datatype = _datatype(first)
    if not dims and all(dim in (1, -1) for dim in wanted):
        return ClaimedInput(name, datatype, (len(values), *(1 for _ in wanted))), values
    if len(dims) == 1 and len(wanted) > 1 and -1 not in wanted and prod(wanted) == dims[0]:
        flat: list[object] = []
        for place, row in enumerate(values):
            if not isinstance(row, list) or len(row) != dims[0]:
                raise bad_input(f"input {quoted(name)}: row {place} must be a list of {dims[0]} values")
            flat += row
        return ClaimedInput(name, datatype, (len(values), *wanted)), flat
    return ClaimedInput(name, datatype, (len(values), *dims)), values


def _dims(value: object) -> tuple[int, ...]:
    """Return how the first row is nested."""
    dims: list[int] = []
    while isinstance(value, list):
        dims.append(len(value))
        value = value[0] if value else None
    return tuple(dims)


def _datatype(value: object) -> str:
    """Return the datatype of a value, for an input that takes any."""
    while isinstance(value, list) and value:
        value = value[0]
    if isinstance(value, bool):
        return "BOOL"
    if isinstance(value, int):
        return "INT64"
    return "BYTES" if isinstance(value, str | bytes | dict) else "FP64"


def _is_named(row: object) -> bool:
    """Return whether a row names its inputs; `{"b64": ...}` is a value."""
    return isinstance(row, dict) and [*row] != ["b64"]


def _unwrapped(name: str, element: object) -> object:
    """Return the bytes that `{"b64": ...}` holds; other values as they are."""
    if not isinstance(element, dict):
        return element
    text = element.get("b64")
    if [*element] != ["b64"] or not isinstance(text, str):
        raise bad_input(f'input {quoted(name)}: an object must be {{"b64": TEXT}}')
    try:
        return b64decode(text, validate=True)
    except (Base64Error, ValueError) as error:
        raise bad_input(f"input {quoted(name)}: 'b64' holds no base64: {error}") from None


def _inputs(spec: ModelSpec) -> str:
    return listed(tensor.name for tensor in spec.inputs)
