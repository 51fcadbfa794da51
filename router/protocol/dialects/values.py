"""An output's values as a matrix of FP32: a row for each row of the request."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from serving.values.specs import ModelSpec
from serving.values.tensor import Tensor

Matrix = npt.NDArray[np.float32]

_DTYPES: Final = {"FP16": "<f2", "FP32": "<f4", "FP64": "<f8"}


def floats(outputs: Sequence[Tensor], spec: ModelSpec) -> Matrix:
    """Return the output that the model declares for applications."""
    assert spec.application is not None  # noqa: S101  # who asks has looked
    tensor = next(each for each in outputs if each.name == spec.application.output)
    return as_floats(tensor)


def as_floats(tensor: Tensor) -> Matrix:
    """Return the values of a tensor of floats, `[rows, values of a row]`."""
    if tensor.datatype == "BF16":
        bits = np.left_shift(np.frombuffer(tensor.data, "<u2").astype(np.uint32), 16)
        values: Matrix = bits.view(np.float32)
    else:
        values = np.frombuffer(tensor.data, np.dtype(_DTYPES[tensor.datatype])).astype(np.float32, copy=False)
    rows: Matrix = values.reshape(tensor.shape[0], -1)
    return rows


def unit_rows(rows: Matrix) -> Matrix:
    """Return the rows scaled to length one; a row of zeros stays."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    found: Matrix = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)
    return found


def activated(values: Matrix, activation: str) -> Matrix:
    """Return the values as probabilities: "none" leaves them as they are."""
    if activation == "sigmoid":
        return _sigmoid(values)
    if activation == "softmax":
        shifted = np.exp(values - values.max(axis=1, keepdims=True))
        softened: Matrix = np.divide(shifted, shifted.sum(axis=1, keepdims=True), dtype=np.float32)
        return softened
    return values


def _sigmoid(values: Matrix) -> Matrix:
    """Return 1 / (1 + exp(-x)) by that of the two equal forms that cannot overflow."""
    small = np.exp(-np.abs(values))
    found: Matrix = np.where(values >= 0, 1 / (1 + small), small / (1 + small)).astype(np.float32)
    return found
