"""The check whether an answer from elsewhere is one that the model could have given to the request."""

from math import prod
from struct import Struct

from serving.cache.entries import KeptAnswer
from serving.values.specs import ModelSpec, TensorSpec
from serving.values.tensor import ANY, ITEM_BYTES, Tensor

_LENGTH = Struct("<I")  # before each element of BYTES
FREE = -1


def fault_of(entry: KeptAnswer, spec: ModelSpec, rows: int) -> str:
    """Return the fault of an entry as the answer of `spec` to a request of `rows` rows; "" if it has none."""
    if entry.variant not in [variant.name for variant in spec.variants]:
        return f"the model has no variant {entry.variant!r}"
    names = [tensor.name for tensor in entry.outputs]
    if names != [expected.name for expected in spec.outputs]:
        wanted = [expected.name for expected in spec.outputs]
        return f"its outputs are {names}, expected {wanted}"
    pairs = zip(entry.outputs, spec.outputs, strict=True)
    return next(filter(None, (_fault_of(tensor, expected, rows) for tensor, expected in pairs)), "")


def _fault_of(tensor: Tensor, expected: TensorSpec, rows: int) -> str:
    if expected.datatype not in (tensor.datatype, ANY):
        return f"its output {tensor.name!r} is {tensor.datatype}, expected {expected.datatype}"
    shape = (rows, *expected.shape[1:])
    if len(tensor.shape) != len(shape) or any(
        want not in (FREE, got) for got, want in zip(tensor.shape, shape, strict=True)
    ):
        return f"its output {tensor.name!r} has the shape {[*tensor.shape]}, expected {[*shape]}"
    if not ITEM_BYTES[tensor.datatype] and not _holds(tensor):
        return f"the elements of its output {tensor.name!r} are not as many as its shape says"
    return ""


def _holds(tensor: Tensor) -> bool:
    """Return whether BYTES data have as many elements as the shape says."""
    count, size = prod(tensor.shape), len(tensor.data)
    if count * _LENGTH.size > size:
        return False
    place = 0
    for _ in range(count):
        if place + _LENGTH.size > size:
            return False
        place += _LENGTH.size + _LENGTH.unpack_from(tensor.data, place)[0]
    return place == size
