# ruff: noqa: ARG001, ARG002  (the signatures are those of every model)
"""Waits as long as a batch of a real model would compute: a device whose latency is known exactly."""

import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

Scalar = bool | int | float | str
_SPIN_S = 0.0005  # sleeps end late by some 60 us: the last of it is waited for in a loop


class Model:
    """OUTPUT = INPUT, after `alpha_s` * rows + `beta_s`."""

    def __init__(self, alpha_s: float, beta_s: float) -> None:
        self._alpha_s = alpha_s
        self._beta_s = beta_s

    def predict(self, inputs: dict[str, np.ndarray], parameters: dict[str, Scalar]) -> dict[str, np.ndarray]:
        """Return OUTPUT for INPUT, both FP32 `[rows, 4]`."""
        end_s = time.perf_counter() + self._alpha_s * len(inputs["INPUT"]) + self._beta_s
        time.sleep(max(end_s - time.perf_counter() - _SPIN_S, 0))
        while time.perf_counter() < end_s:
            pass
        return {"OUTPUT": inputs["INPUT"]}

    def sample(self, rows: int, size: int) -> dict[str, np.ndarray]:
        """Return FP32 `[rows, 4]` to measure with; `size` is not used."""
        return {"INPUT": np.zeros((rows, 4), np.float32)}


def load(artifact: Path | None, options: Mapping[str, Scalar]) -> Model:
    """Load the model, which takes `alpha_ms` a row and `beta_ms` a batch."""
    return Model(float(options["alpha_ms"]) / 1e3, float(options["beta_ms"]) / 1e3)
