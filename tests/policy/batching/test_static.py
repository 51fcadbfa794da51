"""What `static` promises: the size-or-delay rule, exactly; of what is due, the most urgent; no state."""

from dataclasses import replace
from math import ceil

from hypothesis import given
from hypothesis import strategies as st

from serving.policy.batching.interface import WAIT, BatchReport, Choice, take_prefix
from serving.policy.batching.static import Static
from serving.values.vocabulary import NEVER_US
from tests.policy.views import (
    NOW_US,
    ArrivalSeen,
    LaneSeen,
    PieceSeen,
    QueueSeen,
    ReplicaSeen,
    lanes,
    queues,
    replicas,
)

sizes = st.none() | st.integers(1, 9)
delays_us = st.integers(0, 9)


def rows_worth_going_for(size: int | None, replica: ReplicaSeen, lane: LaneSeen) -> int:
    limit = replica.rows_max(lane.bucket)
    return limit if size is None else min(size, limit)


@given(lanes, replicas, sizes, delays_us)
def test_a_lane_goes_when_it_has_the_rows_or_has_waited_or_gets_no_more_and_not_before(
    lane: LaneSeen, replica: ReplicaSeen, size: int | None, delay_us: int
) -> None:
    view = QueueSeen((lane,), dict.fromkeys(lane.variants, replica))
    choice = Static(size, delay_us).choose(view, NOW_US)
    limit = rows_worth_going_for(size, replica, lane)
    due_us = min(piece.arrived_us for piece in lane.pieces) + delay_us
    if lane.rows >= limit or due_us <= NOW_US or lane.closed:
        count, rows = take_prefix(lane.pieces, limit)
        latency_us = replica.predict_us(rows, lane.size)
        latest_us = lane.pieces[0].deadline_us - ceil(latency_us)
        assert choice == Choice(
            lane, lane.pieces[:count], rows, lane.variants[0], latest_us, latency_us=latency_us
        )
        assert rows <= limit or count == 1
    else:
        assert choice == Choice(wake_us=due_us)


@given(queues, sizes, delays_us)
def test_of_the_lanes_that_are_due_the_most_urgent_goes_else_it_wakes_for_the_first(
    view: QueueSeen, size: int | None, delay_us: int
) -> None:
    policy = Static(size, delay_us)
    alone = [policy.choose(replace(view, lanes=(lane,)), NOW_US) for lane in view.lanes]
    due = [choice for choice in alone if choice.lane is not None]
    expected = min(due, key=lambda choice: choice.latest_start_us, default=WAIT)
    if not due:
        expected = Choice(wake_us=min((choice.wake_us for choice in alone), default=NEVER_US))
    chosen = policy.choose(view, NOW_US)
    assert chosen == expected
    assert chosen.lane is expected.lane


@given(queues, sizes, delays_us)
def test_waiting_ends_at_the_instant_that_was_announced(
    view: QueueSeen, size: int | None, delay_us: int
) -> None:
    policy = Static(size, delay_us)
    choice = policy.choose(view, NOW_US)
    if choice.lane is None and choice.wake_us != NEVER_US:
        assert choice.wake_us > NOW_US
        assert policy.choose(view, choice.wake_us - 1).lane is None
        assert policy.choose(view, choice.wake_us).lane is not None


@given(lanes, replicas)
def test_the_first_allowed_variant_that_is_resident_runs(lane: LaneSeen, replica: ReplicaSeen) -> None:
    for resident in (("a",), ("b",), ("a", "b")):
        choice = Static(None, 0).choose(QueueSeen((lane,), dict.fromkeys(resident, replica)), NOW_US)
        allowed = [variant for variant in lane.variants if variant in resident]
        assert choice.variant == (allowed[0] if allowed else "")


@given(queues, sizes, delays_us)
def test_asking_twice_gives_the_same_answer_whatever_it_was_told_in_between(
    view: QueueSeen, size: int | None, delay_us: int
) -> None:
    policy = Static(size, delay_us)
    first = policy.choose(view, NOW_US)
    policy.on_arrival(ArrivalSeen(3), NOW_US)
    policy.on_done(BatchReport("a", 3, 0, 10), NOW_US)
    assert policy.choose(view, NOW_US) == first


@given(queues, sizes)
def test_without_delay_it_never_waits_for_what_a_resident_variant_could_answer(
    view: QueueSeen, size: int | None
) -> None:
    answerable = any(variant in view.replicas for lane in view.lanes for variant in lane.variants)
    assert (Static(size, 0).choose(view, NOW_US).lane is not None) == answerable


def test_the_oldest_request_ends_the_wait_wherever_it_stands_in_the_lane() -> None:
    lane = LaneSeen((PieceSeen(1, 50, arrived_us=15), PieceSeen(1, 90, arrived_us=10)))
    assert Static(None, 8).choose(QueueSeen((lane,)), 17) == Choice(wake_us=18)
