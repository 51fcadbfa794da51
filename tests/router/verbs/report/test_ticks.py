"""Ticks stand at numbers that people like, inside their axis."""

from itertools import pairwise
from math import inf, isclose, log10, nan

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from router.verbs.report.ticks import figure, linear, logarithmic

ENDS = st.floats(-1e9, 1e9, allow_nan=False)
ABOVE_0 = st.floats(1e-6, 1e9, allow_nan=False)


def first_digits(value: float) -> float:
    """Between 1 and 10."""
    return float(f"{value:e}".partition("e")[0])


@given(ENDS, ENDS, st.integers(3, 8))
def test_linear_ticks_are_inside_evenly_apart_and_their_step_is_nice(
    one: float, other: float, most: int
) -> None:
    low, high = sorted((one, other))
    assume(high - low > 1e-6 * max(abs(low), abs(high), 1e-3))
    found = linear(low, high, most)
    assert 1 <= len(found) <= most + 1
    assert all(low <= each <= high for each in found)
    steps = [after - before for before, after in pairwise(found)]
    for step in steps:
        assert isclose(step, steps[0], rel_tol=1e-3)
        assert min(abs(first_digits(step) - nice) for nice in (1, 2, 2.5, 5, 10)) < 0.01
    if steps:
        assert found[0] - low < steps[0] * 1.001
        assert high - found[-1] < steps[0] * 1.001


@given(ABOVE_0, ABOVE_0)
def test_logarithmic_ticks_are_inside_ascend_and_are_nice(one: float, other: float) -> None:
    low, high = sorted((one, other))
    assume(high > 1.01 * low)
    found = logarithmic(low, high)
    assert 1 <= len(found) <= 10
    assert all(low <= each <= high for each in found)
    assert found == sorted(set(found))
    if high > 10 * low:
        assert all(first_digits(each) in (1, 2, 5) for each in found)
    if log10(high / low) > 3.5:
        assert all(first_digits(each) == 1 for each in found)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 1000, [0, 200, 400, 600, 800, 1000]),
        (0.0, 0.3, [0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3]),
        (0.979, 1.0, [0.98, 0.985, 0.99, 0.995, 1]),
        (-3, 3, [-3, -2, -1, 0, 1, 2, 3]),
        (5, 5, [5]),
        (nan, 1, []),
        (0, inf, []),
    ],
)
def test_linear_ticks(low: float, high: float, expected: list[float]) -> None:
    assert linear(low, high) == expected


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (1, 100, [1, 2, 5, 10, 20, 50, 100]),
        (0.04, 0.2, [0.05, 0.07, 0.1, 0.15, 0.2]),
        (1, 1e6, [1, 10, 100, 1000, 10_000, 100_000, 1_000_000]),
        (31, 34, [31, 32, 33, 34]),
        (0, 10, []),
        (nan, 10, []),
    ],
)
def test_logarithmic_ticks(low: float, high: float, expected: list[float]) -> None:
    assert logarithmic(low, high) == expected


def test_figures_are_short() -> None:
    assert [figure(each) for each in (0.0, 0.05, 1500.0, 1_234_567.0)] == ["0", "0.05", "1,500", "1,234,567"]
