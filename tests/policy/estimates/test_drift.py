"""A profile of a wrong shape is fitted anew; one that is right, or wrong by one factor, is left alone."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.policy.estimates.drift import LOOK_EVERY, MEMORY_US, SAMPLES, TOLERANCE, TRIED_US, Drift
from serving.profile.curve import Point, Profile
from serving.profile.derived.latency import Latency

SIZES = (1, 2, 4, 8, 16, 32, 64)


def latency() -> Latency:
    points = tuple(Point(0, rows, 5000.0 + 1000 * rows, 6000.0 + 1000 * rows, 10) for rows in SIZES)
    return Latency(Profile("m", "v", "cpu", points))


def taught(took: dict[int, float], noise: float = 0.0, level: float = 1.0, seed: int = 0) -> Drift:
    """What batches of these rows took over the profile, all sizes in turn."""
    draw = random.Random(seed)
    drift = Drift()
    for count in range(SAMPLES):
        rows = sorted(took)[count % len(took)]
        factor = took[rows] * level * draw.lognormvariate(0, noise)
        drift.add(rows, 0, round(latency().predict_us(rows) * factor))
    return drift


def test_it_is_time_to_look_every_so_many_batches_once_there_are_enough() -> None:
    drift = Drift()
    asked = [count for count in range(1, 3 * SAMPLES + 1) if drift.add(1, 0, 100)]
    assert asked == list(range(LOOK_EVERY, 3 * SAMPLES + 1, LOOK_EVERY))


@given(st.floats(0.3, 3), st.floats(0.3, 3))
def test_each_size_that_runs_is_fitted_to_what_it_takes(small: float, large: float) -> None:
    fitted = taught({2: small, 16: large}).look(latency(), latency())
    apart = abs(small - large) / (small + large)  # each from what is between them, in whole microseconds
    if abs(apart - TOLERANCE) > 0.001:
        assert (fitted is not None) == (apart > TOLERANCE)
    if fitted is not None and small <= 1.3 * large:  # between them, too, longer batches take longer
        assert fitted.predict_us(2) == pytest.approx(latency().predict_us(2) * small, rel=0.01)
        assert fitted.predict_us(16) == pytest.approx(latency().predict_us(16) * large, rel=0.01)


@given(st.floats(1.3, 3))
def test_sizes_that_never_ran_are_between_those_that_did_or_as_the_largest(large: float) -> None:
    fitted = taught({1: 1.0, 16: large}).look(latency(), latency())
    assert fitted is not None
    between = 1 + (large - 1) * 3 / 4  # 8 is three doublings of 1, and 16 four
    assert fitted.predict_us(8) == pytest.approx(latency().predict_us(8) * between, rel=0.01)
    assert fitted.predict_us(64) == pytest.approx(latency().predict_us(64) * large, rel=0.01)


@given(st.floats(0.3, 3), st.integers(0, 1000))
def test_noise_and_another_level_change_no_shape(level: float, seed: int) -> None:
    assert taught(dict.fromkeys((2, 16), 1.0), 0.02, level, seed).look(latency(), latency()) is None


def test_while_the_level_changes_nothing_is_fitted() -> None:
    drift = taught({2: 1.0, 16: 1.0})
    for count in range(SAMPLES // 2):
        rows = (2, 16)[count % 2]
        drift.add(rows, 0, round(latency().predict_us(rows) * 1.5))
    assert drift.look(latency(), latency()) is None


@given(st.floats(1.3, 3), st.floats(1.3, 3))
def test_a_fit_is_no_reason_for_another(small: float, large: float) -> None:
    drift = taught({2: small, 16: large})
    fitted = drift.look(latency(), latency())
    if fitted is not None:
        assert drift.look(latency(), fitted) is None


def test_that_other_sizes_run_now_is_no_change_of_level() -> None:
    drift = Drift()
    for rows, took in ((2, 1.0), (16, 0.5)):
        for _ in range(SAMPLES // 2):
            drift.add(rows, 0, round(latency().predict_us(rows) * took))
    fitted = drift.look(latency(), latency())
    assert fitted is not None
    assert fitted.predict_us(16) == pytest.approx(latency().predict_us(16) / 2, rel=0.01)


def test_within_an_octave_each_size_has_a_factor_of_its_own() -> None:
    fitted = taught({9: 1.0, 11: 1.2, 13: 1.4, 15: 1.6}).look(latency(), latency())
    assert fitted is not None
    for rows, factor in {9: 1.0, 11: 1.2, 13: 1.4, 15: 1.6}.items():
        assert fitted.predict_us(rows) == pytest.approx(latency().predict_us(rows) * factor, rel=0.01)


def steep() -> Latency:
    """A profile of which each row of a batch takes as long as a whole smaller batch."""
    points = tuple(Point(0, rows, 5000.0 * rows**2, 6000.0 * rows**2, 10) for rows in SIZES)
    return Latency(Profile("m", "v", "cpu", points))


@pytest.mark.parametrize("rows", [2, 8, 32])
def test_a_row_of_a_larger_batch_than_all_that_ran_is_not_dearer_and_of_a_smaller_not_much_cheaper(
    rows: int,
) -> None:
    drift = Drift()
    for _ in range(SAMPLES):
        drift.add(rows, 0, 10_000)
    fitted = drift.look(steep(), steep())
    assert fitted is not None
    assert fitted.predict_us(64) <= 10_000 * 64 / rows * 1.001
    assert fitted.predict_us(1) >= 10_000 / rows / (1 + TOLERANCE) * 0.999


def test_batches_of_a_size_are_proven_while_enough_of_them_or_of_larger_ones_ran_lately() -> None:
    drift = taught({16: 1.0})
    assert not drift.is_proven(1, 0)  # nobody has looked
    drift.look(latency(), latency(), now_us=0)
    assert drift.is_proven(16, 0)
    assert drift.is_proven(1, 0)
    assert not drift.is_proven(20, 0)
    assert not drift.is_proven(16, 64)
    for _ in range(SAMPLES):
        drift.add(2, 0, round(latency().predict_us(2)))
    drift.look(latency(), latency(), now_us=MEMORY_US - 1)
    assert drift.is_proven(16, 0)
    drift.look(latency(), latency(), now_us=MEMORY_US)
    assert not drift.is_proven(16, 0)
    assert drift.is_proven(2, 0)
    drift.look(latency(), latency(), now_us=TRIED_US - 1)
    assert drift.is_tried(16, 0)
    drift.look(latency(), latency(), now_us=TRIED_US)
    assert not drift.is_tried(16, 0)
    assert drift.is_tried(2, 0)


def test_they_grew_where_the_newest_are_larger_than_nearly_all_before() -> None:
    drift = taught({2: 1.0, 4: 1.0})
    assert not drift.grew(10)
    for _ in range(10):
        drift.add(8, 0, 10_000)
    assert drift.grew(10)
    assert not drift.grew(SAMPLES)
    for _ in range(10):
        drift.add(8, 0, 10_000)
    assert not drift.grew(5)  # so many rows ran before these, too


@pytest.mark.parametrize("interference", [1.3, 1.6])
def test_that_large_batches_run_beside_others_and_small_ones_alone_is_no_matter_of_shape(
    interference: float,
) -> None:
    drift = Drift()
    for count in range(SAMPLES):
        beside = count % 10 < 5
        rows = (2, 16)[beside if count % 5 else not beside]  # nearly always
        took_us = latency().predict_us(rows) * (interference if beside else 1)
        drift.add(rows, 0, round(took_us), beside)
    assert drift.look(latency(), latency()) is None
