"""What non-negative least squares promise: no coefficient below 0, and no better choice of columns."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.profile.derived.nonnegative import Floats, nonnegative_least_squares

NEAR = 1e-6


@st.composite
def systems(draw: st.DrawFn) -> tuple[Floats, Floats]:
    height, width = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    number = st.integers(-4, 4).map(float)
    cells = draw(st.lists(number, min_size=height * width, max_size=height * width))
    target = draw(st.lists(number, min_size=height, max_size=height))
    return np.array(cells).reshape(height, width), np.array(target)


@given(systems())
def test_it_is_the_best_of_all_choices_of_columns(system: tuple[Floats, Floats]) -> None:
    columns, target = system
    found = nonnegative_least_squares(columns, target)
    assert (found >= 0).all()
    best = float(target @ target)
    for count in range(1, columns.shape[1] + 1):
        for taken in combinations(range(columns.shape[1]), count):
            some = np.linalg.lstsq(columns[:, taken], target, rcond=None)[0]
            if (some >= -NEAR).all():
                best = min(best, float(((columns[:, taken] @ some - target) ** 2).sum()))
    assert float(((columns @ found - target) ** 2).sum()) <= best + NEAR


def test_where_least_squares_are_not_negative_they_are_the_answer() -> None:
    columns = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]])
    assert nonnegative_least_squares(columns, np.array([3.0, 5.0, 7.0])) == pytest.approx([3, 2])
