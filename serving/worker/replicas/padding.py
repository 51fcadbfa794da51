"""Rows of unlike size in one batch: filled up before the model runs, and cut to their own sizes afterwards.

The gateway sends the rows as they are, and one input more where their sizes differ: for each row its sizes
along the padded dimensions, in the order in which the inputs first name them.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Final

import numpy as np

from serving.values.specs import TensorSpec, padded_sizes
from serving.values.tensor import ABSENT, Tensor
from serving.worker.frames.arrays import DTYPES, Array, Arrays, TensorError, decode_inputs
from serving.worker.frames.batches import BatchInput, RunOrder

SIZES: Final = TensorSpec("", "UINT64", (-1, -1))
"""No input of a model has this name."""

Group = tuple[int, int, dict[str, int]]
"""Rows of the same sizes, one behind the other: the first, how many, and the sizes by name."""


def pack_sizes(rows: Sequence[tuple[tuple[int, ...], int]]) -> BatchInput:
    """Return the input that says how large rows are; `rows`: sizes, and how many rows have them."""
    width = len(rows[0][0])
    return BatchInput(
        SIZES.datatype, (width,), [struct.pack(f"<{width}Q", *sizes) * count for sizes, count in rows]
    )


def inputs_of(specs: Sequence[TensorSpec], run: RunOrder) -> Arrays:
    """Return the inputs of a batch by name, `rows` first: shorter rows filled up, and masks where the
    requests have none. Raises TensorError if the count or the bytes do not fit."""
    if not any(each.pad is not None for each in specs):
        return decode_inputs(specs, run.inputs, run.rows, run.payload)
    ragged = len(run.inputs) == len(specs) + 1
    if ragged:
        arrays, groups = _filled(specs, run)
    else:
        arrays = decode_inputs(specs, run.inputs, run.rows, run.payload)
        groups = [(0, run.rows, _sizes(specs, arrays))]
    add_masks(specs, arrays, groups)
    return arrays


def add_masks(specs: Sequence[TensorSpec], arrays: Arrays, groups: Sequence[Group] = ()) -> None:
    """Add the masks that requests have left out. Without `groups`, no row is filled up."""
    lacking = [each for each in specs if each.mask and each.name not in arrays]
    if not lacking:
        return
    whole = _sizes(specs, arrays)
    rows = len(next(iter(arrays.values())))
    for spec in lacking:
        sizes = [whole.get(name, size) for name, size in zip(spec.names, spec.shape, strict=True)]
        made = np.zeros((rows, *sizes[1:]), DTYPES[spec.datatype])
        for first, count, own in groups or [(0, rows, whole)]:
            made[_place(first, count, spec, own)] = _bits(spec.datatype, 1.0)
        arrays[spec.name] = made


def cut_sizes(tensor: Tensor, names: Sequence[str], sizes: Mapping[str, int]) -> Tensor:
    """Return an output of the rows of one request without what the filling of its rows has given."""
    wanted = [min(sizes.get(name, size), size) for name, size in zip(names, tensor.shape, strict=False)]
    if not names or tuple(wanted) == tensor.shape:
        return tensor
    whole = np.frombuffer(tensor.data, DTYPES[tensor.datatype]).reshape(tensor.shape)
    cut = np.ascontiguousarray(whole[tuple(map(slice, wanted))])
    return Tensor(tensor.name, tensor.datatype, cut.shape, cut.tobytes())


def _filled(specs: Sequence[TensorSpec], run: RunOrder) -> tuple[Arrays, list[Group]]:
    """Return the inputs of a batch with rows of unlike size, and which rows are alike."""
    *places, stated = run.inputs
    ends = [0]
    for place in run.inputs:
        ends.append(ends[-1] + place.byte_count)
    (table,) = decode_inputs((SIZES,), (stated,), run.rows, run.payload[ends[-2] :]).values()
    groups = list(_groups([each.name for each in padded_sizes(specs)], table.tolist()))
    arrays: Arrays = {}
    for spec, place, start, end in zip(specs, places, ends, ends[1:], strict=False):
        data = run.payload[start:end]
        if place.datatype == ABSENT:
            continue
        if spec.pad is None:
            arrays |= decode_inputs((spec,), (place,), run.rows, data)
        else:
            shape = (run.rows, *place.dims)
            made = np.full(shape, _bits(place.datatype, spec.pad), DTYPES[place.datatype])
            _fill(made, data, spec, groups)
            arrays[spec.name] = made
    if len(arrays) + sum(each.datatype == ABSENT for each in places) != len(specs):
        raise TensorError(f"the batch has {len(places)} inputs, the model takes {len(specs)}")
    return arrays, groups


def _fill(made: Array, data: memoryview, spec: TensorSpec, groups: Sequence[Group]) -> None:
    at, dtype = 0, made.dtype
    for first, count, own in groups:
        place = _place(first, count, spec, own)
        target = made[place]
        end = at + prod(target.shape) * dtype.itemsize
        if end > len(data):
            break
        made[place] = np.frombuffer(data[at:end], dtype).reshape(target.shape)
        at = end
    if at != len(data):
        raise TensorError(f"input {spec.name!r} has {len(data)} bytes, its rows take another number")


def _place(first: int, count: int, spec: TensorSpec, own: Mapping[str, int]) -> tuple[slice, ...]:
    """Return where rows of these sizes lie in an array of the batch."""
    sides = (slice(own[name]) if name in own else slice(None) for name in spec.names[1:])
    return (slice(first, first + count), *sides)


def _groups(names: Sequence[str], table: Sequence[Sequence[int]]) -> Iterator[Group]:
    first = 0
    for row in range(1, len(table) + 1):
        if row == len(table) or table[row] != table[first]:
            yield first, row - first, dict(zip(names, table[first], strict=True))
            first = row


def _sizes(specs: Sequence[TensorSpec], arrays: Arrays) -> dict[str, int]:
    found: dict[str, int] = {}
    for spec in specs:
        if spec.pad is not None and spec.name in arrays:
            sides = zip(spec.names, arrays[spec.name].shape, strict=True)
            found |= {name: size for name, size in sides if name}
    return found


def _bits(datatype: str, value: float) -> float:
    """Return the value as an array of that datatype holds it; BF16 are the upper halves of FP32."""
    if datatype != "BF16":
        return value
    return float(np.array([value], np.float32).view(np.uint32)[0] >> 16)
