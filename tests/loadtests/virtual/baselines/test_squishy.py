"""Duty cycles: the largest batch whose first row can wait, and merged ones that no one is late in."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadtests.virtual.baselines.squishy import Session, in_turns, occupancy
from serving.policy.placement.terms.problem import Demand, Option
from serving.values.slice_specs import Share
from tests.seeds import drawn

ROWS_MAX = 16
SESSIONS = st.builds(
    lambda rate, fixed, row, slo, slowdown: session(float(rate), fixed, row, slo, slowdown),
    st.integers(1, 400),
    st.integers(1, 10),
    st.integers(0, 10),
    st.integers(20, 400),
    st.sampled_from((1.0, 1.3)),
)


def session(rate: float, fixed_ms: float, row_ms: float, slo_ms: float, slowdown: float = 1.0) -> Session:
    curve = tuple((rows, 1000.0 * (fixed_ms + row_ms * rows)) for rows in (1, 4, ROWS_MAX))
    option = Option("gpu", Share("mps", 50.0), "fp32", curve)
    return Session(Demand("a", rate, 1000.0 * slo_ms, (option,)), option, rate, slowdown)


@given(SESSIONS)
@settings(max_examples=drawn(40))
def test_the_duty_cycle_is_that_of_the_largest_batch_whose_first_row_can_wait(one: Session) -> None:
    fitting = [
        rows
        for rows in range(1, ROWS_MAX + 1)
        if (rows - 1) * 1e6 / one.rate + one.batch_us(rows) <= one.bound_us
    ]
    if one.duty_us:
        rows = max(fitting)
        longest_us = min(one.bound_us - one.batch_us(rows), rows * 1e6 / one.rate)
        assert one.duty_us == pytest.approx(longest_us)
        assert one.batch_us(rows) <= one.duty_us
    else:
        assert not fitting or any(
            one.batch_us(rows) > min(one.bound_us - one.batch_us(rows), rows * 1e6 / one.rate)
            for rows in fitting
        )


@given(st.lists(SESSIONS, min_size=1, max_size=4))
@settings(max_examples=drawn(40))
def test_in_a_merged_cycle_all_rates_are_carried_and_nobody_is_late(sessions: list[Session]) -> None:
    if occupancy(sessions) > 1:
        return
    residents = in_turns(sessions)
    took_us = [one.batch_us(each.rows) for one, each in zip(sessions, residents, strict=True)]
    for one, each, own_us in zip(sessions, residents, took_us, strict=True):
        assert each.capacity >= one.rate * (1 - 1e-6)
        assert sum(took_us) + own_us <= one.bound_us * (1 + 1e-9)


def test_a_worked_example() -> None:
    """100 rows/s, batches of 5 + 1 * rows ms, 40 of 44.4 ms: the fourth row comes 30 ms after the first and
    the batch takes 9. Beside 25 rows/s the cycle is 31 ms: 4 rows and 1."""
    one = session(100.0, 5.0, 1.0, 40.0 / 0.9)
    assert one.duty_us == 31_000.0
    other = session(25.0, 5.0, 1.0, 400.0)
    assert [each.rows for each in in_turns([one, other])] == [4, 1]
    assert occupancy([one, other]) == (9 + 6) / 31


def test_what_is_too_late_or_too_much_shares_with_nobody() -> None:
    assert occupancy([session(1.0, 50.0, 1.0, 40.0)]) > 1
    assert occupancy([session(400.0, 9.0, 9.0, 400.0)]) > 1
