"""What classifiers answer, as counts: the class of a row, and how sure the model is of it.

A few answers a second are looked at, of each the first row; no tensor is ever kept.
"""

from math import prod
from typing import Final

import numpy as np

from serving.ports import Reply
from serving.values.applications import CLASSIFY
from serving.values.specs import ModelSpec
from serving.values.tensor import Tensor

CLASSES, CONFIDENCES = "classes", "confidences"
ANSWER_KINDS: Final = (CLASSES, CONFIDENCES)
SAMPLED_PER_S: Final = 20
"""Answers of a model that are looked at in a second: each costs the event loop 10 us."""
CLASSES_MAX: Final = 200
"""Classes that are counted apart; of more, those of equal remainder share a count."""
VALUES_MAX: Final = 100_000
_STEPS: Final = 10
_DTYPES: Final = {"FP16": np.float16, "FP32": np.float32, "FP64": np.float64}

Counts = dict[str, float]


class AnswerCounts:
    """Of one model. `output`: the number of the output with a value for each class, of `width` classes."""

    __slots__ = ("_kept", "_left", "_second", "output", "width")

    def __init__(self, output: int, width: int) -> None:
        self.output, self.width = output, width
        self._second, self._left = 0, 0
        self._kept: dict[str, Counts] = {kind: {} for kind in ANSWER_KINDS}

    def take(self, reply: Reply, now_us: int) -> None:
        """Count an answer, if it is one of the few."""
        second = now_us // 1_000_000
        if second != self._second:
            self._second, self._left = second, SAMPLED_PER_S
        if self._left <= 0 or len(reply.outputs) <= self.output:
            return
        self._left -= 1
        found = best(reply.outputs[self.output], self.width)
        if found is not None:
            for kind, key in ((CLASSES, str(found[0] % CLASSES_MAX)), (CONFIDENCES, step_of(found[1]))):
                counts = self._kept[kind]
                counts[key] = counts.get(key, 0.0) + 1.0

    def drain(self) -> dict[str, Counts]:
        """Return the counts since the last call, by kind and bucket."""
        found, self._kept = self._kept, {kind: {} for kind in ANSWER_KINDS}
        return found


def counts_for(spec: ModelSpec) -> AnswerCounts | None:
    """Return what counts the answers of a classifier: of a model that says so by its labels, its endpoint or
    its measured accuracy. None for other models."""
    application = spec.application
    named = application.output if application is not None and application.task == CLASSIFY else ""
    for place, output in enumerate(spec.outputs):
        says_so = output.labels is not None or output.name == named or (spec.accuracy_metric and place == 0)
        sizes = output.shape[1:]
        if says_so and output.datatype in _DTYPES and sizes and -1 not in sizes:
            width = prod(sizes)
            if 2 <= width <= VALUES_MAX:
                return AnswerCounts(place, width)
    return None


def best(tensor: Tensor, width: int) -> tuple[int, float] | None:
    """Return the class of the first row, and its share: as the row has it, or by softmax where the row is no
    distribution. None where the row has no finite largest value."""
    dtype = _DTYPES.get(tensor.datatype)
    if dtype is None or len(tensor.data) < width * np.dtype(dtype).itemsize:
        return None
    row = np.frombuffer(tensor.data, dtype, width).astype(np.float64)
    place = int(row.argmax())
    top = float(row[place])
    if not np.isfinite(top):
        return None
    if row.min() >= 0 and abs(float(row.sum()) - 1) < 0.01:
        return place, top
    return place, float(1 / np.exp(row - top).sum())


def step_of(confidence: float) -> str:
    """Return the tenth that a confidence is in, by its lower end."""
    return f"{min(int(confidence * _STEPS), _STEPS - 1) / _STEPS:.1f}"
