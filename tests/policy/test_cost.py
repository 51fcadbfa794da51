"""What slices cost is divided among models, all of it, by how long each was computed."""

from math import isnan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.policy.cost import cost_per_hour, cost_per_million

names = st.sampled_from("abc")
shares = st.dictionaries(names, st.floats(0, 0.3), min_size=1)
slices = st.dictionaries(st.sampled_from("xyz"), st.tuples(st.floats(0, 10), shares), min_size=1)


@given(slices)
def test_the_parts_add_up_to_the_price_of_all_slices_and_none_is_negative(
    held: dict[str, tuple[float, dict[str, float]]],
) -> None:
    prices = {place: price for place, (price, _) in held.items()}
    parts = cost_per_hour(prices, {place: busy for place, (_, busy) in held.items()})
    assert sum(parts.values()) == pytest.approx(sum(prices.values()))
    assert min(parts.values()) >= 0
    assert set(parts) == {name for _, busy in held.values() for name in busy}


def test_a_slice_is_paid_for_by_who_uses_it_and_in_equal_parts_where_nobody_does() -> None:
    busy = {"gpu": {"a": 0.6, "b": 0.2}, "cpu": {"b": 0.0, "c": 0.0}}
    assert cost_per_hour({"gpu": 4.0, "cpu": 1.0}, busy) == pytest.approx({"a": 3.0, "b": 1.5, "c": 0.5})


def test_a_million_answers_cost_what_the_hours_cost_that_they_take() -> None:
    assert cost_per_million(3.6, 1000) == pytest.approx(1.0)
    assert isnan(cost_per_million(3.6, 0))
