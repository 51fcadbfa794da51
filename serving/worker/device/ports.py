"""What the data path of a device needs: three streams that go on side by side, and events between them.

The names are torch's (`torch.cuda`). What runs batches knows no more of a device than this, so a stand-in
without one shows all of it.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from enum import Enum
from typing import Any, Protocol

from serving.worker.frames.arrays import Array

Tensor = Any
"""A `torch.Tensor`: torch is the model's import, never the worker's."""
Tensors = dict[str, Tensor]


class Lane(Enum):
    """A stream: what is given to one of them runs in order, beside what the others do."""

    COPY_IN = "copy in"
    COMPUTE = "compute"
    COPY_OUT = "copy out"


class Event(Protocol):
    """A mark in a stream."""

    def synchronize(self) -> None:
        """Wait until the stream has come by; raise what the device has met before."""
        ...


class Streams(Protocol):
    """The streams of one worker on one device."""

    def within(self, lane: Lane) -> AbstractContextManager[object]:
        """Give all that the block does to this stream, without waiting for it."""
        ...

    def mark(self, lane: Lane) -> Event:
        """Return a mark behind all that the stream was given."""
        ...

    def wait(self, lane: Lane, event: Event) -> None:
        """Let the stream go on only after a mark of another one. The host does not wait."""
        ...

    def to_device(self, array: Array) -> Tensor:
        """Copy in, in the stream of the block. The array may be reused after the stream's next mark."""
        ...

    def to_host(self, tensor: Tensor) -> Tensor:
        """Copy out, in the stream of the block. What is returned is filled after the stream's next mark."""
        ...

    def settle(self) -> None:
        """Wait until nothing is under way; raise what the device has met."""
        ...


class DeviceModel(Protocol):
    """A model that takes and gives tensors on its device. It need not wait for them, nor know of streams."""

    def predict_device(self, inputs: Tensors, parameters: dict[str, Any]) -> Mapping[str, Tensor]:
        """Return outputs by name. Inputs may be changed, not kept."""
        ...
