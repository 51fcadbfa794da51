"""What Python's collector walks over in a worker, and what an unloaded model leaves behind.

A collection holds the interpreter, so no batch goes on meanwhile: over what `import torch` makes it walks for
90 ms (EPYC, 2 GHz). What imports made is therefore frozen, out of its sight; a model's own objects are not,
so that a cycle among them is found when the model is unloaded, in 2 ms.
"""

import ctypes
import gc
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

MODULES_MANY: Final = 100
"""New modules that are worth freezing; torch brings 900. Few are left to the collector: a freeze takes in the
objects of every model that is loaded at that moment, too."""


class Garbage:
    """The collector of this process, which holds nothing but imports yet."""

    def __init__(self) -> None:
        gc.collect()
        gc.freeze()
        self._modules = len(sys.modules)
        self._pauses = 0
        self._lock = threading.Lock()
        self.freezes = 0
        """Times that what there was became invisible to the collector."""

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Pause automatic collection for the block. An import makes many objects: the collector would walk
        them six times, a third of the time of `import torch`."""
        with self._lock:
            self._pauses += 1
            gc.disable()
        try:
            yield
        finally:
            with self._lock:  # another load may be under way
                self._pauses -= 1
                if not self._pauses:
                    gc.enable()

    def freeze_imports(self) -> None:
        """Freeze all there is where much was imported since the last time; without looking for garbage."""
        if len(sys.modules) - self._modules >= MODULES_MANY:
            gc.freeze()
            self.freezes += 1
            self._modules = len(sys.modules)

    def clear(self, left: Callable[[], object] | None = None, freezes: int = 0) -> None:
        """Collect, and give free memory back to the system. `left` finds what should be gone by then, as long
        as it is there; it was made after that number of `freezes`.

        What is still there may be part of a cycle that was frozen since: then everything is walked over.
        """
        gc.collect()
        if left is not None and freezes < self.freezes and left() is not None:
            gc.unfreeze()
            gc.collect()
            gc.freeze()
            self.freezes += 1
        trim()


def trim() -> None:
    """Give back what the C library holds free, in 1 to 10 ms after a model of 100 MB. A process that needs it
    again has to fault it in."""
    with suppress(AttributeError):  # a C library without it
        ctypes.CDLL(None).malloc_trim(0)
