"""A profile of a wrong shape is fitted anew; one that is right, or wrong by one factor, is left alone."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.policy.drift import LOOK_EVERY, SAMPLES, TOLERANCE, Drift
from serving.profile.curve import Point, Profile
from serving.profile.latency import Latency

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
def test_sizes_that_never_ran_take_the_factor_of_the_next_smaller_that_did(large: float) -> None:
    fitted = taught({1: 1.0, 16: large}).look(latency(), latency())
    assert fitted is not None
    assert fitted.predict_us(8) == pytest.approx(latency().predict_us(8), rel=0.01)
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
