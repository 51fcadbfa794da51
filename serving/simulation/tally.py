"""What became of the requests of a run."""

from collections import Counter

from serving.scheduler.commands import Answer
from serving.vocabulary import COMPLETED, Outcome


class Tally:
    """Requests and batches that count. `waits_us`: arrival to answer of each that was completed."""

    def __init__(self) -> None:
        self.offered = self.offered_rows = 0
        self.good = self.good_rows = 0
        self.late = 0
        self.batches = self.rows = 0
        self.busy_us = 0
        self.outcomes: Counter[Outcome] = Counter()
        self.waits_us: list[int] = []

    def add(self, answer: Answer, now_us: int) -> None:
        """A request ended."""
        request = answer.request
        self.outcomes[answer.outcome] += 1
        if answer.outcome is COMPLETED:
            self.waits_us.append(now_us - request.arrived_us)
            if now_us <= request.deadline_us:
                self.good += 1
                self.good_rows += request.rows
            else:
                self.late += 1

    @property
    def attainment(self) -> float:
        """The share of what was offered that was answered in time; 1 where nothing was."""
        return self.good / self.offered if self.offered else 1.0
