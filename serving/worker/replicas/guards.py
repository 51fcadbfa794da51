"""Whether an answer is what the guards of its outputs say, row by row: one bad row fails no other request."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from serving.values.specs import Guard, TensorSpec
from serving.worker.frames.arrays import DTYPES
from serving.worker.frames.batches import EncodedOutput, RefusedRow

Numbers = npt.NDArray[Any]  # of whichever type the output has


def refused_rows(
    specs: Sequence[TensorSpec], outputs: Sequence[EncodedOutput], rows: int
) -> list[RefusedRow]:
    """Return the rows of a batch that a guard refuses, ascending; each with the place of the first such
    output and the first value that is not as it has to be."""
    found: dict[int, RefusedRow] = {}
    for index, (spec, output) in enumerate(zip(specs, outputs, strict=True)):
        if spec.guard is not None:
            for row, value in _outside(spec.guard, _numbers(output, rows)):
                found.setdefault(row, RefusedRow(row, index, value))
    return [found[row] for row in sorted(found)]


def _numbers(output: EncodedOutput, rows: int) -> Numbers:
    """Return the values of a row each, (rows, values); BF16 are the upper halves of FP32."""
    values: Numbers = np.frombuffer(output.data, DTYPES[output.datatype]).reshape(rows, -1)
    if output.datatype == "BF16":
        return (values.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return values


def _outside(guard: Guard, values: Numbers) -> Iterator[tuple[int, float]]:
    # Two passes that make no array: a NaN is both the smallest and the largest.
    if not values.size or (guard.takes(float(values.min())) and guard.takes(float(values.max()))):
        return
    good = np.isfinite(values) if guard.finite else np.ones(values.shape, bool)
    if guard.least is not None:
        good &= values >= guard.least
    if guard.most is not None:
        good &= values <= guard.most
    for row in np.flatnonzero(~good.all(axis=1)):
        yield int(row), float(values[row, good[row].argmin()])
