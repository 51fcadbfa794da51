# ruff: noqa: ARG001, ARG002  (the signatures are those of every model)
"""The model of Triton's client examples: OUTPUT0 = INPUT0 + INPUT1, OUTPUT1 = INPUT0 - INPUT1."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

Scalar = bool | int | float | str
COLUMNS = 16


class Model:
    """Sum and difference of INT32 `[rows, 16]`; both wrap at the ends of the range, as in numpy."""

    def predict(self, inputs: dict[str, np.ndarray], parameters: dict[str, Scalar]) -> dict[str, np.ndarray]:
        """Map INPUT0, INPUT1 INT32 `[rows, 16]` to OUTPUT0, OUTPUT1 INT32 `[rows, 16]`."""
        left, right = inputs["INPUT0"], inputs["INPUT1"]
        return {"OUTPUT0": left + right, "OUTPUT1": left - right}

    def sample(self, rows: int, size: int) -> dict[str, np.ndarray]:
        """Return inputs to measure with; `size` is not used: the cost does not depend on the content."""
        counting = np.arange(rows * COLUMNS, dtype=np.int32).reshape(rows, COLUMNS)
        return {"INPUT0": counting, "INPUT1": np.ones_like(counting)}


def load(artifact: Path | None, options: Mapping[str, Scalar]) -> Model:
    """Return the model, which needs neither artifact nor options."""
    return Model()
