"""Whether two models agree on a request: what a candidate made of its copy, beside what the client got."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final  # Any: arrays of any datatype

import numpy as np

from serving.values.tensor import Tensor

FLOATS: Final[Mapping[str, str]] = MappingProxyType({"FP16": "<f2", "FP32": "<f4", "FP64": "<f8"})
NEAR, AT_LEAST = 1e-2, 1e-3
"""Numbers agree if they differ by this share, or by this much."""
COSINE: Final = 0.99
"""Rows of several numbers agree if they point the same way: embeddings of another precision do."""


def agree(present: Sequence[Tensor], candidate: Sequence[Tensor]) -> bool:
    """Return whether all outputs agree. Rows of several numbers do if their largest is in the same place, as
    of classes, or if they point the same way; single numbers if they are near; all else if it is equal."""
    return len(present) == len(candidate) and all(map(_agree, present, candidate))


def _agree(old: Tensor, new: Tensor) -> bool:
    if (old.datatype, old.shape) != (new.datatype, new.shape):
        return False
    if old.datatype not in FLOATS and old.datatype != "BF16":
        return bytes(old.data) == bytes(new.data)
    first, second = _numbers(old), _numbers(new)
    if len(old.shape) < 2 or old.shape[-1] < 2:
        return bool(np.allclose(first, second, NEAR, AT_LEAST, equal_nan=True))
    rows, others = first.reshape(-1, old.shape[-1]), second.reshape(-1, old.shape[-1])
    same = rows.argmax(1) == others.argmax(1)
    lengths = np.linalg.norm(rows, axis=1) * np.linalg.norm(others, axis=1)
    along = (rows * others).sum(1) >= COSINE * lengths
    return bool((same | along).all())


def _numbers(tensor: Tensor) -> Any:
    if tensor.datatype == "BF16":  # the upper half of an FP32
        halves = np.frombuffer(tensor.data, "<u2").astype("<u4") << 16
        return halves.view("<f4").astype("<f8").reshape(tensor.shape)
    return np.frombuffer(tensor.data, FLOATS[tensor.datatype]).astype("<f8").reshape(tensor.shape)
