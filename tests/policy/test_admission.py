"""What admission promises: the limits hold, and nothing within them is refused."""

from hypothesis import given
from hypothesis import strategies as st

from serving.policy.admission import Backlog, refuse
from serving.specs import Limits
from serving.vocabulary import QUEUE_FULL

limits = st.builds(Limits, queue_rows=st.integers(1, 12), queue_requests=st.integers(1, 5))


@given(limits, st.lists(st.integers(1, 15), max_size=12))
def test_a_queue_filled_as_long_as_it_takes_more_stays_within_its_limits(
    limits: Limits, arrivals: list[int]
) -> None:
    backlog = Backlog()
    for rows in arrivals:
        full = backlog.requests == limits.queue_requests
        over = backlog.rows + rows > limits.queue_rows
        outcome = refuse(backlog, rows, limits)
        assert outcome == (QUEUE_FULL if full or (over and backlog.requests) else None)
        if outcome is None:
            backlog.requests += 1
            backlog.rows += rows
    assert backlog.requests <= limits.queue_requests
    assert backlog.rows <= limits.queue_rows or backlog.requests == 1


def test_an_empty_queue_takes_a_request_larger_than_its_bound() -> None:
    assert refuse(Backlog(), 100, Limits(queue_rows=10)) is None
    assert refuse(Backlog(rows=1, requests=1), 100, Limits(queue_rows=10)) is QUEUE_FULL


@given(limits, st.integers(0, 20), st.integers(0, 8), st.integers(1, 15))
def test_asking_changes_nothing(limits: Limits, rows: int, requests: int, more: int) -> None:
    backlog = Backlog(rows, requests)
    assert refuse(backlog, more, limits) == refuse(backlog, more, limits)
    assert backlog == Backlog(rows, requests)
