"""What a latency curve promises: the nearest non-decreasing one, and no batch that does not fit."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.profile.curve import Curve, Point, Profile, fit, isotonic
from serving.profile.derived.latency import SMALLEST_SHARE, Latency

NEAR = 1e-9
levels = st.lists(st.integers(0, 9).map(float), min_size=1, max_size=7)
weights = st.integers(1, 4).map(float)
series = st.lists(st.tuples(st.integers(0, 9).map(float), weights), min_size=1, max_size=7)


def distance(values: list[float], fitted: list[float], weight: list[float]) -> float:
    return sum(w * (a - b) ** 2 for a, b, w in zip(values, fitted, weight, strict=True))


def mean(values: list[float], weight: list[float]) -> float:
    return sum(v * w for v, w in zip(values, weight, strict=True)) / sum(weight)


@given(series)
def test_isotonic_is_the_min_max_of_the_means(points: list[tuple[float, float]]) -> None:
    """The closed form (Barlow et al. 1972): the largest, over starts, of the least mean, over ends."""
    values, weight = [value for value, _ in points], [w for _, w in points]
    count = len(points)
    expected = [
        max(
            min(mean(values[start : end + 1], weight[start : end + 1]) for end in range(i, count))
            for start in range(i + 1)
        )
        for i in range(count)
    ]
    fitted = isotonic(values, weight)
    assert fitted == pytest.approx(expected, abs=NEAR)
    assert all(left <= right for left, right in pairwise(fitted))


@given(series, st.data())
def test_no_other_non_decreasing_sequence_is_nearer(
    points: list[tuple[float, float]], data: st.DataObject
) -> None:
    values, weight = [value for value, _ in points], [w for _, w in points]
    other = sorted(data.draw(st.lists(st.floats(0, 9), min_size=len(values), max_size=len(values))))
    assert distance(values, isotonic(values, weight), weight) <= distance(values, other, weight) + NEAR


@given(series)
def test_isotonic_keeps_the_weighted_mean_of_each_block_and_what_is_in_order(
    points: list[tuple[float, float]],
) -> None:
    values, weight = [value for value, _ in points], [w for _, w in points]
    fitted = isotonic(values, weight)
    for level in set(fitted):
        block = [i for i, fit_level in enumerate(fitted) if fit_level == level]
        assert mean([values[i] for i in block], [weight[i] for i in block]) == pytest.approx(level)
    assert isotonic(fitted, weight) == fitted
    assert isotonic(sorted(values), weight) == sorted(values)


@st.composite
def curves(draw: st.DrawFn) -> Curve:
    rows = draw(st.sets(st.integers(1, 12), min_size=1, max_size=5))
    steps = draw(st.lists(st.floats(0.5, 9), min_size=len(rows), max_size=len(rows)))
    return Curve(tuple(sorted(rows)), tuple(sorted(steps)))


@given(curves())
def test_a_curve_goes_through_its_points_straight_between_them_and_never_falls(curve: Curve) -> None:
    for rows, latency_us in zip(curve.rows, curve.latency_us, strict=True):
        assert curve.at(rows) == latency_us
    for (left, low), (right, high) in pairwise(zip(curve.rows, curve.latency_us, strict=True)):
        for rows in range(left, right + 1):
            assert (curve.at(rows) - low) * (right - left) == pytest.approx((high - low) * (rows - left))
    reach = [curve.at(rows) for rows in range(1, curve.rows[-1] * 2 + 1)]
    assert all(left <= right + NEAR for left, right in pairwise(reach))


@given(curves(), st.integers(1, 9))
def test_below_its_points_a_curve_is_flat_and_beyond_them_each_row_costs_the_same(
    curve: Curve, more: int
) -> None:
    assert curve.at(1) == curve.latency_us[0]
    beyond = curve.rows[-1] + more
    assert curve.at(beyond) / beyond == pytest.approx(curve.latency_us[-1] / curve.rows[-1])


def test_points_measured_more_often_weigh_more() -> None:
    assert fit([Point(0, 1, 30.0, 30.0, 3), Point(0, 2, 10.0, 10.0, 1)]).latency_us == (25.0, 25.0)


@st.composite
def profiles(draw: st.DrawFn) -> Profile:
    places = draw(st.sets(st.tuples(st.sampled_from([0, 4, 9]), st.integers(1, 9)), min_size=1, max_size=8))
    p50 = st.integers(1, 20).map(float)
    points = [Point(size, rows, draw(p50), 99.0, draw(st.integers(1, 3))) for size, rows in places]
    return Profile("m", "a", "kind", tuple(points))


@given(profiles(), st.integers(0, 25), st.integers(0, 12))
def test_rows_within_is_the_largest_measured_batch_that_fits_and_at_least_one(
    profile: Profile, budget_us: int, size: int
) -> None:
    latency = Latency(profile)
    assert latency.rows_in(budget_us, size) <= latency.rows_within(budget_us, size)
    covering = [point.size for point in profile.points if point.size >= size]
    chosen = min(covering, default=max(point.size for point in profile.points))
    largest = max(point.rows for point in profile.points if point.size == chosen)
    fitting = [rows for rows in range(1, largest + 1) if latency.predict_us(rows, size) <= budget_us]
    assert latency.rows_within(budget_us, size) == max(fitting, default=1)
    assert latency.rows_within(budget_us, size) == latency.rows_within(budget_us, size)
    assert latency.rows_within(budget_us, size) <= latency.rows_within(budget_us + 1, size)


@given(profiles(), st.sampled_from([0, 4, 9]), st.integers(1, 20))
def test_at_a_measured_size_a_prediction_is_what_was_measured_and_beyond_the_largest_that_of_the_largest(
    profile: Profile, size: int, rows: int
) -> None:
    curve_of, latency = profile.curves(), Latency(profile)
    assert list(curve_of) == sorted({point.size for point in profile.points})
    if size in curve_of:
        measured = fit(sorted(point for point in profile.points if point.size == size))
        assert latency.predict_us(rows, size) == measured.at(rows)
    largest = max(curve_of)
    assert latency.predict_us(rows, largest + 1 + size) == latency.predict_us(rows, largest)


@given(profiles(), st.integers(0, 12), st.integers(1, 20))
def test_between_two_measured_sizes_a_prediction_lies_between_theirs_by_the_share_of_the_way(
    profile: Profile, size: int, rows: int
) -> None:
    curve_of, latency = profile.curves(), Latency(profile)
    below = [known for known in curve_of if known < size]
    above = [known for known in curve_of if known > size]
    if size not in curve_of and below and above:
        low, high = max(below), min(above)
        low_us, high_us = curve_of[low].at(rows), curve_of[high].at(rows)
        expected = low_us + (high_us - low_us) * (size - low) / (high - low)
        assert latency.predict_us(rows, size) == pytest.approx(expected)


@given(profiles(), st.integers(0, 12))
def test_a_prediction_never_falls_with_the_rows_nor_below_half_of_the_smallest_size(
    profile: Profile, size: int
) -> None:
    latency, smallest = Latency(profile), min(profile.curves())
    levels = [latency.predict_us(rows, size) for rows in range(1, 25)]
    assert all(low <= high * (1 + NEAR) for low, high in pairwise(levels))
    if size < smallest:
        known = [latency.predict_us(rows, smallest) for rows in range(1, 25)]
        assert all(
            SMALLEST_SHARE * most * (1 - NEAR) <= one <= most for one, most in zip(levels, known, strict=True)
        )


def test_below_the_smallest_measured_size_a_prediction_is_on_the_line_through_the_first_two() -> None:
    points = [Point(size, 1, us, us, 1) for size, us in ((100, 20.0), (300, 40.0))]
    latency = Latency(Profile("m", "a", "kind", tuple(points)))
    assert [latency.predict_us(1, size) for size in (0, 50, 100, 200)] == [10, 15, 20, 30]


def test_one_measured_size_says_the_same_of_every_size() -> None:
    latency = Latency(Profile("m", "a", "kind", (Point(64, 1, 5.0, 5.0, 1),)))
    assert {latency.predict_us(1, size) for size in (0, 7, 64, 900)} == {5.0}


@given(profiles(), st.integers(0, 12))
def test_what_ran_at_a_size_is_held_against_the_measured_size_that_is_nearest(
    profile: Profile, size: int
) -> None:
    nearest = Latency(profile).measured_size(size)
    assert abs(nearest - size) == min(abs(known - size) for known in profile.curves())


def test_a_profile_without_points_cannot_be_made() -> None:
    with pytest.raises(ValueError, match="m a needs at least one measured point"):
        Profile("m", "a", "kind", ())


def test_batches_in_which_a_row_takes_much_longer_than_in_smaller_ones_are_not_worth_it() -> None:
    took_us = {1: 3900.0, 15: 23_400.0, 18: 29_500.0, 22: 53_200.0, 32: 82_500.0}  # int8 MiniLM on one core
    points = tuple(Point(0, rows, latency_us, latency_us, 10) for rows, latency_us in took_us.items())
    latency = Latency(Profile("m", "a", "kind", points))
    assert latency.rows_worth() == 18
    linear = tuple(Point(0, rows, 500.0 + 100 * rows, 500.0 + 100 * rows, 10) for rows in (1, 8, 32))
    assert Latency(Profile("m", "a", "kind", linear)).rows_worth() == 32
