# ruff: noqa: ARG001, ARG002  (the signatures are those of every model)
"""The smallest model with sequences: OUTPUT is the sum of a sequence's inputs since its START."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

Scalar = bool | int | float | str


class Model:
    """Keeps nothing itself: the worker keeps SUM for each sequence, and gives it back with the next request.

    At the start of a sequence SUM is zero.
    """

    def predict(self, inputs: dict[str, np.ndarray], parameters: dict[str, Scalar]) -> dict[str, np.ndarray]:
        """Map INPUT and SUM, INT32 `[rows, 1]`, to OUTPUT and the sum to keep."""
        total = inputs["SUM"] + inputs["INPUT"]
        return {"OUTPUT": total, "NEXT_SUM": total}

    def sample(self, rows: int, size: int) -> dict[str, np.ndarray]:
        """Return inputs to measure with; the worker adds SUM."""
        return {"INPUT": np.ones((rows, 1), dtype=np.int32)}


def load(artifact: Path | None, options: Mapping[str, Scalar]) -> Model:
    """Return the model, which needs neither artifact nor options."""
    return Model()
