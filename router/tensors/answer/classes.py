"""The classification extension: an output as the classes of its largest values, each `value:index:label`."""

from collections.abc import Sequence
from math import prod
from struct import Struct
from typing import Any, Final  # Any: numbers of any kind

import numpy as np
import numpy.typing as npt

from router.tensors.parts.elements import list_elements
from router.tensors.parts.errors import bad_input, too_large
from router.tensors.parts.wording import quoted, written
from router.tensors.request.decoded import RequestedOutput
from serving.values.specs import ModelSpec, TensorSpec
from serving.values.tensor import ANY, Tensor

PARAMETER: Final = "classification"

RANKED_MAX: Final = 1 << 16
STRINGS_MAX: Final = 1024
"""Of a request: values that are ranked and strings that are written. Each takes the event loop 1 ms."""

_NOT_RANKED: Final = frozenset(("BOOL", "BYTES", ANY))
_LENGTH: Final = Struct("<I")


def read_classes(value: object, what: str) -> int:
    """Return how many classes are asked for, 0 for none; `what` asks for them."""
    if value is None:
        return 0
    if type(value) is not int or value < 0:
        raise bad_input(f"'{PARAMETER}' of {what} must be a whole number, 0 for none, got {quoted(value)}")
    return value


def check_classes(wanted: Sequence[RequestedOutput], spec: ModelSpec, rows: int) -> None:
    """Raise RequestError if the classes that a request of `rows` rows asks for cannot be given."""
    strings = ranked = 0
    for each in wanted:
        if not each.classes:
            continue
        output = spec.outputs[each.index]
        if output.datatype in _NOT_RANKED:
            why = f"class result not available for output {quoted(output.name)}"
            raise bad_input(f"{why} due to unsupported type '{output.datatype}'; ask for the output itself")
        if -1 in output.shape[1:]:
            why = f"output {quoted(output.name)} has the shape {written(output.shape)}"
            raise bad_input(f"{why}, so the number of its classes is not known; ask for the output itself")
        count = prod(output.shape[1:])
        ranked += rows * count
        strings += rows * min(count, each.classes)
    if strings > STRINGS_MAX or ranked > RANKED_MAX:
        raise too_large(
            f"the request asks for {strings} classes among {ranked} values; at most {STRINGS_MAX} among "
            f"{RANKED_MAX} are told: send fewer rows, or ask for the output itself"
        )


def classify(tensor: Tensor, spec: TensorSpec, count: int) -> Tensor:
    """Return the `count` largest values of each row, the largest first; of equal ones the first."""
    rows = tensor.shape[0]
    values = np.asarray(list_elements(tensor)).reshape(rows, -1)
    places = _largest(values, min(count, values.shape[1]))
    labels = spec.labels.names if spec.labels is not None else ()
    form = "%f:%d" if values.dtype.kind == "f" else "%d:%d"
    found = np.take_along_axis(values, places, axis=1)
    parts: list[bytes] = []
    for value, index in zip(found.ravel().tolist(), places.ravel().tolist(), strict=True):
        text = form % (value, index)
        if index < len(labels):
            text += f":{labels[index]}"
        element = text.encode()
        parts += (_LENGTH.pack(len(element)), element)
    return Tensor(tensor.name, "BYTES", (rows, places.shape[1]), b"".join(parts))


def _largest(values: npt.NDArray[Any], count: int) -> npt.NDArray[np.intp]:
    """Return the places of the largest values of each row, in time that grows with their number; NaN counts
    as minus infinity."""
    if values.dtype.kind == "f":
        values = np.where(np.isnan(values), -np.inf, values)
    first = values.shape[1] - count
    least = np.partition(values, first, axis=1)[:, first, None]
    above, equal = values > least, values == least
    missing = count - above.sum(axis=1, keepdims=True)
    chosen = above | (equal & (equal.cumsum(axis=1) <= missing))
    places = chosen.nonzero()[1].reshape(-1, count)
    kept = np.take_along_axis(values, places, axis=1)
    falling = count - 1 - np.argsort(kept[:, ::-1], axis=1, kind="stable")[:, ::-1]
    return np.take_along_axis(places, falling, axis=1)
