"""A model with sequences, as a worker runs it: control inputs and kept state are added to its batches.

The gateway sends one input more than the model's own (STEPS): for each row the slot of its sequence, whether
it starts or ends there, and the sequence's id. State is kept by slot, and a START sets it to zeros.
"""

import struct
from collections.abc import Mapping, Sequence
from math import prod
from typing import Final, NamedTuple

import numpy as np

from serving.values.sequences import STATE_BYTES_MAX, SequenceId, SequenceSpec, SequenceStep
from serving.values.specs import ParameterValue, TensorSpec
from serving.values.tensor import Buffer
from serving.worker.backends.contract import LoadedModel
from serving.worker.frames.arrays import DTYPES, Array, Arrays, TensorError
from serving.worker.frames.batches import BatchInput

STEPS: Final = TensorSpec("", "BYTES", (-1, 1))
"""No input of a model has this name."""

_LENGTH = struct.Struct("<I")
_STEP = struct.Struct("<IB")  # slot, flags
_START, _END, _TEXT = 1, 2, 4
_NUMBER = struct.Struct("<Q")
_ALONE: Final = SequenceStep(0, start=True, end=True)


class Row(NamedTuple):
    """A row of a batch: the slot of its sequence, and what its request says of the sequence."""

    slot: int
    step: SequenceStep


def pack_steps(rows: Sequence[Row]) -> BatchInput:
    """Return the input that says which sequences the rows of a batch belong to."""
    return BatchInput(STEPS.datatype, (1,), [_packed(row) for row in rows])


def _packed(row: Row) -> Buffer:
    step = row.step
    flags = (_START if step.start else 0) | (_END if step.end else 0)
    if isinstance(step.id, str):
        flags, name = flags | _TEXT, step.id.encode(errors="replace")
    else:
        name = _NUMBER.pack(step.id)
    return _LENGTH.pack(_STEP.size + len(name)) + _STEP.pack(row.slot, flags) + name


def _unpacked(data: bytes, slots: int) -> Row:
    try:
        slot, flags = _STEP.unpack_from(data)
        name = data[_STEP.size :]
        found: SequenceId = name.decode() if flags & _TEXT else _NUMBER.unpack(name)[0]
    except (struct.error, UnicodeDecodeError) as error:
        raise TensorError(f"a row's sequence cannot be read: {error}") from None
    if slot >= slots:
        raise TensorError(f"a row has slot {slot}, the model has {slots}")
    return Row(slot, SequenceStep(found, bool(flags & _START), bool(flags & _END)))


