"""Names the class that it is told to, but for every third, on which each member errs in its turn; a member
that is told to stalls, for as long as there is a file "hold" beside this one. Its time is slept: no CPU, and
hardly any variance."""

import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

Scalar = bool | int | float | str
CLASSES = 6
BATCH_S = 0.002
NOBODY = -1


class Model:
    """SCORES of the label, or of the next class where the label is one that this member gets wrong."""

    def __init__(self, place: int) -> None:
        self._place = place

    def predict(self, inputs: dict[str, np.ndarray], parameters: dict[str, Scalar]) -> dict[str, np.ndarray]:
        """INT32 `[rows, 2]` (label, the member that stalls) to FP32 `[rows, 6]`."""
        labels, stalls = inputs["ROW"].T
        time.sleep(BATCH_S)
        while self._place in stalls and Path(__file__).with_name("hold").exists():
            time.sleep(BATCH_S)
        named = np.where(labels % 3 == self._place, (labels + 1) % CLASSES, labels)
        return {"SCORES": np.eye(CLASSES, dtype=np.float32)[named]}

    def sample(self, rows: int, size: int) -> dict[str, np.ndarray]:
        """Rows on which nobody stalls, to measure with."""
        return {"ROW": np.tile(np.array([0, NOBODY], np.int32), (rows, 1))}


def load(artifact: Path | None, options: Mapping[str, Scalar]) -> Model:
    """The member whose "place" the options name."""
    return Model(int(options["place"]))
