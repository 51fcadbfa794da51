"""One open-loop run at a share of a capacity, and what of it was answered within the SLO."""

from dataclasses import dataclass

import numpy as np

from loadtests.harness.dispatch import Server, measure
from loadtests.harness.gateway import Gateway
from loadtests.harness.payloads import Contents, Target
from loadtests.harness.processes import undisturbed
from loadtests.openloop import Ask, Course, prepare
from loadtests.stand.testbed import CONNECTIONS, CONNECTIONS_MAX, may_go_first


@dataclass(frozen=True, slots=True)
class Share:
    """A load: a share of the capacity, in rows a second; `cv` of the gaps between requests."""

    share: float
    capacity: float
    cv: float = 1.0

    @property
    def best(self) -> float:
        """The most rows that can be answered in time, a second."""
        return min(self.share, 1.0) * self.capacity


@dataclass(frozen=True, slots=True)
class Run:
    """A run of a model with an SLO. `core`: of server and client, which others then leave to them. `rows`: of
    a request."""

    model: str
    slo_ms: float
    seconds: float
    core: int
    seed: int = 0
    rows: int = 1


def goodput(server: Gateway, load: Share, run: Run) -> float:
    """Return how many rows a second were answered within the SLO, from the instant each was due."""
    at = Server(server.host, server.rest_port, CONNECTIONS, CONNECTIONS_MAX)
    course = Course(run.seconds, load.cv, contents=Contents(run.rows, seed=run.seed))
    prepared = prepare(
        [Ask(Target(run.model), f"{load.share * load.capacity / run.rows}", run.slo_ms)], course, at
    )
    with undisturbed(run.core, may_go_first()):
        record, _ = measure(prepared.loads, at)
    took_ms = (np.asarray(record.done_ns, float) - np.asarray(record.due_ns)) / 1e6
    good = np.sum((np.asarray(record.statuses) == 200) & (took_ms <= run.slo_ms))
    return float(good) * run.rows / run.seconds
