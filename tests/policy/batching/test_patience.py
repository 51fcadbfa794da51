"""What `slo` promises of waiting: only while more rows save time, and never into a batch's own deadline."""

from dataclasses import dataclass, replace
from math import ceil

from hypothesis import assume, given
from hypothesis import strategies as st

from serving.policy.batching.interface import Choice
from serving.policy.batching.rules.targets import mean_target, row_us
from serving.policy.batching.slo import HELD, LULL, MIXED_SHARE, Slo
from serving.policy.batching.slo_plan import CROWDED
from serving.policy.estimates.rates import YOUNG_US
from serving.values.vocabulary import NEVER_US
from tests.policy.views import ArrivalSeen, LaneSeen, PieceSeen, QueueSeen, ReplicaSeen

NOW_US = 10_000_000_000
TRAINED = 300  # arrivals, after which a steady rate is read within READ, where they took YOUNG_US
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
        return int(max(0, min(self.limits[size], (budget_us - self.launch_us) / self.row_us)))


REPLICA = AffineSeen({0: 64}, 1080)
EMPTY = QueueSeen((), {"a": REPLICA})
gaps_us = st.integers(150, 20_000)  # eight slices, at any load and over it
counts = st.integers(1, 64)


def trained(gap_us: int, guard_us: int = 0, consolidate: bool = False, slo_us: int = SLO_US) -> Slo:
    """It has seen single rows at this gap, the last one now."""
    policy = Slo(slo_us, guard_us, consolidate)
    count = max(TRAINED, YOUNG_US // gap_us + 1)
    for number in range(count):
        policy.on_arrival(ArrivalSeen(), NOW_US - (count - 1 - number) * gap_us)
    return policy


def view_of(policy: Slo, rows: int, slack_us: int = SLO_US, closed: bool = False) -> QueueSeen:
    """Eight slices for this policy alone; single rows wait, all due after `slack_us`."""
    lane = LaneSeen((PieceSeen(1, NOW_US + slack_us, NOW_US),) * rows, closed=closed)
    return QueueSeen((lane,), {"a": REPLICA}, slices=8, neighbours=((policy, EMPTY),))


def choose(policy: Slo, rows: int) -> Choice:
    return policy.choose(view_of(policy, rows), NOW_US)


def target(rate: float) -> int:
    """The largest batch that its first row can wait for: l(b) + b / rate <= SLO."""
    fitting = (b for b in range(2, 65) if REPLICA.predict_us(b, 0) + b / rate <= SLO_US)
    return max(fitting, default=1)


@given(counts, gaps_us)
def test_it_never_waits_for_more_than_would_save_time(rows: int, gap_us: int) -> None:
    choice = choose(trained(gap_us), rows)
    if choice.patient:
        assert choice.rows < READ * REPLICA.launch_us / gap_us  # beta * lambda
        assert choice.rows < target(READ / gap_us)


@given(counts, st.integers(int(READ * REPLICA.launch_us), 10_000_000))
def test_at_light_load_it_never_waits(rows: int, gap_us: int) -> None:
    assert not choose(trained(gap_us), rows).patient


@given(counts)
def test_without_any_traffic_before_it_does_not_wait_either(rows: int) -> None:
    assert not choose(Slo(SLO_US, 0), rows).patient


def test_near_saturation_a_first_row_waits_for_others() -> None:
    assert choose(trained(180), 1).patient


@given(counts, gaps_us)
def test_its_patience_ends_when_the_rate_has_fallen(rows: int, gap_us: int) -> None:
    choice = choose(trained(gap_us), rows)
    if choice.patient:
        assert choice.wake_us <= NOW_US + LULL * REPLICA.launch_us / choice.rows + 1


@given(counts, gaps_us)
def test_consolidating_it_waits_for_the_target_and_no_longer(rows: int, gap_us: int) -> None:
    choice = choose(trained(gap_us, consolidate=True), rows)
    if choice.rows < target(1 / gap_us / READ):
        assert choice.patient
        assert choice.wake_us == NEVER_US  # its latest start still bounds it
    if choice.rows >= target(READ / gap_us):
        assert not choice.patient


@given(counts, gaps_us, st.booleans())
def test_what_nothing_can_join_never_waits(rows: int, gap_us: int, consolidate: bool) -> None:
    policy = trained(gap_us, consolidate=consolidate)
    assert not policy.choose(view_of(policy, rows, closed=True), NOW_US).patient


@given(counts, gaps_us, st.integers(8000, SLO_US), st.integers(0, 1500), st.none() | st.integers(0, 1500))
def test_the_latest_start_leaves_time_for_the_batch_and_for_late_wake_ups(
    rows: int, gap_us: int, slack_us: int, guard_us: int, measured_us: int | None
) -> None:
    policy = trained(gap_us, guard_us)
    view = replace(view_of(policy, rows, slack_us), lateness_us=measured_us)
    choice = policy.choose(view, NOW_US)
    late_us = guard_us if measured_us is None else measured_us
    assert choice.latest_start_us == NOW_US + slack_us - ceil(late_us + REPLICA.predict_us(choice.rows, 0))
    assert NOW_US + REPLICA.predict_us(choice.rows, 0) <= NOW_US + slack_us


def beside(
    gap_us: int, tight_us: int, other_gap_us: int, rows: int, elsewhere_us: int = NEVER_US
) -> tuple[Slo, Slo, QueueSeen]:
    """A loose and a tight model on eight slices, of which another is free for the tight one by then."""
    loose, tight = trained(gap_us), trained(other_gap_us, slo_us=tight_us)
    other = replace(EMPTY, elsewhere=elsewhere_us)
    return loose, tight, replace(view_of(loose, rows), neighbours=((loose, EMPTY), (tight, other)))


tights_us = st.integers(10_000, SLO_US - 1)


def slack_us(tight_us: int) -> float:
    return MIXED_SHARE * (tight_us - REPLICA.predict_us(1, 0))


def alone(view: QueueSeen) -> QueueSeen:
    """The same, where there is but this slice."""
    return replace(view, slices=1)


@given(counts, gaps_us, tights_us, gaps_us, st.booleans())
def test_its_batches_leave_a_tighter_neighbour_its_slack_and_the_neighbour_s_may_be_long(
    rows: int, gap_us: int, tight_us: int, other_gap_us: int, single: bool
) -> None:
    """But they are no shorter than the load needs."""
    loose, tight, view = beside(gap_us, tight_us, other_gap_us, rows)
    view = alone(view) if single else view
    plan = loose.plan(view, NOW_US)
    assume(not plan.overload)
    stands = REPLICA.rows_in(slack_us(tight_us), 0)
    assume(single or stands)
    allowed = max(1, stands, REPLICA.rows_in(plan.least_us, 0))
    assert loose.choose(view, NOW_US).rows == min(rows, allowed, REPLICA.rows_in(SLO_US, 0))
    assert tight.choose(view, NOW_US).rows == min(rows, REPLICA.rows_in(SLO_US, 0))


@given(counts, gaps_us, st.integers(10_000, 13_000), gaps_us)
def test_on_several_slices_what_is_too_long_with_one_row_leaves_the_last_one_to_a_tighter_neighbour(
    rows: int, gap_us: int, tight_us: int, other_gap_us: int
) -> None:
    """Until most of its own slack is gone; then it takes all that it can."""
    loose, _, view = beside(gap_us, tight_us, other_gap_us, rows)
    assume(not loose.plan(view, NOW_US).overload)
    assume(not REPLICA.rows_in(slack_us(tight_us), 0))
    choice = loose.choose(view, NOW_US)
    assert choice.patient
    assert choice.rows == min(rows, REPLICA.rows_in(SLO_US, 0))
    assert choice.wake_us >= NOW_US + int(HELD * (choice.latest_start_us - NOW_US))
    assert choice.wake_us <= max(choice.latest_start_us, NOW_US + LULL * REPLICA.launch_us + 1)
    gone_us = NOW_US + ceil(HELD * (choice.latest_start_us - NOW_US))
    later = loose.choose(view, max(gone_us, NOW_US + ceil(LULL * REPLICA.launch_us)))
    assert not later.patient


@given(st.integers(2000, 20_000), tights_us, st.integers(15_000, 60_000))
def test_short_batches_are_no_shorter_than_the_load_needs(
    gap_us: int, tight_us: int, other_gap_us: int
) -> None:
    """They are as short as the neighbour would like exactly where such batches carry the load."""
    loose, tight, view = beside(gap_us, tight_us, other_gap_us, 1)
    plan = loose.plan(alone(view), NOW_US)
    assume(not plan.overload)
    rates = [policy.loads(EMPTY, NOW_US)[0].rate for policy in (loose, tight)]
    means = [
        mean_target(REPLICA, 0, slo_us, rate) for rate, slo_us in zip(rates, (SLO_US, tight_us), strict=True)
    ]

    def needs(longest_us: float) -> float:
        """Slices' time, where the loose one's batches take no longer."""
        short = max(1.0, min(means[0], REPLICA.rows_in(longest_us, 0)))
        return sum(
            rate * row_us(REPLICA, rows, 0) for rate, rows in zip(rates, (short, means[1]), strict=True)
        )

    assert (plan.least_us == 0) == (needs(slack_us(tight_us)) <= CROWDED)
    if plan.least_us < SLO_US:
        assert needs(max(plan.least_us, slack_us(tight_us))) <= CROWDED


@given(counts, gaps_us, tights_us, gaps_us, st.floats(0, 1))
def test_where_another_slice_is_the_neighbour_s_within_its_slack_a_batch_may_be_long(
    rows: int, gap_us: int, tight_us: int, other_gap_us: int, part: float
) -> None:
    free_us = NOW_US + int(part * slack_us(tight_us))
    loose, _, view = beside(gap_us, tight_us, other_gap_us, rows, free_us)
    assert loose.choose(view, NOW_US).rows == min(rows, REPLICA.rows_in(SLO_US, 0))


@given(counts, tights_us, st.booleans(), st.booleans())
def test_in_overload_only_a_neighbour_that_needs_little_keeps_its_slack(
    rows: int, tight_us: int, little: bool, single: bool
) -> None:
    """Of one slice; on several, others' batches are not kept short for it."""
    loose, _, view = beside(130 if little else 260, tight_us, 40_000 if little else 300, rows)
    view = alone(view) if single else view
    assume(loose.plan(view, NOW_US).overload)
    short = max(1, REPLICA.rows_in(slack_us(tight_us), 0))
    cap = short if single and little else REPLICA.rows_in(SLO_US, 0)
    assert loose.choose(view, NOW_US).rows == min(rows, cap)


@given(st.integers(1, 8))
def test_in_overload_a_row_is_waited_for_the_less_the_more_slices_are_idle(idle: int) -> None:
    """Each of them loses the time until it comes."""
    policy = trained(130)
    view = replace(view_of(policy, 1), idle=idle)
    assert policy.plan(view, NOW_US).overload
    waits = [
        rows
        for rows in range(1, 65)
        if policy.choose(replace(view_of(policy, rows), idle=idle), NOW_US).patient
    ]
    assert max(waits, default=0) <= READ * REPLICA.launch_us / 130 / idle
