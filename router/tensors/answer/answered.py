"""Outputs that an answer carries among its parameters: one value a row, as `parameter: true` declares.

Triton's backends may add parameters to a response; here a model states them as outputs, so that batches, kept
answers and guards treat them as they treat all outputs.
"""

import struct
from collections.abc import Mapping, Sequence
from typing import Final

from router.tensors.parts.elements import list_elements
from router.tensors.request.decoded import Decoded
from serving.values.specs import ModelSpec
from serving.values.tensor import ITEM_BYTES, Tensor

Value = bool | int | float | str

CHARACTERS: Final = 1024
"""Of a text; a longer one is cut."""

_LENGTH: Final = struct.Struct("<I")


def plain_outputs(spec: ModelSpec) -> list[int]:
    """Return the indices of the outputs that an answer has where its request names none."""
    return [index for index, each in enumerate(spec.outputs) if not each.parameter]


def parameters_of(decoded: Decoded, outputs: Sequence[Tensor]) -> Mapping[str, Value]:
    """Return the parameters of a COMPLETED answer: of each such output that the client does not ask for by
    name the value that all rows have. One with several values is left out."""
    if len(decoded.wanted) >= len(outputs):
        return {}
    asked = {wanted.index for wanted in decoded.wanted}
    found: dict[str, Value] = {}
    for index, spec in enumerate(decoded.call.model.spec.outputs):
        if spec.parameter and index not in asked:
            value = _value(outputs[index])
            if value is not None:
                found[spec.name] = value
    return found


def _value(tensor: Tensor) -> Value | None:
    """Return the value of all rows; None where they differ."""
    data, rows = bytes(tensor.data), tensor.shape[0]
    if tensor.datatype == "BYTES":
        size = _LENGTH.size + _LENGTH.unpack_from(data)[0]
    else:
        size = ITEM_BYTES[tensor.datatype]
    first = data[:size]
    if data != first * rows:
        return None
    if tensor.datatype == "BYTES":
        return first[_LENGTH.size :].decode(errors="replace")[:CHARACTERS]
    values = list_elements(Tensor(tensor.name, tensor.datatype, (1,), first))
    value: Value = values[0] if isinstance(values, list) else values[0].item()
    return value
