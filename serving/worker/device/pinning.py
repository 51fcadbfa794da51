"""Page-locks what the worker has mapped of the gateway's shared memory: a GPU then copies straight from it.

Only requests: answers are written to their area by a system call. Where there is no memory for them it fails,
while a copy by a GPU would end the process.
"""

import sys
from collections.abc import Callable
from contextlib import suppress
from mmap import mmap
from typing import Any, Protocol

import numpy as np


class Locks(Protocol):
    """What locks pages for a device. `lock` and `unlock` return "", or why they could not."""

    @property
    def ready(self) -> bool:
        """Whether the device is in use by now."""
        ...

    def lock(self, address: int, byte_count: int) -> str: ...

    def unlock(self, address: int) -> str: ...


class CudaLocks:
    """Locks pages by CUDA, once a model has imported torch and used its device."""

    @property
    def ready(self) -> bool:
        torch = sys.modules.get("torch")
        return torch is not None and bool(torch.cuda.is_initialized())

    def lock(self, address: int, byte_count: int) -> str:
        return self._said(_cuda().cudart().cudaHostRegister(address, byte_count, 0))

    def unlock(self, address: int) -> str:
        return self._said(_cuda().cudart().cudaHostUnregister(address))

    @staticmethod
    def _said(status: Any) -> str:
        """Return "" for success, else what CUDA answered."""
        if int(status) == 0:
            return ""
        # CUDA keeps the error and would blame the next kernel: one that matters to no model is launched.
        with suppress(RuntimeError):
            sys.modules["torch"].ones(1, device="cuda")
        return f"CUDA error {int(status)}"


class PinnedArea:
    """The mapping of one shared area, page-locked as long as it is the area's."""

    def __init__(self, locks: Locks, note: Callable[[str], None]) -> None:
        """Create an area without a mapping. `note`: called once with the reason if pages cannot be locked."""
        self._locks = locks
        self._note = note
        self._mapping: mmap | None = None  # held, so that it is not unmapped while its pages are locked
        self._refused = False

    def differs(self, mapping: mmap | None) -> bool:
        """Return whether `follow` has anything to do, before which no copy may be under way."""
        return mapping is not self._mapping and not self._refused and self._locks.ready

    def follow(self, mapping: mmap | None) -> None:
        """Lock the pages of this mapping in place of the previous mapping."""
        if not self.differs(mapping):
            return
        self.release()
        if mapping is None:
            return
        if said := self._locks.lock(_address(mapping), len(mapping)):
            self._refused = True
            self._note(f"shared memory is not page-locked, so its copies are slower: {said}")
        else:
            self._mapping = mapping

    def release(self) -> None:
        """Unlock the pages."""
        mapping, self._mapping = self._mapping, None
        if mapping is not None and (said := self._locks.unlock(_address(mapping))):
            self._note(f"shared memory stays page-locked: {said}")


def _address(mapping: mmap) -> int:
    return int(np.frombuffer(mapping, np.uint8).ctypes.data)


def _cuda() -> Any:
    return sys.modules["torch"].cuda
