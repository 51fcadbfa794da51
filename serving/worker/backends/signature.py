"""What a model takes and answers, as its file says it or as one run of it shows it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from serving.values.specs import ParameterValue, TensorSpec
from serving.worker.backends.samples import numbers, row_sizes
from serving.worker.frames.arrays import Array, Arrays, TensorError, datatype_of
from serving.worker.frames.orders import LoadOrder

Dimension = int | str
"""A size, or the name of a size that requests choose."""
SIZE: Final = "dim."
"""Options of a variant begin with it that state the size of a free dimension in samples: `dim.seq: 128`."""
ALL: Final = "*"
"""The name that stands for all free dimensions without a size of their own: `dim.*: 16`."""
BATCH_MAX: Final = 64
"""The most rows of a batch, where neither file nor operator says so. The sweep finds what pays below it."""


class SignatureError(Exception):
    """A model that cannot be served as it is; the text says why, and what would help."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """An input or output as the model has it, the batch dimension included."""

    name: str
    datatype: str
    dimensions: tuple[Dimension, ...]
    labels: tuple[str, ...] = ()
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Signature:
    """The inputs and outputs of a model, in its order.

    `latency_ms`: of one row, 0 where it was not run. `artifact`: where its files are, if not where the
    question said. `sample_size`: the size hint of the row that was run. `rows_max`: of a batch, 0 for no
    batch dimension, None if the model does not say. `keys`: more keys of a model.yaml. `slo_ms`: as the model
    states it, 0 if it does not.
    """

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    latency_ms: float = 0.0
    artifact: str = ""
    sample_size: int = 0
    rows_max: int | None = None
    keys: Mapping[str, object] = field(default_factory=dict)
    slo_ms: float = 0.0


def unpack(found: Mapping[str, Any]) -> Signature:
    """Return the signature of JSON, which has lists for tuples."""
    tensors = {key: tuple(map(_unpacked, found[key])) for key in ("inputs", "outputs")}
    return Signature(**{**found, **tensors})


def _unpacked(found: Mapping[str, Any]) -> Tensor:
    lists: dict[str, Any] = {key: tuple(found[key]) for key in ("dimensions", "labels")}
    return Tensor(**{**found, **lists})


def options_of(sizes: Mapping[str, int]) -> dict[str, ParameterValue]:
    """Return the options of a variant that state these sizes."""
    return {f"{SIZE}{name}": size for name, size in sizes.items()}


def sizes_of(options: Sequence[tuple[str, ParameterValue]]) -> Mapping[str, int]:
    """Return the sizes that a variant's options state, by the dimension's name."""
    stated = {name.removeprefix(SIZE): value for name, value in options if name.startswith(SIZE)}
    return {name: int(value) for name, value in stated.items() if isinstance(value, int)}


def sample_of(order: LoadOrder, tensors: Sequence[Tensor], rows: int, size: int) -> Arrays:
    """Return made-up inputs. Free dimensions have the sizes that the variant's options state, and those that
    follow from the size hint of a row."""
    sizes = dict(sizes_of(order.options))
    known = row_sizes(order.inputs, order.hint, size)
    names = {each.name: each.names for each in order.inputs}
    for tensor in tensors if known else ():
        for side, name in zip(tensor.dimensions, names.get(tensor.name, ()), strict=False):
            if isinstance(side, str) and name in known:
                sizes[side] = known[name]
    return made_up(tensors, sizes, None if order.unbatched else rows)


def made_up(tensors: Sequence[Tensor], sizes: Mapping[str, int], rows: int | None) -> Arrays:
    """Return inputs with made-up content. `rows`: None for a model without a batch dimension. A free
    dimension without a size has the size 1."""
    others = sizes.get(ALL, 1)
    made = {}
    for seed, tensor in enumerate(tensors):
        shape = [side if isinstance(side, int) else sizes.get(side, others) for side in tensor.dimensions]
        whole = shape if rows is None else [rows, *shape[1:]]
        made[tensor.name] = numbers(tensor.datatype, tuple(whole), seed)
    return made


def unstated(signature: Signature, sizes: Mapping[str, int]) -> None:
    """Raise SignatureError at the first free dimension of an input, beside the batch, without a size."""
    for tensor in signature.inputs:
        for name in tensor.dimensions[1:]:
            if isinstance(name, str) and not {name, ALL} & sizes.keys():
                raise SignatureError(
                    f"input {tensor.name!r} has the free dimension {name!r}; "
                    f"state what a usual request has: --dim {name}=128"
                )


def batch_max_of(signature: Signature) -> int:
    """Return how many rows a batch may have, as the signature says. Else BATCH_MAX where requests choose the
    first dimension of all tensors, 1 where that is 1, and 0, no batches, in all other cases."""
    if signature.rows_max is not None:
        return signature.rows_max
    tensors = (*signature.inputs, *signature.outputs)
    if any(not tensor.dimensions for tensor in tensors):
        return 0
    first = [tensor.dimensions[0] for tensor in tensors]
    if all(isinstance(side, str) for side in first):
        return BATCH_MAX
    return 1 if all(side == 1 for side in first) else 0


def specs_of(tensors: Sequence[Tensor], batch_max: int) -> tuple[TensorSpec, ...]:
    """Return the tensors as a worker knows them: -1 for the batch, and for each size that requests choose."""
    return tuple(_spec(each, each.dimensions[1 if batch_max else 0 :]) for each in tensors)


def _spec(tensor: Tensor, row: Sequence[Dimension]) -> TensorSpec:
    names = tuple(side if isinstance(side, str) and side.isidentifier() else "" for side in row)
    shape = (-1, *_fixed(row))
    return TensorSpec(tensor.name, tensor.datatype, shape, names=("", *names) if any(names) else ())


def _fixed(dimensions: Sequence[Dimension]) -> list[int]:
    return [side if isinstance(side, int) else -1 for side in dimensions]


def tensors_of(runs: Sequence[Mapping[str, object]], rows: Sequence[int]) -> tuple[Tensor, ...]:
    """Return the tensors that runs with so many rows had. Raises SignatureError if rows do not come first."""
    return tuple(_seen(name, [np.asarray(run[name]) for run in runs], rows) for name in runs[0])


def _seen(name: str, arrays: Sequence[Array], rows: Sequence[int]) -> Tensor:
    shapes = [array.shape for array in arrays]
    if [shape[:1] for shape in shapes] != [(count,) for count in rows]:
        told = " and ".join(f"{list(shape)} for {count}" for shape, count in zip(shapes, rows, strict=True))
        raise SignatureError(f"{name!r} has the shape {told} rows; expected the rows as first dimension")
    if len({*map(len, shapes)}) > 1:
        raise SignatureError(f"{name!r} has another rank for {rows[1]} rows than for {rows[0]}")
    sides = [
        first if first == second else f"{name}.{at}"
        for at, (first, second) in enumerate(zip(shapes[0], shapes[-1], strict=True))
    ]
    try:
        datatype = datatype_of(arrays[0])
    except TensorError as error:
        cure = "expected numbers, booleans or bytes; try .astype(np.float32)"
        raise SignatureError(f"{name!r}: {error}; {cure}") from error
    return Tensor(name, datatype, ("batch", *sides[1:]))
