"""What tritonclient sends and reads with shared memory, the same over REST and gRPC."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any  # tritonclient's modules carry no types
from uuid import uuid4

import numpy as np
import tritonclient.utils.shared_memory as shm

ROW_BYTES = 64
A = np.arange(16, dtype=np.int32).reshape(1, 16)
B = np.full((1, 16), 7, np.int32)
TEXTS = np.array([[b"a promise", "äöü".encode(), b""]], dtype=np.object_)


@contextmanager
def region(size: int) -> Iterator[tuple[Any, str]]:
    """A region that tritonclient made: its handle and its key."""
    key = f"/penstock-test-{uuid4().hex}"
    handle = shm.create_shared_memory_region("r", key, size, create_only=True)
    try:
        yield handle, key
    finally:
        shm.destroy_shared_memory_region(handle)


def simple_inputs(module: Any, name: str = "r") -> list[Any]:
    """INPUT0 and INPUT1 at the beginning of the region."""
    made = []
    for index in (0, 1):
        made.append(module.InferInput(f"INPUT{index}", [1, 16], "INT32"))
        made[-1].set_shared_memory(name, ROW_BYTES, index * ROW_BYTES)
    return made


def simple_outputs(module: Any, name: str = "r", size: int = ROW_BYTES) -> list[Any]:
    """OUTPUT1 and OUTPUT0 behind the inputs."""
    made = []
    for index in (1, 0):
        made.append(module.InferRequestedOutput(f"OUTPUT{index}"))
        made[-1].set_shared_memory(name, size, (2 + index) * ROW_BYTES)
    return made


def check_simple(handle: Any) -> None:
    """Both outputs are where they were asked for."""
    for index, expected in enumerate((A + B, A - B)):
        found = shm.get_contents_as_numpy(handle, np.int32, [1, 16], (2 + index) * ROW_BYTES)
        assert np.array_equal(found, expected)
