"""What a run keeps of which variants answered, of models that have several: a few appends an answer."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from serving.scheduler.commands import Answer, RunBatch
from serving.simulation.tally import Parts
from serving.values.specs import ServedModel
from serving.values.vocabulary import COMPLETED, Downgrade

REASONS = tuple(Downgrade)

Whole = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Answered:
    """Of each request that was completed, and of each variant that had a part in it: when the request came,
    its model's number, the variant's (in the order of `ServedModel.variants`), and its rows. Of each batch
    that another variant ran than would have without pressure: its start, its model's number, its rows, and
    why (index into REASONS)."""

    at_us: Whole
    model: Whole
    variant: Whole
    rows: Whole
    down_at_us: Whole
    down_model: Whole
    down_rows: Whole
    down_reason: Whole


class Noted:
    """What is kept while a run goes on: nothing of models with one variant."""

    def __init__(self, served: Sequence[ServedModel]) -> None:
        self._models = {
            model.name: (number, {variant: place for place, variant in enumerate(model.variants)})
            for number, model in enumerate(served)
            if len(model.variants) > 1
        }
        self._answers = tuple(array("q") for _ in range(4))
        self._downgrades = tuple(array("q") for _ in range(4))

    def answer(self, answer: Answer, parts: Parts, epoch_us: int = 0) -> None:
        """Note that a request ended, with the `parts` that variants computed; its arrival counts from
        `epoch_us`."""
        known = self._models.get(answer.request.model)
        if known is None or answer.outcome is not COMPLETED:
            return
        at_us, model, variant, rows = self._answers
        for name, count in parts:
            at_us.append(answer.request.arrived_us - epoch_us)
            model.append(known[0])
            variant.append(known[1][name])
            rows.append(count)

    def batch(self, batch: RunBatch, start_us: int) -> None:
        """Note that a batch starts."""
        known = self._models.get(batch.model)
        if known is None or not batch.downgrade:
            return
        at_us, model, rows, reason = self._downgrades
        at_us.append(start_us)
        model.append(known[0])
        rows.append(batch.rows)
        reason.append(REASONS.index(Downgrade(batch.downgrade)))

    def columns(self) -> Answered:
        """Return the answers noted so far."""
        return Answered(*(np.asarray(kept, np.int64) for kept in (*self._answers, *self._downgrades)))
