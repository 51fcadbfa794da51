"""Latency estimates in hindsight: what they are told, and how they are judged."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtests.scheduling.hindsight import Estimate, Padded, estimates, fit_tokens, judge, replay
from serving.policy.estimates.latency import ENOUGH, START
from serving.profile.curve import Point, Profile

SIZES = (64, 128)
PROFILE = Profile(
    "m",
    "v",
    "cpu",
    tuple(Point(size, rows, 100.0 * size * rows, 1.0, 3) for size in SIZES for rows in (1, 4)),
)


def batch(rows: int = 1, padded: int = 16, compute_us: int = 1000, **said: int) -> Padded:
    """A batch of the smallest bucket."""
    bucket, largest, elapsed_us = said.get("bucket", 64), said.get("largest", 64), said.get("overhead", 0)
    elapsed_us += compute_us
    return Padded(bucket, rows, largest, padded, padded, 0.0, 0.0, compute_us, elapsed_us)


def test_an_estimate_is_asked_before_it_learns_of_the_batch() -> None:
    slow = [batch(compute_us=2000) for _ in range(2 * ENOUGH)]
    said = replay(Estimate("known", lambda _: 1000.0, lambda _: 0), slow)
    assert said[0].tolist() == [1000 * START, 1000.0, 1000.0]
    assert said[-1].tolist() == [2000.0, 2000.0, 1000.0]


def test_windows_are_shared_as_the_estimate_says() -> None:
    mixed = [batch(compute_us=1000), batch(bucket=128, compute_us=2000)] * ENOUGH
    apart = replay(Estimate("", lambda _: 1000.0, lambda one: one.bucket), [*mixed, batch()])
    shared = replay(Estimate("", lambda _: 1000.0, lambda _: 0), [*mixed, batch()])
    assert (apart[-1][0], shared[-1][0]) == (1000.0, 2000.0)


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(1, 8), st.integers(3, 128)), min_size=30, max_size=60, unique=True))
def test_what_follows_the_tokens_exactly_is_fitted_without_spread_or_noise(
    shapes: list[tuple[int, int]],
) -> None:
    batches = [
        batch(rows, rows * tokens, 5000 + 200 * rows + 30 * rows * tokens, largest=4 * tokens)
        for rows, tokens in shapes
    ]
    by_tokens = fit_tokens(batches)
    fitted = estimates(PROFILE, by_tokens)[-1]
    error = judge(batches, replay(fitted, batches), by_tokens)
    assert error.spread == pytest.approx(1)
    assert error.noise == pytest.approx(1, abs=0.01)


def test_late_and_reserved_are_shares_of_what_was_planned_with() -> None:
    batches = [batch(compute_us=1000), batch(compute_us=1000, overhead=500), batch(compute_us=1000)]
    said = np.asarray([(1200.0, 1000.0, 1000.0)] * 3)
    error = judge(batches, said, lambda _: 1000.0)
    assert error.late == pytest.approx(1 / 3)
    assert error.reserved == pytest.approx(3600 / 3500)
    assert error.planned["p99"] == pytest.approx(1500 / 1200)
    assert error.typical["p99"] == 1
