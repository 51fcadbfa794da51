"""What runs models in a worker, whatever it is made of."""

from collections.abc import Mapping
from typing import Protocol

from serving.specs import ParameterValue
from serving.worker.arrays import Arrays
from serving.worker.orders import LoadOrder


class Model(Protocol):
    """A loaded variant. One may have an attribute `padded_size`: tokens per row of its last predict.

    Arrays have the batch dimension first; BYTES are object arrays of bytes, BF16 uint16 bit patterns.
    """

    def predict(self, inputs: Arrays, parameters: dict[str, ParameterValue]) -> Mapping[str, object]:
        """Outputs by name. Inputs lie in the worker's buffers: they may be changed, not kept."""
        ...

    def sample(self, rows: int, size: int) -> Arrays:
        """Inputs of plausible content to measure with; `size` is the size hint of each row."""
        ...


class Backend(Protocol):
    """Turns orders into models; the model's memory goes with its last reference."""

    def load(self, order: LoadOrder) -> Model:
        """The model, ready to predict; any exception of the model's own code passes through."""
        ...
