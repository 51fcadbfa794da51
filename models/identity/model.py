# ruff: noqa: ARG001, ARG002  (the signatures are those of every model)
"""Answers with its input, after `execute_delay_ms` milliseconds: what tests of time and wire need."""

import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

Scalar = bool | int | float | str
SAMPLE_COLUMNS = 16


class Model:
    """OUTPUT0 = INPUT0, the same array: every datatype passes bit for bit (BF16 as uint16)."""

    def predict(self, inputs: dict[str, np.ndarray], parameters: dict[str, Scalar]) -> dict[str, np.ndarray]:
        """Return INPUT0 of any datatype and shape as OUTPUT0; sleep `execute_delay_ms` (default 0) once a
        batch."""
        delay_ms = int(parameters.get("execute_delay_ms", 0))
        if delay_ms > 0:
            time.sleep(delay_ms / 1000)
        return {"OUTPUT0": inputs["INPUT0"]}

    def sample(self, rows: int, size: int) -> dict[str, np.ndarray]:
        """Return FP32 `[rows, 16]` to measure with; `size` is not used."""
        return {"INPUT0": np.zeros((rows, SAMPLE_COLUMNS), np.float32)}


def load(artifact: Path | None, options: Mapping[str, Scalar]) -> Model:
    """Return the model, which needs neither artifact nor options."""
    return Model()
