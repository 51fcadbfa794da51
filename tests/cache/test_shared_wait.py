"""Waiting for another gateway makes nobody late, and nobody waits for long after the answer came."""

from hypothesis import given
from hypothesis import strategies as st

from serving.cache.shared_wait import AGAIN_US, LEASE_MAX_US, LEASE_MIN_US, again_us, lease_us, patience_us

instants = st.integers(0, 10**9)


@given(instants, instants, instants)
def test_after_all_its_patience_it_can_still_be_computed_in_time(
    due_us: int, least_us: int, now_us: int
) -> None:
    wait_us = patience_us(due_us, least_us, now_us)
    assert wait_us >= 0
    if wait_us:
        left_us = due_us - now_us - wait_us
        assert left_us - least_us >= wait_us, "at least as much is left for queues as was waited"


@given(instants, instants)
def test_a_lease_ends_with_its_deadline_but_for_bounds(due_us: int, now_us: int) -> None:
    lease = lease_us(due_us, now_us)
    assert LEASE_MIN_US <= lease <= LEASE_MAX_US
    assert lease in (LEASE_MIN_US, LEASE_MAX_US, due_us - now_us)


@given(instants, st.integers(0, 10**7), st.integers(0, 10**7))
def test_looks_are_few_and_the_last_is_at_the_end_of_patience(
    since_us: int, waited_us: int, left_us: int
) -> None:
    now_us = since_us + waited_us
    until_us = now_us + left_us
    at_us = again_us(since_us, now_us, until_us)
    assert now_us <= at_us <= until_us
    assert at_us == until_us or at_us - now_us >= max(AGAIN_US, waited_us // 4)
