"""What `slo` promises of waiting: it waits only while more rows save time, and never into its own deadline."""

from dataclasses import dataclass
from math import ceil

from hypothesis import given
from hypothesis import strategies as st

from serving.policy.batching.seam import Choice
from serving.policy.batching.slo import LULL, MIXED_SHARE, Slo
from serving.vocabulary import NEVER_US
from tests.policy.views import ArrivalSeen, LaneSeen, PieceSeen, QueueSeen, ReplicaSeen

NOW_US = 100_000_000
TRAINED = 400  # arrivals, after which a steady rate is read within READ
READ = 1.1
SLO_US = 50_000


@dataclass(frozen=True)
class AffineSeen(ReplicaSeen):
    """A batch takes `row_us` a row and `launch_us`."""

    launch_us: float = 5200

    def predict_us(self, rows: int, size: int) -> float:
        return self.row_us * rows + self.launch_us

    def typical_us(self, rows: int, size: int) -> float:
        return self.predict_us(rows, size)

    def rows_in(self, budget_us: float, size: int) -> int:
        return max(0, min(self.limits[size], int((budget_us - self.launch_us) / self.row_us)))


REPLICA = AffineSeen({0: 64}, 1080)
gaps_us = st.integers(500, 60_000)
counts = st.integers(1, 64)


def trained(gap_us: int, guard_us: int = 0, consolidate: bool = False, slo_us: int = SLO_US) -> Slo:
    """It has seen single rows at this gap, the last one now."""
    policy = Slo(slo_us, guard_us, consolidate)
    for number in range(TRAINED):
        policy.on_arrival(ArrivalSeen(), NOW_US - (TRAINED - 1 - number) * gap_us)
    return policy


def waiting(rows: int, slack_us: int = SLO_US, closed: bool = False) -> QueueSeen:
    """Single rows, all due after `slack_us`."""
    lane = LaneSeen((PieceSeen(1, NOW_US + slack_us, NOW_US),) * rows, closed=closed)
    return QueueSeen((lane,), {"a": REPLICA}, lateness_us=None)


def target(rate: float) -> int:
    """The largest batch that its first row can wait for."""
    fitting = (b for b in range(2, 65) if REPLICA.predict_us(b, 0) + b / rate <= SLO_US)
    return max(fitting, default=1)


def worth(gap_us: int) -> float:
    """beta * lambda: with so many rows, waiting for one more costs what it saves."""
    return REPLICA.launch_us / gap_us


@given(counts, gaps_us)
def test_it_never_waits_for_more_than_would_save_time(rows: int, gap_us: int) -> None:
    choice = trained(gap_us).choose(waiting(rows), NOW_US)
    assert not choice.patient or choice.rows < READ * worth(gap_us)
    assert not choice.patient or choice.rows < target(READ / gap_us)


@given(counts, st.integers(int(READ * REPLICA.launch_us), 10_000_000))
def test_at_light_load_it_never_waits(rows: int, gap_us: int) -> None:
    assert not trained(gap_us).choose(waiting(rows), NOW_US).patient


@given(counts)
def test_without_any_traffic_before_it_does_not_wait_either(rows: int) -> None:
    assert not Slo(SLO_US, 0).choose(waiting(rows), NOW_US).patient


@given(st.integers(500, 1000), st.integers(2, 8))
def test_a_first_row_of_many_waits_for_them(gap_us: int, slices: int) -> None:
    view = QueueSeen(waiting(1).lanes, {"a": REPLICA}, slices=slices)
    policy = trained(gap_us)
    loaded = QueueSeen(view.lanes, view.replicas, slices, neighbours=((policy, view),))
    saturated = REPLICA.row_us / gap_us > 0.3 * slices
    assert policy.choose(loaded, NOW_US).patient or not saturated


@given(counts, gaps_us)
def test_its_patience_ends_when_the_rate_has_fallen(rows: int, gap_us: int) -> None:
    choice = trained(gap_us).choose(waiting(rows), NOW_US)
    if choice.patient:
        assert choice.wake_us <= NOW_US + LULL * REPLICA.launch_us / choice.rows + 1


@given(counts, gaps_us)
def test_consolidating_it_waits_for_the_target_and_no_longer(rows: int, gap_us: int) -> None:
    choice = trained(gap_us, consolidate=True).choose(waiting(rows), NOW_US)
    if choice.rows < target(1 / gap_us / READ):
        assert choice.patient
        assert choice.wake_us == NEVER_US  # its latest start still bounds it
    if choice.rows >= target(READ / gap_us):
        assert not choice.patient


@given(counts, gaps_us, st.booleans())
def test_what_nothing_can_join_never_waits(rows: int, gap_us: int, consolidate: bool) -> None:
    assert not trained(gap_us, consolidate=consolidate).choose(waiting(rows, closed=True), NOW_US).patient


@given(counts, gaps_us, st.integers(8000, SLO_US), st.integers(0, 1500), st.none() | st.integers(0, 1500))
def test_the_latest_start_leaves_time_for_the_batch_and_for_late_wake_ups(
    rows: int, gap_us: int, slack_us: int, guard_us: int, measured_us: int | None
) -> None:
    lanes = waiting(rows, slack_us).lanes
    view = QueueSeen(lanes, {"a": REPLICA}, lateness_us=measured_us)
    choice = trained(gap_us, guard_us).choose(view, NOW_US)
    late_us = guard_us if measured_us is None else measured_us
    assert choice.latest_start_us == NOW_US + slack_us - ceil(late_us + REPLICA.predict_us(choice.rows, 0))
    assert choice.latest_start_us >= NOW_US


@given(counts, gaps_us, st.integers(10_000, SLO_US - 1), gaps_us)
def test_batches_leave_a_tighter_neighbour_its_slack(
    rows: int, gap_us: int, tight_us: int, other_gap_us: int
) -> None:
    loose, tight = trained(gap_us), trained(other_gap_us, slo_us=tight_us)
    alone, empty = waiting(rows), QueueSeen((), {"a": REPLICA})
    view = QueueSeen(alone.lanes, alone.replicas, neighbours=((loose, alone), (tight, empty)))
    choice = loose.choose(view, NOW_US)
    slack_us = tight_us - REPLICA.predict_us(1, 0)
    assert choice.rows == 1 or REPLICA.predict_us(choice.rows, 0) <= MIXED_SHARE * slack_us
    assert _rows(
        tight.choose(QueueSeen(alone.lanes, alone.replicas, neighbours=view.neighbours), NOW_US)
    ) >= min(rows, REPLICA.rows_in(SLO_US, 0))


def _rows(choice: Choice) -> int:
    return choice.rows
