"""What quantiles of weighted samples promise, and that pinball loss is least at them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.policy.forecasting.quantiles import pinball, weighted_quantiles

SAMPLES = st.lists(st.tuples(st.integers(-20, 20), st.integers(1, 5)), min_size=1, max_size=12)


def quantile(samples: np.ndarray, weights: np.ndarray, level: float) -> float:
    order = np.argsort(samples)
    return float(weighted_quantiles(samples, order, weights, (np.asarray(level),))[0])


@given(SAMPLES, st.sampled_from((0.1, 0.5, 0.95)))
def test_it_is_the_smallest_sample_up_to_which_the_weight_is_enough(
    drawn: list[tuple[int, int]], level: float
) -> None:
    whole = sum(weight for _, weight in drawn)
    enough = [
        value
        for value, _ in drawn
        if sum(weight for other, weight in drawn if other <= value) >= level * whole
    ]
    values, weights = np.array(drawn, np.float64).T
    assert quantile(values, weights, level) == min(enough)


@given(SAMPLES, st.sampled_from((0.1, 0.5, 0.95)))
def test_no_other_sample_has_less_pinball_loss(drawn: list[tuple[int, int]], level: float) -> None:
    values, weights = np.array(drawn, np.float64).T
    costs = {value: float(weights @ pinball(values - value, level)) for value in values.tolist()}
    assert costs[quantile(values, weights, level)] == pytest.approx(min(costs.values()))


def test_each_row_has_its_own_quantiles() -> None:
    samples = np.array([[1.0, 2.0, 3.0], [30.0, 20.0, 10.0]])
    found = weighted_quantiles(
        samples, np.argsort(samples), np.ones((2, 3)), (np.full(2, 0.5), np.array([0.2, 0.9]))
    )
    assert found.tolist() == [[2.0, 20.0], [1.0, 30.0]]
