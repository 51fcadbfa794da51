"""What the estimate promises: it follows the device both ways, and no single batch throws it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.policy.latency import ENOUGH, RATIO_MAX, RECENT, START, WINDOW, Quantile, Residuals

PRIOR_US = 1000.0


def taught(ratios: list[float]) -> Residuals:
    residuals = Residuals()
    for ratio in ratios:
        residuals.add(PRIOR_US, int(ratio * PRIOR_US), int(ratio * PRIOR_US) + 50)
    return residuals


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=60), st.integers(1, 12), st.sampled_from([0.5, 0.9, 1.0])
)
def test_a_quantile_is_that_of_the_last_values_by_nearest_rank(
    values: list[int], size: int, share: float
) -> None:
    quantile = Quantile(size, share)
    for value in values:
        quantile.add(value)
    window = sorted(values[-size:])
    assert sum(one <= quantile.value for one in window) >= share * len(window)
    assert sum(one < quantile.value for one in window) < share * len(window)


def test_until_enough_batches_were_seen_the_prior_is_multiplied_by_the_field_s_margin() -> None:
    assert taught([2.0] * (ENOUGH - 1)).kappa == START
    assert taught([2.0] * ENOUGH).kappa == pytest.approx(2.0)


def test_a_slow_down_by_half_counts_within_ten_batches() -> None:
    assert taught([1.0] * WINDOW + [1.5] * RECENT).kappa == pytest.approx(1.5)


def test_a_speed_up_is_regained_within_the_window() -> None:
    assert taught([1.5] * WINDOW + [1.0] * WINDOW).kappa == pytest.approx(1.0)


def test_one_outlier_of_ten_times_moves_nothing() -> None:
    assert taught([1.0] * WINDOW + [10.0]).kappa == pytest.approx(1.0)


def test_a_stall_cannot_blind_the_window() -> None:
    assert taught([1.0] * ENOUGH + [1000.0] * WINDOW + [1.0] * RECENT).kappa <= RATIO_MAX


def test_capacity_is_reckoned_with_the_median_not_with_the_cautious_quantile() -> None:
    residuals = taught([1.0, 1.0, 1.0, 1.4] * 50)
    assert residuals.typical == pytest.approx(1.0)
    assert residuals.kappa == pytest.approx(1.4)


def test_what_is_not_compute_is_overhead() -> None:
    assert taught([1.0] * 5).overhead_us == pytest.approx(50)
