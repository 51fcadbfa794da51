"""Runs batches of tensors on a device: copy in, compute and copy out of several batches overlap.

`launch` gives a batch to the device and returns; `Flight.land` waits for its answer. The next batch computes
after it, while its copies go on beside.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

import numpy as np

from serving.values.specs import ParameterValue, TensorSpec
from serving.worker.device.ports import DeviceModel, Event, Lane, Streams, Tensor, Tensors
from serving.worker.frames.arrays import Arrays, TensorError

Predict = Callable[[Tensors, dict[str, ParameterValue]], Mapping[str, Tensor]]

_BF16: Final = "BF16"


class Flight:
    """A batch that the device has. It holds all that the device still reads or writes."""

    __slots__ = ("_bits", "_host", "_kept", "_landed")

    def __init__(self, landed: Event, host: Tensors, bits: Collection[str], kept: object) -> None:
        """Create a flight. `bits`: the outputs of type BF16, which come as whole numbers of the same size."""
        self._landed = landed
        self._host = host
        self._bits = bits
        self._kept = kept

    def land(self) -> Arrays:
        """Return the outputs once they are all in the host's memory; raise what the device has met."""
        self._landed.synchronize()
        self._kept = None
        found: Arrays = {}
        for name, tensor in self._host.items():
            array = tensor.numpy()
            found[name] = array.view(np.uint16) if name in self._bits else array
        return found


class TensorModel:
    """A model of tensors as the worker's loop sees it: `predict` takes and gives arrays, as any model's.

    `specs`: what the settings say of its inputs and outputs. `predict_device`: the model's own method, or
    another way to the same outputs, such as a compiled one.
    """

    def __init__(
        self,
        model: DeviceModel,
        streams: Streams,
        specs: tuple[Sequence[TensorSpec], Sequence[TensorSpec]],
        bfloat16: tuple[Any, Any],
    ) -> None:
        """Create a model that takes tensors. `bfloat16`: torch's type for BF16, and a type of the same size
        that numpy knows."""
        self.model = model
        self.streams = streams
        self.predict_device: Predict = model.predict_device
        self._inputs = {spec.name for spec in specs[0] if spec.datatype == _BF16}
        self._bits = {spec.name for spec in specs[1] if spec.datatype == _BF16}
        self._bfloat16 = bfloat16
        if callable(sample := getattr(model, "sample", None)):
            self.sample = sample

    def seal(self) -> None:
        """Take that the model is warm: it is prepared for no more sizes of batches."""
        if callable(seal := getattr(self.predict_device, "seal", None)):
            seal()

    @property
    def padded_size(self) -> int:
        """What the model says of its last batch, 0 if nothing."""
        return int(getattr(self.model, "padded_size", 0))

    def predict(self, inputs: Arrays, parameters: dict[str, ParameterValue]) -> Mapping[str, object]:
        """Run one batch and wait for it."""
        return self.launch(inputs, parameters).land()

    def launch(self, inputs: Arrays, parameters: dict[str, ParameterValue]) -> Flight:
        """Give a batch to the device. Arrays of `inputs` must stay as they are until it has landed.

        If the model raises, nothing of the batch is under way any more when the exception leaves.
        """
        streams = self.streams
        try:
            with streams.within(Lane.COPY_IN):
                tensors = {name: self._tensor(name, array) for name, array in inputs.items()}
            streams.wait(Lane.COMPUTE, streams.mark(Lane.COPY_IN))
            with streams.within(Lane.COMPUTE):
                made = self._checked(self.predict_device(dict(tensors), parameters))
                found = {name: self._leaving(name, tensor) for name, tensor in made.items()}
            streams.wait(Lane.COPY_OUT, streams.mark(Lane.COMPUTE))
            with streams.within(Lane.COPY_OUT):
                host = {name: streams.to_host(tensor) for name, tensor in found.items()}
            landed = streams.mark(Lane.COPY_OUT)
        except BaseException:
            # Its memory is given to the next batch as soon as it is let go.
            streams.settle()
            raise
        return Flight(landed, host, self._bits, (self.model, tensors, made, found))

    def _tensor(self, name: str, array: Any) -> Tensor:
        if array.dtype.kind == "O":
            raise TensorError(f"input {name!r} is BYTES, which no tensor holds; expected a method predict")
        if name not in self._inputs:
            return self.streams.to_device(array)
        return self.streams.to_device(array.view(np.int16)).view(self._bfloat16[0])

    def _checked(self, found: object) -> Mapping[str, Tensor]:
        if not isinstance(found, Mapping):
            raise TensorError(f"predict_device returned {type(found).__name__}, expected a dict of tensors")
        for name, tensor in found.items():
            if not callable(getattr(tensor, "record_stream", None)):
                raise TensorError(f"output {name!r} is a {type(tensor).__name__}, expected a torch.Tensor")
        return found

    def _leaving(self, name: str, tensor: Tensor) -> Tensor:
        """Return an output in a type that numpy knows, without a gradient; bits if it is to be BF16."""
        tensor = tensor.detach()
        if tensor.dtype != self._bfloat16[0]:
            return tensor
        return tensor.contiguous().view(self._bfloat16[1]) if name in self._bits else tensor.float()
