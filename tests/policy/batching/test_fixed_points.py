"""The loop rate -> size -> what a row takes -> what is admitted -> size has one fixed point, and a good one.

In closed form, for one model on one slice in overload: of the rows that are admitted a batch takes those that
have time left for it, up to the size that is aimed at, and carries them in the time that it typically takes.
The size and what is admitted follow from what is offered (`tests/scheduler/test_offered.py` holds the
scheduler to that) and from what is believed of batches, which follows from those that ran. Here the loop is
gone through from many starts: whatever ran, was believed and was admitted before, it ends at one point.
"""

from collections.abc import Sequence
from functools import partial

import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

from serving.policy.batching.interface import ReplicaView
from serving.policy.batching.rules.targets import KEPT, filling_rate, target_rows
from serving.policy.estimates.drift import LOOK_EVERY, Drift
from serving.profile.curve import Point, Profile
from serving.profile.derived.latency import Latency
from serving.scheduler.admission import HEADROOM
from tests.policy.views import ReplicaSeen
from tests.seeds import drawn

SLO_US = 50_000
QUIET_US = 500_000  # an instant at which nothing is probed
ROUND_US = 250_000  # so long a batch size is kept: four rounds a second, in the first of which is probed
ROUNDS = 24
SAME = 0.05


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


def admitted_of(replica: ReplicaView, offered: float, target: int, now_us: int = QUIET_US) -> float:
    """What is admitted, as `serving.scheduler.admission` reckons it."""
    carried = target / replica.typical_us(target, 0)
    return min(offered, max(HEADROOM * carried, filling_rate(replica, 0, SLO_US, target, now_us)))


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


class Believed:
    """A replica that was profiled wrongly, as what ran has taught it; without noise. Plans take `kappa` times
    what batches typically do. A `ReplicaView` as far as it is asked here."""

    def __init__(self, true: Uncertain, errors: Sequence[float]) -> None:
        self.true = true
        self.most = true.rows_max(0)
        wrong = [
            Point(0, rows, took_us, took_us, 10)
            for rows in range(1, self.most + 1)
            for took_us in [true.typical_us(rows, 0) * errors[rows.bit_length() - 1]]
        ]
        self.latency = self.profiled = Latency(Profile("m", "v", "cpu", tuple(wrong)))
        self.level = 1.0
        self.drift = Drift()

    def rows_max(self, size: int) -> int:
        return min(self.most, self.latency.rows_within(int(SLO_US / min(self.level, 1.0)), size))

    def typical_us(self, rows: int, size: int) -> float:
        return self.latency.predict_us(rows, size) * self.level

    def predict_us(self, rows: int, size: int) -> float:
        return self.true.kappa * self.typical_us(rows, size)

    def is_proven(self, rows: int, size: int) -> bool:
        return self.drift.is_proven(rows, size)

    def is_tried(self, rows: int, size: int) -> bool:
        return self.drift.is_tried(rows, size)

    def ran(self, rows: int, now_us: int) -> None:
        """Batches of so many rows ran until it was time to look."""
        took_us = self.true.typical_us(rows, 0)
        for _ in range(LOOK_EVERY):
            self.drift.add(rows, 0, round(took_us))
        self.latency = self.drift.look(self.profiled, self.latency, now_us) or self.latency
        self.level = took_us / self.latency.predict_us(rows, 0)


def ends_at(true: Uncertain, errors: Sequence[float], offered: float, first: int) -> float:
    """The rows a microsecond that the loop carries at last, in the mean of a second."""
    believed = Believed(true, errors)
    rows, carried = first, []
    for count in range(ROUNDS):
        believed.ran(rows, count * ROUND_US)
        target = target_rows(believed, 0, SLO_US, offered)  # type: ignore[arg-type]
        admitted = admitted_of(believed, offered, target, count * ROUND_US)  # type: ignore[arg-type]
        rows = batch(true, target, admitted)
        carried.append(min(admitted, rows / true.typical_us(rows, 0)))
    return sum(carried[-4:]) / 4


QUICK_TO_FAIL = [Phase.explicit, Phase.generate]  # shrinking takes minutes here
FROM_ONE_ROW = 5
"""So many rows, each of which takes as long as a batch of one, fit the SLO: else a larger batch that is taken
to be so long is never tried."""


@pytest.mark.slow
@settings(max_examples=drawn(20), deadline=None, phases=QUICK_TO_FAIL)
@given(
    replicas(), st.floats(1.1, 5), st.lists(st.floats(0.3, 8), min_size=8, max_size=8), st.integers(1, 128)
)
def test_the_loop_ends_at_one_point_whatever_was_believed_and_ran_before(
    replica: Uncertain, load: float, errors: list[float], first: int
) -> None:
    largest = target_rows(replica, 0, SLO_US, 1.0)
    end = partial(ends_at, replica, offered=load * largest / replica.typical_us(largest, 0))
    right = end(errors=[1.0] * 8, first=largest)
    for start in (1, min(first, largest)):
        assert end(errors=[1.0] * 8, first=start) == pytest.approx(right, rel=SAME)
        if FROM_ONE_ROW * replica.predict_us(1, 0) <= SLO_US:
            assert end(errors=errors, first=start) >= (1 - SAME) * right
