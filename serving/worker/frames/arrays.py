"""Raw tensor bytes to the arrays a model sees, and its arrays back to bytes that its spec promises.

BYTES are object arrays of `bytes`; BF16 are uint16 bit patterns, as numpy has no such type.
"""

import struct
from collections.abc import Mapping, Sequence
from math import prod
from typing import Final

import numpy as np
import numpy.typing as npt

from serving.values.specs import TensorSpec
from serving.values.tensor import ABSENT, ANY
from serving.worker.frames.batches import EncodedOutput, TensorPlace

Array = npt.NDArray[np.generic]
Arrays = dict[str, Array]

DTYPES: Final[Mapping[str, np.dtype[np.generic]]] = {
    "BOOL": np.dtype("?"), "UINT8": np.dtype("u1"), "UINT16": np.dtype("<u2"), "UINT32": np.dtype("<u4"),
    "UINT64": np.dtype("<u8"), "INT8": np.dtype("i1"), "INT16": np.dtype("<i2"), "INT32": np.dtype("<i4"),
    "INT64": np.dtype("<i8"), "FP16": np.dtype("<f2"), "BF16": np.dtype("<u2"), "FP32": np.dtype("<f4"),
    "FP64": np.dtype("<f8"), "BYTES": np.dtype(object),
}  # fmt: skip
"""What a model sees of each OIP datatype."""

_DATATYPES = {dtype: name for name, dtype in DTYPES.items() if name != "BF16"}
_LENGTH = struct.Struct("<I")


class TensorError(Exception):
    """A tensor is not what was promised; the text is one sentence for the client or model that sent or
    computed it."""


def decode_inputs(
    specs: Sequence[TensorSpec], places: Sequence[TensorPlace], rows: int, payload: memoryview
) -> Arrays:
    """Return the inputs by name, `rows` first, without absent ones. They lie in the payload: a model may
    change them, not keep them.

    Raises TensorError if the count or the bytes do not fit.
    """
    if len(places) != len(specs):
        raise TensorError(f"the batch has {len(places)} inputs, the model takes {len(specs)}")
    arrays: Arrays = {}
    start = 0
    for spec, place in zip(specs, places, strict=True):
        if place.datatype == ABSENT:
            continue
        end = start + place.byte_count
        arrays[spec.name] = _decode(spec.name, place, rows, payload[start:end])
        start = end
    return arrays


def _decode(name: str, place: TensorPlace, rows: int, data: memoryview) -> Array:
    shape = (rows, *place.dims)
    count = prod(shape)
    if place.datatype == "BYTES":
        return _decode_bytes(name, shape, data)
    dtype = DTYPES[place.datatype]
    wanted = count * dtype.itemsize
    if len(data) != wanted:
        raise TensorError(
            f"input {name!r} has {len(data)} bytes, {place.datatype} {list(shape)} takes {wanted}"
        )
    array = np.frombuffer(data, dtype).reshape(shape)
    return array if array.flags.aligned else array.copy()  # behind an input of odd length


def _decode_bytes(name: str, shape: tuple[int, ...], data: memoryview) -> Array:
    elements: list[bytes] = []
    position = 0
    while position < len(data):
        start = position + _LENGTH.size
        position = start + _LENGTH.unpack_from(data, position)[0] if start <= len(data) else start
        if position > len(data):
            raise TensorError(f"input {name!r}: element {len(elements)} runs past the end of the data")
        elements.append(bytes(data[start:position]))
    if len(elements) != prod(shape):
        raise TensorError(
            f"input {name!r} has {len(elements)} elements, BYTES {list(shape)} takes {prod(shape)}"
        )
    array = np.empty(len(elements), object)
    array[:] = elements
    return array.reshape(shape)


def datatype_of(array: Array) -> str:
    """Return the datatype that an array of a model stands for; TensorError where none fits."""
    name = _DATATYPES.get(array.dtype)
    if name is None:
        raise TensorError(f"no datatype stands for numpy's {array.dtype}")
    return name


def encode_outputs(
    specs: Sequence[TensorSpec], outputs: object, rows: int, any_datatype: str
) -> list[EncodedOutput]:
    """Return a model's answer in the order of its spec; `any_datatype` is the datatype of the batch's first
    input.

    Raises TensorError if an output is missing, unknown, of the wrong shape, or of a type that would lose its
    meaning.
    """
    if not isinstance(outputs, Mapping):
        raise TensorError(f"predict returned {type(outputs).__name__}, expected a dict of arrays")
    if len(outputs) != len(specs) or any(spec.name not in outputs for spec in specs):
        got, expected = sorted(map(str, outputs)), [spec.name for spec in specs]
        raise TensorError(f"predict returned the outputs {got}, expected {expected}")
    return [
        _encode(spec, outputs[spec.name], rows, any_datatype if spec.datatype == ANY else spec.datatype)
        for spec in specs
    ]


def _encode(spec: TensorSpec, array: object, rows: int, datatype: str) -> EncodedOutput:
    if not isinstance(array, np.ndarray):
        raise TensorError(f"output {spec.name!r} is a {type(array).__name__}, expected numpy.ndarray")
    shape: tuple[int, ...] = array.shape
    expected = (rows, *spec.shape[1:])
    if len(shape) != len(expected) or any(
        want not in (-1, got) for want, got in zip(expected, shape, strict=True)
    ):
        raise TensorError(f"output {spec.name!r} has shape {list(shape)}, expected {list(expected)}")
    if datatype == "BYTES":
        return _encode_bytes(spec.name, array, rows)
    dtype = DTYPES[datatype]
    if array.dtype != dtype:
        array = _cast(spec.name, array, datatype, dtype)
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return EncodedOutput(datatype, shape[1:], flat.data)


def _cast(name: str, array: Array, datatype: str, dtype: np.dtype[np.generic]) -> Array:
    # Bit patterns do not survive a conversion of numbers: BF16 must come as what it is.
    if datatype == "BF16" or not np.can_cast(array.dtype, dtype, "same_kind"):
        raise TensorError(f"output {name!r} has dtype {array.dtype}, {datatype} needs {dtype}")
    return array.astype(dtype)


def _encode_bytes(name: str, array: Array, rows: int) -> EncodedOutput:
    if array.dtype.kind not in "OS":
        raise TensorError(f"output {name!r} has dtype {array.dtype}, BYTES needs an object array of bytes")
    elements: list[object] = array.reshape(-1).tolist()
    parts: list[bytes] = []
    for index, element in enumerate(elements):
        if not isinstance(element, bytes):
            raise TensorError(
                f"output {name!r}: element {index} is a {type(element).__name__}, BYTES needs bytes"
            )
        parts.append(_LENGTH.pack(len(element)) + element)
    width = prod(array.shape[1:])
    row_bytes = [sum(map(len, parts[row * width : (row + 1) * width])) for row in range(rows)]
    return EncodedOutput("BYTES", array.shape[1:], b"".join(parts), row_bytes)
