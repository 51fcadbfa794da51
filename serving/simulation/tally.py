"""What became of the requests of a run."""

from collections import Counter
from collections.abc import Mapping, Sequence

from serving.scheduler.commands import Answer
from serving.values.vocabulary import COMPLETED, Outcome

Parts = Sequence[tuple[str, int]]
"""Variants and the rows that each computed of one request."""


class Tally:
    """Requests and batches that count. `waits_us`: arrival to answer of each that was completed.

    `answered_rows`: by model and variant, of requests that were completed, in time or not;
    `downgraded_rows`: by `RunBatch.downgrade`, of batches that were started.
    """

    def __init__(self) -> None:
        self.offered = self.offered_rows = 0
        self.good = self.good_rows = 0
        self.late = 0
        self.batches = self.rows = 0
        self.busy_us = 0
        self.outcomes: Counter[Outcome] = Counter()
        self.waits_us: list[int] = []
        self.answered_rows: Counter[tuple[str, str]] = Counter()
        self.downgraded_rows: Counter[str] = Counter()

    def add(self, answer: Answer, now_us: int, parts: Parts) -> None:
        """Count a request that ended. `parts`: the variants that computed it."""
        request = answer.request
        self.outcomes[answer.outcome] += 1
        if answer.outcome is COMPLETED:
            self.waits_us.append(now_us - request.arrived_us)
            if now_us <= request.deadline_us:
                self.good += 1
                self.good_rows += request.rows
            else:
                self.late += 1
            for variant, rows in parts:
                self.answered_rows[request.model, variant] += rows

    @property
    def attainment(self) -> float:
        """The share of what was offered that was answered in time; 1 where nothing was."""
        return self.good / self.offered if self.offered else 1.0


def mean_accuracy(
    answered_rows: Mapping[tuple[str, str], float], accuracy: Mapping[tuple[str, str], float]
) -> float:
    """Return the mean accuracy of answers, by model and variant, over variants with known accuracy; nan if
    there are none."""
    known = {key: rows for key, rows in answered_rows.items() if key in accuracy}
    total = sum(known.values())
    return sum(accuracy[key] * rows for key, rows in known.items()) / total if total else float("nan")
