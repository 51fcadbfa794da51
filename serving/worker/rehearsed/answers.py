"""Well-shaped answers of models that nobody has loaded: zeros, or what the guards of the outputs let pass."""

import struct
from collections.abc import Sequence
from math import prod
from typing import Final

from serving.values.specs import TensorSpec
from serving.values.tensor import ANY, Buffer
from serving.worker.frames.batches import EncodedOutput, TensorPlace

_FORMATS: Final = {
    "BOOL": "?", "UINT8": "B", "UINT16": "H", "UINT32": "I", "UINT64": "Q",
    "INT8": "b", "INT16": "h", "INT32": "i", "INT64": "q", "FP16": "e", "FP32": "f", "FP64": "d",
}  # fmt: skip
_FLOATS: Final = ("FP16", "BF16", "FP32", "FP64")
_ZEROS: Final = memoryview(bytes(1 << 20))
_EMPTY: Final = 4  # bytes of an empty BYTES element: its length


Taken = tuple[Sequence[TensorSpec], Sequence[TensorPlace]]
"""The inputs of a batch: what the model says of them, and what came."""


def answer_of(specs: Sequence[TensorSpec], inputs: Taken, rows: int) -> list[EncodedOutput]:
    """Return the outputs of a batch, with the declared datatypes and shapes. All values are the same.

    A free dimension takes the size of its name, else of the first input with as many dimensions, or 1. BYTES
    are empty.
    """
    return [_output(spec, inputs, rows) for spec in specs]


def _output(spec: TensorSpec, inputs: Taken, rows: int) -> EncodedOutput:
    datatype = spec.datatype
    if datatype == ANY:
        datatype = inputs[1][0].datatype if inputs[1] else "FP32"
    dims = _dims(spec, inputs)
    width = prod(dims)
    if datatype == "BYTES":
        row_bytes = width * _EMPTY
        return EncodedOutput(datatype, dims, _repeated(b"\0", row_bytes * rows), [row_bytes] * rows)
    return EncodedOutput(datatype, dims, _repeated(_value(spec, datatype), width * rows))


def _dims(spec: TensorSpec, inputs: Taken) -> tuple[int, ...]:
    wanted = spec.shape[1:]
    if -1 not in wanted:
        return wanted
    named: dict[str, int] = {}
    for each, place in zip(*inputs, strict=False):
        named |= dict(zip(each.names[1:], place.dims, strict=False))
    like = next((each.dims for each in inputs[1] if len(each.dims) == len(wanted)), (1,) * len(wanted))
    names = spec.names[1:] or ("",) * len(wanted)
    return tuple(
        named.get(name, here) if want == -1 and name else here if want == -1 else want
        for want, here, name in zip(wanted, like, names, strict=True)
    )


def _value(spec: TensorSpec, datatype: str) -> bytes:
    """Return the bytes of a value that the output's guard takes, 0 if it takes that."""
    guard, value = spec.guard, 0.0
    if guard is not None and not guard.takes(value):
        bounds = [bound for bound in (guard.least, guard.most) if bound is not None]
        value = sum(bounds) / len(bounds) if bounds else 0.0
    if datatype == "BF16":  # the upper half of an FP32
        return struct.pack("<f", value)[2:]
    number = value if datatype in _FLOATS else round(value)
    return struct.pack(f"<{_FORMATS[datatype]}", number)


def _repeated(value: bytes, count: int) -> Buffer:
    size = len(value) * count
    if not any(value):
        return _ZEROS[:size] if size <= len(_ZEROS) else bytes(size)
    return value * count
