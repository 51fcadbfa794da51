"""What the estimate promises: it follows the device both ways, and no single batch throws it."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.policy.estimates.latency import (
    ALONE,
    BESIDE,
    EITHER,
    ENOUGH,
    HORIZON_US,
    QUANTILE,
    RATIO_MAX,
    RECENT,
    SELDOM,
    START,
    WINDOW,
    Lateness,
    Quantile,
    Ratios,
    Residuals,
)

PRIOR_US = 1000.0


def taught(ratios: list[float]) -> Residuals:
    residuals = Residuals()
    for ratio in ratios:
        residuals.add(PRIOR_US, int(ratio * PRIOR_US), int(ratio * PRIOR_US) + 50)
    return residuals


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=60), st.integers(1, 12), st.sampled_from([0.5, 0.9, 1.0])
)
def test_a_quantile_is_that_of_the_last_values(values: list[int], size: int, share: float) -> None:
    quantile = Quantile(size, share)
    for value in values:
        quantile.add(value)
    window = sorted(values[-size:])
    assert quantile.value == window[int(share * (len(window) - 1))]
    assert sum(one < quantile.value for one in window) <= share * len(window)


def test_the_largest_of_several_values_alone_moves_no_quantile() -> None:
    quantile = Quantile(200, 0.99)
    for value in [5.0] * 19 + [40_000.0]:
        quantile.add(value)
    assert quantile.value == 5.0


@given(st.lists(st.floats(0, 1e5), max_size=300), st.integers(1, 60))
def test_the_mean_is_that_of_the_window(values: list[float], size: int) -> None:
    quantile = Quantile(size, 0.5)
    for value in values:
        quantile.add(value)
    window = values[-size:]
    assert quantile.mean == pytest.approx(sum(window) / max(len(window), 1), abs=1e-3)


def stopped(every: int, stop_us: float) -> Ratios:
    """Every so many batches one was stopped."""
    ratios = Ratios()
    for number in range(WINDOW):
        late = number % every == every - 1
        ratios.add(1 + late * stop_us / PRIOR_US, PRIOR_US, number)
    return ratios


@given(st.integers(4, 9), st.floats(1000, 50_000))
def test_a_plan_for_fewer_of_the_batches_leaves_the_stops_out(every: int, stop_us: float) -> None:
    ratios = stopped(every, stop_us)
    assert ratios.excess_at(QUANTILE) == ratios.excess_us == pytest.approx(stop_us)
    assert ratios.excess_at(0.6) == 0
    assert ratios.kappa_at(0.6) == pytest.approx(1.0)
    assert ratios.lost_us == pytest.approx(stop_us * (WINDOW // every) / WINDOW)


@given(st.lists(st.floats(0.5, 10), max_size=250), st.floats(0.5, 1), st.floats(0.5, 1))
def test_a_plan_for_more_of_the_batches_is_no_shorter(ratios: list[float], one: float, other: float) -> None:
    low, high = sorted((one, other))
    known = Ratios((ratio, 1000.0, number) for number, ratio in enumerate(ratios))
    assert known.typical <= known.kappa_at(low) <= known.kappa_at(high)
    assert known.excess_at(low) <= known.excess_at(high)


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


@given(st.lists(st.sampled_from([0.5, 1.0, 1.2, 2.9, 10.0, 500.0]), max_size=250))
def test_what_is_planned_with_is_never_less_than_what_is_typical(ratios: list[float]) -> None:
    """Else a batch that is typically late would be planned as one that may still wait."""
    residuals = taught(ratios)
    assert residuals.typical <= residuals.kappa


def test_a_device_that_was_slow_for_long_is_believed_to_be_quick_again_after_ten_batches() -> None:
    assert taught([10.0] * WINDOW).typical == pytest.approx(10.0)
    assert taught([10.0] * WINDOW + [1.0] * RECENT).typical <= RATIO_MAX


def test_what_is_not_compute_is_overhead() -> None:
    assert taught([1.0] * 5).overhead_us == pytest.approx(50)


def test_how_late_wake_ups_are_is_not_known_before_there_were_enough() -> None:
    lateness = Lateness()
    for _ in range(ENOUGH - 1):
        lateness.add(100)
        assert lateness.value_us is None
    lateness.add(100)
    assert lateness.value_us == 100


@given(st.integers(0, 2), st.integers(0, WINDOW))
def test_one_or_two_wake_ups_that_were_far_too_late_are_not_allowed_for(outliers: int, place: int) -> None:
    lateness = Lateness()
    for number in range(WINDOW):
        lateness.add(50_000 if place <= number < place + outliers else 80)
    assert lateness.value_us == 80


def test_lateness_follows_a_clock_that_becomes_late_and_one_that_recovers() -> None:
    lateness = Lateness()
    for late_us in [80] * WINDOW + [900] * WINDOW:
        lateness.add(late_us)
    assert lateness.value_us == 900
    for _ in range(WINDOW):
        lateness.add(80)
    assert lateness.value_us == 80


def mixed(batches: list[tuple[float, bool]]) -> Residuals:
    """By ratio, and whether a batch started beside another slice's."""
    residuals = Residuals()
    for ratio, beside in batches:
        residuals.add(PRIOR_US, int(ratio * PRIOR_US), None, beside)
    return residuals


def kappas(residuals: Residuals) -> list[float]:
    return [residuals.kappa_of(company) for company in (ALONE, BESIDE, EITHER)]


def typicals(residuals: Residuals) -> list[float]:
    return [residuals.typical_of(company) for company in (ALONE, BESIDE, EITHER)]


