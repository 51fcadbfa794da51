"""Inputs to warm up and measure with, of models that bring none: made from names, datatypes and shapes."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from serving.values.specs import TensorSpec
from serving.values.tensor import ANY
from serving.worker.frames.arrays import DTYPES, Array, Arrays

EACH_ROW_MAX: Final = 64
"""Batches of up to so many rows are warmed one by one, larger ones in steps."""
_STEP: Final = 8
_SEED = 0  # of the numbers: the same sample each time


def obstacle(inputs: Sequence[TensorSpec]) -> str:
    """Return why no sample can be made of such inputs, "" where one can."""
    for spec in inputs:
        if spec.datatype == "BYTES":
            return f"input {spec.name!r} is BYTES, which may be anything"
        if -1 in spec.shape[1:]:
            return f"input {spec.name!r} has the shape {list(spec.shape)}, of which rows may have any size"
    return ""


def warm_rows(batch_max: int) -> tuple[int, ...]:
    """Return the sizes of batches to warm up on a GPU, largest first: later ones fit into its memory."""
    steps = {*range(_STEP, batch_max + 1, _STEP), batch_max} if batch_max > EACH_ROW_MAX else set[int]()
    return tuple(sorted({*range(1, min(batch_max, EACH_ROW_MAX) + 1)} | steps, reverse=True))


def make_sample(inputs: Sequence[TensorSpec], rows: int) -> Arrays:
    """Return that number of rows: floats from 0 to 1, FP32 for the ANY datatype. Whole numbers are 0 or 1, an
    index into what a model looks up. Raises ValueError if there is an `obstacle`."""
    if told := obstacle(inputs):
        raise ValueError(told)
    rng = np.random.default_rng(_SEED)
    return {
        spec.name: _drawn("FP32" if spec.datatype == ANY else spec.datatype, (rows, *spec.shape[1:]), rng)
        for spec in inputs
    }


def numbers(datatype: str, shape: tuple[int, ...], seed: int) -> Array:
    """Return an array as `make_sample` makes it; BYTES are empty texts."""
    return _drawn(datatype, shape, np.random.default_rng(seed))


def _drawn(datatype: str, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    if datatype == "BYTES":
        return np.full(shape, b"", object)
    if datatype == "BF16":  # the upper half of an FP32
        return (rng.random(shape, np.float32).view(np.uint32) >> 16).astype(np.uint16)
    dtype = DTYPES[datatype]
    if dtype.kind == "f":
        return rng.random(shape).astype(dtype)
    return rng.integers(0, 2, shape).astype(dtype)
