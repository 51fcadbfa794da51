"""What became of the requests of a run."""

from collections import Counter
from dataclasses import dataclass, field

from serving.scheduler.commands import Answer
from serving.vocabulary import COMPLETED, Outcome


@dataclass
class Tally:
    """Requests and batches that count. `waits_us`: arrival to answer of each that was completed."""

    offered: int = 0
    offered_rows: int = 0
    good: int = 0
    good_rows: int = 0
    late: int = 0
    batches: int = 0
    rows: int = 0
    busy_us: int = 0
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    waits_us: list[int] = field(default_factory=list)

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