class SequenceModel:
    """A `LoadedModel` around another, which is a model with sequences.

    Rows without a sequence, as of samples, are sequences of one request each.
    """

    __slots__ = ("_kept", "_model", "_new", "_spec")

    def __init__(self, model: LoadedModel, spec: SequenceSpec) -> None:
        self._model = model
        self._spec = spec
        held = sum([prod(each.shape) * DTYPES[each.datatype].itemsize for each in spec.state]) * spec.slots
        if held > STATE_BYTES_MAX:
            raise TensorError(f"the state takes {held} bytes, at most {STATE_BYTES_MAX} are kept")
        self._kept: Arrays = {
            each.input: np.zeros((spec.slots, *each.shape), DTYPES[each.datatype]) for each in spec.state
        }
        self._new: tuple[list[int], Arrays] | None = None  # by slot, what the latest batch left

    @property
    def padded_size(self) -> int:
        """The model's own."""
        return int(getattr(self._model, "padded_size", 0))

    @property
    def sample(self) -> object:
        """The model's own, None if it has none."""
        return getattr(self._model, "sample", None)

    def predict(self, inputs: Arrays, parameters: dict[str, ParameterValue]) -> Mapping[str, object]:
        """Return the outputs of the rows, without the state. What it leaves is kept by `keep`."""
        self._new = None
        steps = inputs.pop(STEPS.name, None)
        count = len(next(iter(inputs.values())))
        if steps is None:
            rows, places, total = [Row(-1, _ALONE)] * count, list(range(count)), count
        else:
            rows = [_unpacked(data, self._spec.slots) for data in steps.reshape(-1).tolist()]
            direct = self._spec.strategy == "direct"
            places = [row.slot for row in rows] if direct else list(range(count))
            total = max(places) + 1
        for row in rows:
            if row.step.start and row.slot >= 0:
                for kept in self._kept.values():
                    kept[row.slot] = 0
        whole = {name: _spread(array, places, total) for name, array in inputs.items()}
        self._add_controls(whole, rows, places, total)
        self._add_state(whole, rows, places, total)
        found = self._model.predict(whole, parameters)
        return self._taken(found, rows, places, total)

    def keep(self) -> None:
        """Keep what the latest batch left: its answer is complete."""
        if self._new is not None:
            slots, arrays = self._new
            for name, array in arrays.items():
                self._kept[name][slots] = array
            self._new = None

    def _add_controls(self, whole: Arrays, rows: Sequence[Row], places: list[int], total: int) -> None:
        for control in self._spec.controls:
            values: list[object]
            if control.kind == "corrid":
                text = control.datatype == "BYTES"
                values = [_id(row.step.id, text=text) for row in rows]
            elif control.kind == "ready":
                values = [1] * len(rows)
            else:
                values = [int(row.step.start if control.kind == "start" else row.step.end) for row in rows]
            array = np.empty((len(rows), 1), DTYPES[control.datatype])
            array[:, 0] = values
            whole[control.name] = _spread(array, places, total)

    def _add_state(self, whole: Arrays, rows: Sequence[Row], places: list[int], total: int) -> None:
        slots = [row.slot for row in rows]
        for name, kept in self._kept.items():
            array = np.zeros((total, *kept.shape[1:]), kept.dtype)
            if slots[0] >= 0:
                array[places] = kept[slots]
            whole[name] = array

    def _taken(
        self, found: object, rows: Sequence[Row], places: list[int], total: int
    ) -> Mapping[str, object]:
        """Return a model's outputs without the state, which is put aside, and without rows that stand for no
        request."""
        if not isinstance(found, Mapping):
            return found  # type: ignore[return-value]  # what encodes it says what is wrong
        outputs = dict(found)
        left: Arrays = {}
        for state in self._spec.state:
            left[state.input] = _state(
                outputs.pop(state.output, None), state.output, self._kept[state.input], total
            )[places]
        if rows[0].slot >= 0:
            self._new = [row.slot for row in rows], left
        if total == len(places):
            order = places == list(range(total))
            return (
                outputs if order else {name: _picked(each, places, total) for name, each in outputs.items()}
            )
        return {name: _picked(each, places, total) for name, each in outputs.items()}


def _id(sequence_id: SequenceId, *, text: bool) -> object:
    if text:
        return sequence_id.encode() if isinstance(sequence_id, str) else b""
    return 0 if isinstance(sequence_id, str) else sequence_id


def _spread(array: Array, places: list[int], total: int) -> Array:
    """Return the rows at their places among `total` rows; the others are zeros, or empty."""
    if total == len(places) and places == list(range(total)):
        return array
    whole = np.zeros((total, *array.shape[1:]), array.dtype)
    if array.dtype == object:
        whole[...] = b""
    whole[places] = array
    return whole


def _picked(output: object, places: list[int], total: int) -> object:
    """Return the rows of the requests; what is no such array is left for its own check."""
    if isinstance(output, np.ndarray) and output.shape[:1] == (total,):
        return output[places]
    return output


def _state(found: object, name: str, kept: Array, total: int) -> Array:
    shape = (total, *kept.shape[1:])
    if not isinstance(found, np.ndarray):
        raise TensorError(f"state {name!r} is a {type(found).__name__}, expected numpy.ndarray")
    if found.shape != shape:
        raise TensorError(f"state {name!r} has shape {list(found.shape)}, expected {list(shape)}")
    if not np.can_cast(found.dtype, kept.dtype, "same_kind"):
        raise TensorError(f"state {name!r} has dtype {found.dtype}, expected {kept.dtype}")
    return found.astype(kept.dtype, copy=False)
