"""Inputs to warm up and measure with, of models that bring none: made from names, datatypes and shapes."""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Final

import numpy as np

from serving.values.specs import SizeHint, TensorSpec
from serving.values.tensor import ANY, ITEM_BYTES
from serving.worker.frames.arrays import DTYPES, Array, Arrays

EACH_ROW_MAX: Final = 64
"""Batches of up to so many rows are warmed one by one, larger ones in steps."""
_STEP: Final = 8
ROUNDING: Final = 1e-6
"""A root of a whole square is whole."""
_SEED = 0  # of the numbers: the same sample each time


def row_sizes(inputs: Sequence[TensorSpec], hint: SizeHint | None, size: int) -> dict[str, int]:
    """Return the named sizes of a row whose size hint is `size`, the same along all of them."""
    hinted = next((each for each in inputs if hint is not None and each.name == hint.input), None)
    if hint is None or hinted is None or hinted.datatype == "BYTES":
        return {}
    names = [name for name in hinted.names if name]
    values = size if hint.unit == "values" else size // ITEM_BYTES[hinted.datatype]
    fixed = prod(side for side in hinted.shape[1:] if side > 0)
    side = int((values / fixed) ** (1 / len(names)) + ROUNDING) if names else 0
    return dict.fromkeys(names, max(side, 1))


def obstacle(inputs: Sequence[TensorSpec], hint: SizeHint | None = None) -> str:
    """Return why no sample can be made of such inputs, "" where one can."""
    known = row_sizes(inputs, hint, 1)
    for spec in inputs:
        if spec.datatype == "BYTES":
            return f"input {spec.name!r} is BYTES, which may be anything"
        if -1 in _sides(spec, known):
            return f"input {spec.name!r} has the shape {list(spec.shape)}, of which rows may have any size"
    return ""


def warm_rows(batch_max: int) -> tuple[int, ...]:
    """Return the sizes of batches to warm up on a GPU, largest first: later ones fit into its memory."""
    steps = {*range(_STEP, batch_max + 1, _STEP), batch_max} if batch_max > EACH_ROW_MAX else set[int]()
    return tuple(sorted({*range(1, min(batch_max, EACH_ROW_MAX) + 1)} | steps, reverse=True))


def make_sample(
    inputs: Sequence[TensorSpec], rows: int, hint: SizeHint | None = None, size: int = 0
) -> Arrays:
    """Return that number of rows: floats from 0 to 1, FP32 for ANY datatype. Whole numbers are 0 or 1, an
    index into what a model looks up. `hint`, `size`: of each row. Raises ValueError if there is an
    `obstacle`."""
    if told := obstacle(inputs, hint):
        raise ValueError(told)
    known = row_sizes(inputs, hint, size)
    rng = np.random.default_rng(_SEED)
    return {
        spec.name: _drawn(
            "FP32" if spec.datatype == ANY else spec.datatype, (rows, *_sides(spec, known)), rng
        )
        for spec in inputs
    }


def _sides(spec: TensorSpec, known: Mapping[str, int]) -> tuple[int, ...]:
    """Return the shape of a row, -1 where no size is known."""
    names = spec.names or ("",) * len(spec.shape)
    sides = zip(names[1:], spec.shape[1:], strict=True)
    return tuple(known.get(name, side) if name else side for name, side in sides)


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
