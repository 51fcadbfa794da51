"""A table says the same of a rate and of the replicas that it needs."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.policy.scaling.carried.capacity import Capacity

TABLE = Capacity((1, 2, 4), (1.0, 4.0), ((10.0, 24.0, 52.0), (4.0, 12.0, 32.0)))


@pytest.mark.parametrize(
    ("count", "cv", "rate"),
    [
        (0, 1, 0),
        (0.5, 1, 5),
        (1, 1, 10),
        (3, 1, 38),
        (8, 1, 104),
        (2, 4, 12),
        (2, 9, 12),
        (2, 2.5, 18),
        (2, 0, 24),
    ],
)
def test_between_what_was_measured_it_is_on_the_line(count: float, cv: float, rate: float) -> None:
    assert TABLE.rate(count, cv) == pytest.approx(rate)


@st.composite
def tables(draw: st.DrawFn) -> Capacity:
    counts = tuple(sorted(draw(st.sets(st.integers(1, 20), min_size=1, max_size=4))))
    cvs = tuple(map(float, sorted(draw(st.sets(st.integers(1, 9), min_size=1, max_size=3)))))
    each = draw(st.lists(st.floats(0.5, 3), min_size=len(counts), max_size=len(counts)))
    rates = [sum(each[: place + 1]) * counts[place] for place in range(len(counts))]
    return Capacity(counts, cvs, tuple(tuple(rate / (1 + row) for rate in rates) for row in range(len(cvs))))


@given(tables(), st.floats(0, 200), st.floats(0, 10))
def test_the_needed_replicas_carry_the_rate_and_one_fewer_does_not(
    table: Capacity, rate: float, cv: float
) -> None:
    count = table.needed(rate, cv)
    assert table.rate(count, cv) >= rate
    assert count == 0 or table.rate(count - 1, cv) < rate


@given(tables(), st.integers(0, 30), st.floats(0, 10))
def test_what_replicas_carry_needs_no_more_of_them(table: Capacity, count: int, cv: float) -> None:
    assert table.needed(table.rate(count, cv), cv) <= count


@given(tables(), st.floats(0, 200), st.floats(0, 10), st.integers(1, 5))
def test_no_more_are_needed_than_there_may_be(table: Capacity, rate: float, cv: float, most: int) -> None:
    assert table.needed(rate, cv, most) == min(table.needed(rate, cv), most)


@given(tables(), st.floats(0.01, 200), st.floats(0, 10))
def test_what_is_filled_carries_the_rate_and_the_needed_replicas_are_that_rounded_up(
    table: Capacity, rate: float, cv: float
) -> None:
    filled = table.filled(rate, cv)
    assert table.rate(filled, cv) == pytest.approx(rate, rel=1e-6)
    needed = table.needed(rate, cv)
    assert needed - 1 <= filled <= needed + 1e-9


def test_nothing_is_filled_by_nothing_and_no_number_carries_what_none_does() -> None:
    assert TABLE.filled(0) == 0
    assert Capacity((1, 2), (1.0,), ((0.0, 0.0),)).filled(1) == inf
