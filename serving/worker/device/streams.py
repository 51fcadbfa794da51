"""The streams of a GPU by torch, and their stand-in on a CPU, where everything is done at once."""

from contextlib import AbstractContextManager, nullcontext
from types import ModuleType
from typing import Any

import numpy as np

from serving.worker.device.ports import Event, Lane, Streams, Tensor
from serving.worker.frames.arrays import Array


class GpuStreams:
    """Three streams of one GPU. Copies go by page-locked memory, so that no copy holds the host up."""

    def __init__(self, torch: ModuleType, device: str) -> None:
        self._torch: Any = torch
        self._device = torch.device(device)
        self._streams = {lane: torch.cuda.Stream(self._device) for lane in Lane}

    def within(self, lane: Lane) -> AbstractContextManager[object]:
        found: AbstractContextManager[object] = self._torch.cuda.stream(self._streams[lane])
        return found

    def mark(self, lane: Lane) -> Event:
        # Blocking: the thread that waits sleeps, as spinning would take the core from the next batch.
        event = self._torch.cuda.Event(blocking=True)
        event.record(self._streams[lane])
        found: Event = event
        return found

    def wait(self, lane: Lane, event: Event) -> None:
        self._streams[lane].wait_event(event)

    def to_device(self, array: Array) -> Tensor:
        source = _tensor(self._torch, array)
        if not source.is_pinned():  # it is where the payload lies in a registered shared area
            pinned = self._torch.empty_like(source, pin_memory=True)
            pinned.copy_(source)
            source = pinned
        return source.to(self._device, non_blocking=True)

    def to_host(self, tensor: Tensor) -> Tensor:
        host = self._torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        host.copy_(tensor, non_blocking=True)
        return host

    def settle(self) -> None:
        self._torch.cuda.synchronize(self._device)


class HostStreams:
    """Where a model of tensors computes on the CPU: whatever is asked for is done when the call returns."""

    def __init__(self, torch: ModuleType) -> None:
        self._torch: Any = torch

    def within(self, lane: Lane) -> AbstractContextManager[object]:  # noqa: ARG002
        return nullcontext()

    def mark(self, lane: Lane) -> Event:  # noqa: ARG002
        return _Passed()

    def wait(self, lane: Lane, event: Event) -> None:
        """Do nothing: the mark was passed as it was made."""

    def to_device(self, array: Array) -> Tensor:
        return _tensor(self._torch, array)

    def to_host(self, tensor: Tensor) -> Tensor:
        return tensor

    def settle(self) -> None:
        """Do nothing: nothing is ever under way."""


class _Passed:
    """A mark that the CPU has passed."""

    def synchronize(self) -> None:
        """Return at once."""


def _tensor(torch: Any, array: Array) -> Tensor:
    """Return the array as a tensor, without a copy if torch may write to it and it is in one piece."""
    return torch.from_numpy(np.require(array, requirements=("C", "W")))


def streams_on(torch: ModuleType, device: str) -> Streams:
    """Return the streams of a device, by its torch name."""
    return HostStreams(torch) if device == "cpu" else GpuStreams(torch, device)
