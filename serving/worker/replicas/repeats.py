"""Whether two answers to one question are the same: of models that say that they are deterministic."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from serving.values.specs import TensorSpec
from serving.worker.frames.arrays import DTYPES
from serving.worker.frames.batches import EncodedOutput

TOLERANCE: Final = 2.0**-6
"""By what floats may differ, as a share of the largest of their output. The spacing of bfloat16, the coarsest
datatype that models compute in, is 2**-7 at 1; a GPU that adds up in another order each time (atomic adds,
split sums) rounds the other way now and then. Two such steps are allowed, whatever datatype the answer
has."""

_FLOATS: Final = ("FP16", "BF16", "FP32", "FP64")


class CopiedOutput(NamedTuple):
    """An output that stays as it is, whatever the model does with its buffers afterwards."""

    datatype: str
    dims: tuple[int, ...]
    data: bytes


def kept(outputs: Sequence[EncodedOutput]) -> list[CopiedOutput]:
    """Return copies of the outputs."""
    return [CopiedOutput(each.datatype, tuple(each.dims), bytes(each.data)) for each in outputs]


def difference(
    specs: Sequence[TensorSpec], first: Sequence[CopiedOutput], second: Sequence[CopiedOutput]
) -> str:
    """Return in words how two answers to one question differ; "" if they are the same.

    Whole numbers, BOOL and BYTES are the same if they are equal, floats within TOLERANCE, NaN if both are.
    """
    for spec, one, other in zip(specs, first, second, strict=True):
        if one == other:
            continue
        if (one.datatype, one.dims) != (other.datatype, other.dims):
            return f"output {spec.name!r} had the shape {list(one.dims)} and then {list(other.dims)}"
        if one.datatype not in _FLOATS:
            return f"output {spec.name!r} had other values the second time"
        if told := _floats_differ(_floats(one), _floats(other)):
            return f"output {spec.name!r} {told}"
    return ""


def _floats(answer: CopiedOutput) -> npt.NDArray[np.float64]:
    if answer.datatype == "BF16":  # the upper half of an FP32
        return (np.frombuffer(answer.data, "<u2").astype("<u4") << 16).view("<f4").astype(np.float64)
    return np.frombuffer(answer.data, DTYPES[answer.datatype]).astype(np.float64)


def _floats_differ(one: npt.NDArray[np.float64], other: npt.NDArray[np.float64]) -> str:
    same = (one == other) | (np.isnan(one) & np.isnan(other))
    finite = np.isfinite(one) & np.isfinite(other)
    largest = max(np.abs(one[finite]).max(initial=0.0), np.abs(other[finite]).max(initial=0.0))
    near = np.zeros_like(same)
    near[finite] = np.abs(one[finite] - other[finite]) <= TOLERANCE * largest
    apart = np.flatnonzero(~(same | near))
    if not apart.size:
        return ""
    return f"was {one[apart[0]]:.6g} and then {other[apart[0]]:.6g}"
