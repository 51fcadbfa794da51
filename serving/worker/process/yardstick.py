"""The same fixed work, run between a model's: what it takes tells how fast the machine is at that moment.

A matrix product and a copy, as models compute and move: some 0.5 ms on a core of 2023.
"""

import sys
import time
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

SIDE = 256  # the product's three matrices lie in a core's second-level cache
COPIED = 1 << 20  # floats; 4 MiB lie in none that is a core's own
GPU_SIDE = 2048


class Yardstick:
    """On one device, with the threads that the worker's libraries were started with."""

    def __init__(self, device: str = "cpu") -> None:
        self._device = device

    def run(self, count: int) -> list[int]:
        """Return the time of each of `count` runs, in microseconds; the first of `count` + 1 runs is not
        counted."""
        return [self._once() for _ in range(count + 1)][1:] if count else []

    def _once(self) -> int:
        started_ns = time.perf_counter_ns()
        if self._device != "cpu" and "torch" in sys.modules:
            self._on_gpu()
        else:
            left, right, source, target = self._arrays
            np.matmul(left, right)
            np.copyto(target, source)
        return (time.perf_counter_ns() - started_ns + 999) // 1000

    def _on_gpu(self) -> None:
        matrix = self._gpu_matrix
        (matrix @ matrix).sum().item()  # the number has to come back: until then nothing has been waited for

    @cached_property
    def _arrays(self) -> tuple[npt.NDArray[np.float32], ...]:
        numbers = np.random.default_rng(0)
        left, right = (numbers.random((SIDE, SIDE), dtype=np.float32) for _ in range(2))
        source = numbers.random(COPIED, dtype=np.float32)
        return left, right, source, np.empty_like(source)

    @cached_property
    def _gpu_matrix(self) -> Any:  # torch is the model's import, never this file's
        torch = sys.modules["torch"]
        return torch.ones((GPU_SIDE, GPU_SIDE), dtype=torch.bfloat16, device=self._device)
