"""What admission promises: the limits hold, nothing within them is refused, and what is short is shared."""

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.policy.limits.admission import FlowDemand, QueueLength, Thinning, allot, queue_fault
from serving.values.specs import Limits
from serving.values.vocabulary import QUEUE_FULL

limits = st.builds(Limits, queue_rows=st.integers(1, 12), queue_requests=st.integers(1, 5))


@given(limits, st.lists(st.integers(1, 15), max_size=12))
def test_a_queue_filled_as_long_as_it_takes_more_stays_within_its_limits(
    limits: Limits, arrivals: list[int]
) -> None:
    backlog = QueueLength()
    for rows in arrivals:
        full = backlog.requests == limits.queue_requests
        over = backlog.rows + rows > limits.queue_rows
        outcome = queue_fault(backlog, rows, limits)
        assert outcome == (QUEUE_FULL if full or (over and backlog.requests) else None)
        if outcome is None:
            backlog.requests += 1
            backlog.rows += rows
    assert backlog.requests <= limits.queue_requests
    assert backlog.rows <= limits.queue_rows or backlog.requests == 1


def test_an_empty_queue_takes_a_request_larger_than_its_bound() -> None:
    assert queue_fault(QueueLength(), 100, Limits(queue_rows=10)) is None
    assert queue_fault(QueueLength(rows=1, requests=1), 100, Limits(queue_rows=10)) is QUEUE_FULL


@given(limits, st.integers(0, 20), st.integers(0, 8), st.integers(1, 15))
def test_asking_changes_nothing(limits: Limits, rows: int, requests: int, more: int) -> None:
    backlog = QueueLength(rows, requests)
    assert queue_fault(backlog, more, limits) == queue_fault(backlog, more, limits)
    assert (backlog.rows, backlog.requests) == (rows, requests)


# who gets what of too little

demand = st.builds(
    FlowDemand,
    need=st.sampled_from([0.0, 0.1, 0.5, 1.0, 1.0, 2.0, 3.0, 40.0]),
    weight=st.sampled_from([0.001, 1.0, 1.0, 2.0, 3.0, 1e6]),
    priority=st.sampled_from([0, 0, 0, 1, -1]),
)
demands = st.lists(demand, max_size=7)
rooms = st.sampled_from([0.0, 0.3, 1.0, 2.5, 4.0, 100.0])
CLOSE = 1e-6


@given(demands, rooms)
def test_nobody_gets_more_than_it_needs_and_all_together_what_there_is(
    several: list[FlowDemand], room: float
) -> None:
    given_out = allot(several, room)
    assert all(0 <= part <= each.need for part, each in zip(given_out, several, strict=True))
    total = min(room, sum(each.need for each in several))
    assert sum(given_out) == pytest.approx(total, rel=CLOSE, abs=CLOSE)


@given(demands, rooms)
def test_whoever_gets_less_than_it_needs_has_no_less_by_weight_than_anyone_of_its_priority(
    several: list[FlowDemand], room: float
) -> None:
    """Max-min: raising its part would lower that of one who has no more."""
    parts = list(zip(several, allot(several, room), strict=True))
    for each, part in parts:
        if part < each.need * (1 - CLOSE):
            peers = [(p, other) for other, p in parts if other.priority == each.priority]
            assert all(p / other.weight <= part / each.weight * (1 + CLOSE) for p, other in peers)


@given(demands, rooms)
def test_a_lower_priority_gets_nothing_while_a_higher_one_wants_more(
    several: list[FlowDemand], room: float
) -> None:
    parts = list(zip(several, allot(several, room), strict=True))
    for each, part in parts:
        if part < each.need * (1 - CLOSE):
            lower = [p for other, p in parts if other.priority < each.priority]
            assert sum(lower) <= CLOSE * room


@given(st.permutations(range(5)), rooms)
def test_the_order_in_which_they_are_named_changes_nothing(order: list[int], room: float) -> None:
    several = [
        FlowDemand(0.5),
        FlowDemand(2.0),
        FlowDemand(1.0, 3.0),
        FlowDemand(9.0, 0.5),
        FlowDemand(1.0, 1.0, 1),
    ]
    parts = allot(several, room)
    assert allot([several[i] for i in order], room) == pytest.approx([parts[i] for i in order])


@given(
    st.lists(st.integers(1, 9), max_size=80),
    st.sampled_from([0.0, 0.01, 0.1, 0.3, 0.5, 0.77, 0.999, 1.0]),
    st.integers(0, 80),
)
def test_a_flow_is_thinned_to_its_share_within_one_request_at_every_instant(
    rows: list[int], share: float, start: int
) -> None:
    thinning = Thinning()
    admitted = [count if thinning.admit(count, share) else 0 for count in rows]
    due = list(accumulate(share * count for count in rows))
    for had, passed in zip(accumulate(admitted), due, strict=True):
        assert -CLOSE <= had - passed < max(rows) + CLOSE
    for begin in range(min(start, len(rows))):  # and from any instant on, either way
        span = sum(admitted[begin:]) - share * sum(rows[begin:])
        assert abs(span) < max(rows) + CLOSE


def test_requests_of_one_row_pass_as_evenly_as_can_be() -> None:
    thinning = Thinning()
    assert [thinning.admit(1, 0.25) for _ in range(9)] == [True, *[False] * 3] * 2 + [True]
