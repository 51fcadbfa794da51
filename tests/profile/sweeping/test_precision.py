"""What intervals promise: they hold the true quantile, and narrow with the runs."""

from math import inf
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.profile.sweeping.precision import half_width, quantile

values = st.lists(st.integers(1, 1000), min_size=1, max_size=50).map(sorted)


@given(values, st.sampled_from([0.5, 0.95, 0.99]))
def test_a_quantile_is_a_value_that_as_many_do_not_exceed(ordered: list[int], share: float) -> None:
    found = quantile(ordered, share)
    assert found in ordered
    assert sum(value <= found for value in ordered) >= share * len(ordered)


@pytest.mark.parametrize(("share", "enough"), [(0.5, 8), (0.95, 73), (0.99, 381)])
def test_too_few_values_say_nothing(share: float, enough: int) -> None:
    assert half_width(range(1, enough), share) == inf
    assert half_width(range(1, enough + 1), share) < inf


@pytest.mark.parametrize("share", [0.5, 0.99])
def test_nineteen_of_twenty_intervals_hold_the_true_quantile(share: float) -> None:
    rng, held = Random(1), 0
    for _ in range(400):
        ordered = sorted(rng.random() for _ in range(1000))
        reach = half_width(ordered, share) * quantile(ordered, share)
        held += abs(quantile(ordered, share) - share) <= 2 * reach
    assert held >= 0.93 * 400


@given(st.integers(10, 100), st.floats(0.1, 100))
def test_an_interval_is_relative(count: int, factor: float) -> None:
    ordered = [float(100 + number) for number in range(count)]
    scaled = [factor * value for value in ordered]
    assert half_width(scaled, 0.5) == pytest.approx(half_width(ordered, 0.5))
