"""What `mark` promises: the batch of most throughput that the rate fills in time, and no longer a wait."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from serving.policy.batching.published.mark import REVIEW_US, Knobs, Mark, tune
from serving.values.vocabulary import NEVER_US
from tests.policy.views import (
    NOW_US,
    ArrivalSeen,
    LaneSeen,
    PieceSeen,
    QueueSeen,
    ReplicaSeen,
    queues,
    replicas,
)

SLO_US = 40
affine = st.builds(replace, replicas, base_us=st.sampled_from([0.0, 1.0, 5.0, 30.0]))
rates = st.sampled_from([0.0, 0.01, 0.1, 0.3, 1.0, 10.0])
heard_rows = st.sampled_from([0, 2_000, 20_000, 200_000, 2_000_000])  # 0.01 to 10 rows a microsecond


def taught(rows: int) -> Mark:
    """A policy that has seen so many rows arrive at once, of both sizes."""
    policy = Mark(SLO_US)
    for size in (0, 1):
        if rows:
            policy.on_arrival(ArrivalSeen(rows, size), NOW_US)
    return policy


@given(affine, rates, st.integers(1, 80))
def test_of_the_sizes_that_pay_and_fill_in_time_it_takes_the_one_of_most_throughput(
    replica: ReplicaSeen, rate: float, slo_us: int
) -> None:
    knobs = tune(replica, 0, slo_us, rate)
    alone = 1 / replica.typical_us(1, 0)
    throughput = {
        rows: rows / replica.typical_us(rows, 0)
        for rows in range(2, replica.rows_max(0) + 1)
        if rate and rows / rate + replica.predict_us(rows, 0) <= slo_us
    }
    paying = {rows: each for rows, each in throughput.items() if each > alone}
    if paying:
        best = max(paying.values())
        assert knobs.rows == min(rows for rows, each in paying.items() if each == best)
        assert knobs.wait_us == int(knobs.rows / rate)
        assert knobs.wait_us + replica.predict_us(knobs.rows, 0) <= slo_us
    else:
        assert knobs == Knobs(1, 0)


@given(queues, heard_rows)
def test_a_lane_goes_when_it_is_full_or_has_waited_or_gets_no_more_and_not_before(
    view: QueueSeen, rows: int
) -> None:
    policy = taught(rows)
    for lane in view.lanes:
        assert isinstance(lane, LaneSeen)
        choice = policy.choose(replace(view, lanes=(lane,)), NOW_US)
        variant = next((variant for variant in lane.variants if variant in view.replicas), None)
        if variant is None:
            assert choice.wake_us == NEVER_US
            continue
        rate = taught(rows)._counted[lane.bucket].rate if rows else 0.0
        knobs = tune(view.replicas[variant], lane.bucket, SLO_US, rate)
        due = lane.oldest_us + knobs.wait_us <= NOW_US
        assert (choice.lane is lane) == (lane.rows >= knobs.rows or due or lane.closed)
        assert choice.rows <= knobs.rows or len(choice.pieces) == 1


@given(queues, heard_rows)
def test_waiting_ends_at_the_instant_that_was_announced(view: QueueSeen, rows: int) -> None:
    policy = taught(rows)
    choice = policy.choose(view, NOW_US)
    if choice.lane is None and choice.wake_us != NEVER_US:
        assert policy.choose(view, choice.wake_us - 1).lane is None
        assert policy.choose(view, choice.wake_us).lane is not None


def test_it_follows_the_rate_and_a_request_that_stays_alone_is_not_kept_for_ever() -> None:
    policy = Mark(50_000)
    replica = {"a": ReplicaSeen({0: 64}, 1000.0, 5000.0)}
    lane = LaneSeen((PieceSeen(1, arrived_us=0),))
    for at_us in range(0, 2_000_000, 1000):  # a thousand a second
        policy.on_arrival(ArrivalSeen(), at_us)
    quick = policy.choose(QueueSeen((lane,), replica), 0)
    assert quick.lane is None
    assert 0 < quick.wake_us < 50_000
    for at_us in range(30_000_000, 90_000_000, 10 * REVIEW_US):  # two a second: 25 ms are none to wait for
        policy.on_arrival(ArrivalSeen(), at_us)
    assert policy.choose(QueueSeen((lane,), replica), 0).lane is lane