companies = st.lists(st.tuples(st.sampled_from([0.5, 1.0, 1.2, 2.9, 10.0]), st.booleans()), max_size=450)


def test_batches_beside_others_and_batches_alone_are_estimated_apart() -> None:
    residuals = mixed([(1.0, False), (1.5, True)] * ENOUGH)
    assert kappas(residuals) == pytest.approx([1.0, 1.5, 1.5])
    assert typicals(residuals) == pytest.approx([1.0, 1.5, 1.5])


@given(st.lists(st.sampled_from([0.5, 1.0, 1.2, 2.9]), max_size=2 * WINDOW))
def test_without_neighbours_all_estimates_are_one(ratios: list[float]) -> None:
    residuals = mixed([(ratio, False) for ratio in ratios])
    assert kappas(residuals) == [residuals.kappa] * 3
    assert typicals(residuals) == [residuals.typical] * 3


def test_too_few_batches_beside_others_are_estimated_as_all_are() -> None:
    residuals = mixed([(1.0, False)] * WINDOW + [(2.0, True)] * (ENOUGH - 1))
    assert residuals.kappa_of(BESIDE) == pytest.approx(2.0)  # the recent ones of all
    assert residuals.typical_of(BESIDE) == pytest.approx(2.0)  # the level of all has changed
    assert residuals.typical_of(ALONE) == pytest.approx(1.0)


def test_what_ran_before_the_first_neighbour_came_ran_alone() -> None:
    residuals = mixed([(1.0, False)] * ENOUGH + [(2.0, True)] * WINDOW)
    assert residuals.kappa_of(ALONE) == pytest.approx(1.0)


@given(companies)
def test_a_promise_that_must_hold_either_way_is_the_more_cautious_one(
    batches: list[tuple[float, bool]],
) -> None:
    residuals = mixed(batches)
    lately = [beside for _, beside in batches[-WINDOW:]]
    for place, often in ((ALONE, lately.count(False)), (BESIDE, lately.count(True))):
        if often >= SELDOM * len(lately) > 0:
            assert residuals.kappa_of(EITHER) >= residuals.kappa_of(place)
            assert residuals.typical_of(EITHER) >= residuals.typical_of(place)
    assert residuals.kappa_of(EITHER) in kappas(residuals)[:2]


@given(companies)
def test_in_any_company_what_is_planned_with_is_never_less_than_what_is_typical(
    batches: list[tuple[float, bool]],
) -> None:
    residuals = mixed(batches)
    for kappa, typical in zip(kappas(residuals), typicals(residuals), strict=True):
        assert typical <= kappa


def test_neighbours_that_have_been_idle_for_long_take_no_capacity() -> None:
    residuals = mixed([(1.5, True)] * WINDOW + [(1.0, False)] * WINDOW)
    assert typicals(residuals) == pytest.approx([1.0, 1.5, 1.0])


def timed(
    ratios: list[float], every_us: int, residuals: Residuals | None = None, from_us: int = 0
) -> Residuals:
    """Batches of PRIOR_US that took these ratios of it, one every so many microseconds."""
    known = residuals or Residuals()
    for number, ratio in enumerate(ratios, start=1):
        took_us = round(ratio * PRIOR_US)
        known.add(PRIOR_US, took_us, took_us, now_us=from_us + number * every_us)
    return known


@given(st.floats(1.5, 5), st.integers(20, 200))
def test_a_change_of_level_counts_within_ten_batches_either_way(factor: float, before: int) -> None:
    residuals = timed([1.0] * before, 1000)
    timed([factor] * RECENT, 1000, residuals, 200_000)
    assert residuals.typical == pytest.approx(factor, rel=0.01)
    timed([1.0] * 2 * RECENT, 1000, residuals, 400_000)
    assert residuals.typical == pytest.approx(1.0)
    assert residuals.kappa == pytest.approx(1.0)


@given(st.integers(0, 1000))
def test_noise_is_no_change_of_level(seed: int) -> None:
    draw = random.Random(seed)
    residuals = Residuals()
    changes = 0
    for number in range(400):
        took_us = round(PRIOR_US * draw.lognormvariate(0, 0.1))
        changes += bool(residuals.add(PRIOR_US, took_us, took_us, now_us=1000 * number))
    assert changes == 0


def test_what_is_older_than_the_horizon_is_forgotten_but_for_the_newest() -> None:
    residuals = timed([1.0, 1.0, 1.0, 2.5] * 10, 1000)
    assert residuals.kappa == pytest.approx(2.5)
    timed([1.0] * ENOUGH, 1000, residuals, HORIZON_US + 100_000)
    assert residuals.kappa == pytest.approx(1.0)


@given(st.floats(0.5, 3), st.floats(0, 30_000))
def test_what_batches_take_beyond_the_typical_is_known_in_microseconds(level: float, stop_us: float) -> None:
    """Stops of the machine lengthen short batches by many times and long ones by as many microseconds."""
    residuals = timed([level + stop_us / PRIOR_US * (number % 5 == 0) for number in range(100)], 1000)
    assert residuals.excess_of(ALONE) == pytest.approx(stop_us, abs=level * PRIOR_US * 0.01 + 2)


@pytest.mark.parametrize("count", [1, 3, 10])
def test_batches_of_a_new_level_count_however_few_they_are(count: int) -> None:
    residuals = Residuals()
    few = [(0.25, False, 10_000.0)] * count
    residuals.restart(few, sure=True)
    assert (residuals.kappa, residuals.typical) == (0.25, 0.25)
    residuals.restart(few)
    assert (residuals.kappa, residuals.typical) == (START, 1.0)
