"""What runs models in a worker, whatever it is made of."""

from collections.abc import Collection, Generator, Mapping
from typing import Final, Protocol

from serving.values.specs import ParameterValue
from serving.worker.frames.arrays import Arrays
from serving.worker.frames.orders import LoadOrder

MODULES: Final = "penstock_model_"
"""Beginning of the names of modules that are a model's own code."""


class BadInputError(ValueError):
    """The input of a request is at fault, and not the model: its client gets the text, as 400."""

    bad_input = True


class LoadedModel(Protocol):
    """A loaded variant. One may have an attribute `padded_size`: tokens per row of its last predict; and a
    method `sample(rows: int, size: int) -> Arrays`: inputs of plausible content to measure with, where `size`
    is the size hint of each row. Without it they are made (`serving.worker.backends.samples`), where they can
    be.

    One thread loads it and runs it first, while batches of other replicas run on another, those of the same
    code too; from then on all its runs are that other thread's, one at a time.

    It may have `predict_device` (`serving.worker.device.ports.DeviceModel`) in place of `predict`. Then it
    takes and gives tensors on its device, and the worker copies them beside other batches.

    Arrays have the batch dimension first; BYTES are object arrays of bytes, BF16 uint16 bit patterns.
    """

    def predict(self, inputs: Arrays, parameters: dict[str, ParameterValue]) -> Mapping[str, object]:
        """Return outputs by name. Inputs lie in the worker's buffers: they may be changed, not kept."""
        ...


class DecoupledModel(Protocol):
    """A loaded variant of a model that says `decoupled: true`: each row has any number of answers. It has
    `stream` in place of `predict`; what is said of the other kind of model holds for it too."""

    def stream(
        self, inputs: Arrays, parameters: dict[str, ParameterValue]
    ) -> Generator[tuple[int, Mapping[str, object] | None], frozenset[int], None]:
        """Yield answers, each with its row: outputs by name, of one row; None for the end of a row.

        Each yield gives back the rows that nobody waits for any more. What the model still yields of them is
        dropped. The generator is closed once that are all. Its own end is the end of every row.
        """
        ...


class Backend(Protocol):
    """Turns orders into models; the model's memory goes with its last reference. Any exception of a model's
    own code passes through."""

    def prepare(self, order: LoadOrder) -> None:
        """Bring in the code that the order's model is made of, where it is not there yet."""
        ...

    def load(self, order: LoadOrder) -> LoadedModel:
        """Return the model, ready to predict."""
        ...

    def settle(self) -> None:
        """Set what libraries keep by thread, for the calling one: before it first runs a model."""
        ...

    def keep(self, orders: Collection[LoadOrder]) -> None:
        """Forget all code but these orders' code: the orders of the replicas that are still loaded."""
        ...
