"""Members' answers as votes, and one answer made of them."""

from collections.abc import Mapping

import numpy as np

from serving.policy.variants.voting import Classes, Vote, Weights, vote
from serving.ports import Reply
from serving.values.specs import ServedModel
from serving.values.tensor import Tensor
from serving.values.vocabulary import COMPLETED

_NUMBERS: Mapping[str, str] = {"FP32": "<f4", "FP64": "<f8"}


class Ballot:
    """Where a model's answers name a class: the largest element of each row of one output, FP32 or FP64
    `[rows, classes]`. ValueError where it has no such output."""

    __slots__ = ("_datatype", "_name", "_place", "classes")

    def __init__(self, model: ServedModel, output: str) -> None:
        outputs = model.spec.outputs
        found = [place for place, each in enumerate(outputs) if each.name == output]
        spec = outputs[found[0]] if found else None
        if spec is None or spec.datatype not in _NUMBERS or len(spec.shape) != 2 or spec.shape[1] < 1:
            wanted = f"one of {' or '.join(_NUMBERS)} and shape [-1, classes]"
            raise ValueError(
                f"{model.name}: the output that names the class is {output!r}; expected {wanted}"
            )
        self._name, self._place, self._datatype = spec.name, found[0], spec.datatype
        self.classes = spec.shape[1]

    def read(self, reply: Reply, rows: int) -> Classes | None:
        """Return the classes that an answer names, `[rows]`; None where it names none: it is no answer, is
        not of this shape, or holds what is no number."""
        if reply.outcome is not COMPLETED or len(reply.outputs) <= self._place:
            return None
        tensor = reply.outputs[self._place]
        if tensor.datatype != self._datatype or tensor.shape != (rows, self.classes):
            return None
        scores = np.frombuffer(tensor.data, _NUMBERS[self._datatype]).reshape(rows, self.classes)
        return None if np.isnan(scores).any() else scores.argmax(1)

    def write(self, decided: Vote) -> Tensor:
        """Return the share of weight of each class, the class decided on being the largest also where it won
        a tie."""
        shares = decided.totals.astype(_NUMBERS[self._datatype])
        tied = np.flatnonzero(shares.argmax(1) != decided.named)
        won = tied, decided.named[tied]
        shares[won] = np.nextafter(shares[won], np.array(2, shares.dtype))
        return Tensor(self._name, self._datatype, shares.shape, shares.tobytes())

    def join(self, reply: Reply, decided: Vote) -> list[Tensor]:
        """Return one answer: the shares of weight, and every other output as in `reply`."""
        outputs = list(reply.outputs)
        outputs[self._place] = self.write(decided)
        return outputs


def decide(named: Classes, weights: Weights, classes: int, absent: float) -> tuple[Vote, int]:
    """Return the vote of members, and the member that speaks for it. The speaker agrees on the most rows;
    ties go to the greatest weight on those rows, then to the earliest. Arguments as for `vote`."""
    decided = vote(named, weights, classes, absent)
    agrees = named == decided.named
    rows, worth = agrees.sum(1), (weights * agrees).sum(1)
    speaker = max(range(len(named)), key=lambda member: (rows[member], worth[member]))
    return decided, speaker
