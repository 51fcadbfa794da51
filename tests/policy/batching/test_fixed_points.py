"""The loop rate -> size -> what a row takes -> what is admitted -> size has one fixed point, and a good one.

In closed form, for one model on one slice in overload: of the rows that are admitted a batch takes those that
have time left for it, up to the size that is aimed at, and carries them in the time that it typically takes.
The size and what is admitted follow from what is offered alone (`tests/scheduler/test_offered.py` holds the
scheduler to that): there is one fixed point, whatever was believed or admitted before. Here: it is good.
"""

from hypothesis import assume, given
from hypothesis import strategies as st

from serving.policy.batching.interface import ReplicaView
from serving.policy.batching.targets import KEPT, filling_rate, target_rows
from serving.scheduler.admission import HEADROOM
from tests.policy.views import ReplicaSeen

SLO_US = 50_000


class Uncertain(ReplicaSeen):
    """Batches typically take their curve, and are planned with `kappa` times that."""

    kappa = 1.0

    def predict_us(self, rows: int, size: int) -> float:
        return self.kappa * super().predict_us(rows, size)

    def typical_us(self, rows: int, size: int) -> float:
        return super().predict_us(rows, size)


@st.composite
def replicas(draw: st.DrawFn) -> Uncertain:
    """Curves of which one row, by its plan, fits the SLO twice."""
    kappa = draw(st.floats(1, 5))
    base_us = draw(st.floats(0, 0.5)) * SLO_US / kappa
    row_us = draw(st.floats(10, 5000))
    replica = Uncertain({0: draw(st.integers(2, 128))}, row_us, base_us)
    object.__setattr__(replica, "kappa", kappa)  # it is frozen, so that no policy changes it
    assume(2 * replica.predict_us(1, 0) <= SLO_US)
    return replica


def batch(replica: ReplicaView, target: int, admitted: float) -> int:
    """The largest batch that finds enough rows with time left for it, at least one row."""
    fitting = (
        rows for rows in range(1, target + 1) if rows <= admitted * (SLO_US - replica.predict_us(rows, 0))
    )
    return max(fitting, default=1)


def admitted_of(replica: ReplicaView, offered: float, target: int) -> float:
    """What is admitted, as `serving.scheduler.admission` reckons it."""
    carried = target / replica.typical_us(target, 0)
    return min(offered, max(HEADROOM * carried, filling_rate(replica, 0, SLO_US, target)))


@given(replicas(), st.floats(1.1, 5))
def test_what_is_admitted_there_fills_batches_that_carry_nearly_what_the_largest_do(
    replica: Uncertain, load: float
) -> None:
    largest = target_rows(replica, 0, SLO_US, 1.0)
    offered = load * largest / replica.typical_us(largest, 0)
    target = target_rows(replica, 0, SLO_US, offered)
    admitted = admitted_of(replica, offered, target)
    rows = batch(replica, target, admitted)
    if admitted < offered:  # else all there is fills them
        assert rows / replica.typical_us(rows, 0) >= KEPT * target / replica.typical_us(target, 0) - 1e-9
