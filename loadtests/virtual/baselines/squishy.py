"""Squishy bin packing (Nexus: Shen et al., SOSP 2019, section 6.1): models share a slice in a duty cycle.

Each model runs one batch a cycle, of the rows that came in it. A shorter cycle makes smaller batches. So what
fits into a slice depends on the other models there.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil, inf

from loadtests.virtual.baselines.pools import NEAR
from serving.policy.placement.terms.plan import PlacedReplica
from serving.policy.placement.terms.problem import Demand, Option


@dataclass(frozen=True)
class Session:
    """A model's `rate` (rows a second, above 0) as `option` runs it.

    Each batch takes `slowdown` times as long as measured. In turns with others, the model runs one batch at a
    time.
    """

    demand: Demand
    option: Option
    rate: float
    slowdown: float = 1.0

    @property
    def bound_us(self) -> float:
        """The bound for a cycle and a batch together."""
        return 2 * self.demand.slack * self.demand.slo_us

    @cached_property
    def load(self) -> float:
        """The least part of its slice's time that its batches take, whatever their size."""
        row_us = min(us / rows for rows, us in self.option.curve) / self.option.processes
        return self.rate * row_us * self.slowdown / 1e6

    def batch_us(self, rows: int) -> float:
        """Return how long a batch takes."""
        return self.option.latency_us(rows) * self.slowdown

    @cached_property
    def duty_us(self) -> float:
        """The cycle of the largest batch with a first row that can wait for the last one to come.

        A batch of b rows is possible if (b - 1) / rate + l(b) is within the bound. The cycle is 0 if one row
        is too late, or if a batch takes longer than its rows take to come.
        """
        largest = self.option.curve[-1][0]
        gather_us = 1e6 / self.rate
        rows = bisect_right(
            range(1, largest + 1),
            self.bound_us,
            key=lambda count: (count - 1) * gather_us + self.batch_us(count),
        )
        if not rows:
            return 0.0
        duty_us = min(self.bound_us - self.batch_us(rows), rows * gather_us)
        return duty_us if duty_us >= self.batch_us(rows) else 0.0

    def rows(self, duty_us: float) -> int:
        """Return the rows of its batch in such a cycle."""
        return max(1, ceil(duty_us * self.rate / 1e6 - NEAR))


def occupancy(sessions: Sequence[Session]) -> float:
    """Return what part of the shortest of their duty cycles their batches take.

    The sessions cannot share a slice if it is over 1.
    """
    duty_us = min(session.duty_us for session in sessions)
    if not duty_us:
        return inf
    return sum(session.batch_us(session.rows(duty_us)) for session in sessions) / duty_us


def in_turns(sessions: Sequence[Session]) -> tuple[PlacedReplica, ...]:
    """Return the replicas that run one batch each in that cycle.

    The next cycle starts at once when the last batch has ended.
    """
    duty_us = min(session.duty_us for session in sessions)
    rows = [session.rows(duty_us) for session in sessions]
    total_us = sum(session.batch_us(count) for session, count in zip(sessions, rows, strict=True))
    return tuple(
        PlacedReplica(session.demand.model, session.option, count, count * 1e6 / total_us)
        for session, count in zip(sessions, rows, strict=True)
    )
