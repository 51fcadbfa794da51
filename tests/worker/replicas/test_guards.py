"""Promises of guards: the rows are refused that hold a value outside, and no other row of the batch."""

from math import inf, isfinite, nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.values.specs import Guard, TensorSpec
from serving.worker.frames.arrays import DTYPES, Array, encode_outputs
from serving.worker.frames.batches import RefusedRow
from serving.worker.replicas.guards import refused_rows

BOUNDS = (None, -1.5, 0.0, 1.0, 2.0)
VALUES = (nan, inf, -inf, -2.0, -1.5, -0.0, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0)


def guards() -> st.SearchStrategy[Guard]:
    return st.builds(Guard, st.booleans(), st.sampled_from(BOUNDS), st.sampled_from(BOUNDS))


def refused(array: Array, guard: Guard | None, datatype: str) -> list[RefusedRow]:
    specs = [TensorSpec("free", "INT8", (-1, 1)), TensorSpec("Y", datatype, (-1, -1), guard)]
    rows = len(array)
    answer = {"free": np.full((rows, 1), 99, np.int8), "Y": array}
    return refused_rows(specs, encode_outputs(specs, answer, rows, ""), rows)


def takes(guard: Guard, value: float) -> bool:
    if guard.finite and not isfinite(value):
        return False
    low, high = (-inf if guard.least is None else guard.least), (inf if guard.most is None else guard.most)
    bounded = guard.least is not None or guard.most is not None
    return low <= value <= high if bounded else True


@given(
    st.lists(st.lists(st.sampled_from(VALUES), min_size=2, max_size=2), min_size=1, max_size=6),
    guards(),
    st.sampled_from(["FP16", "BF16", "FP32", "FP64"]),
)
def test_a_row_is_refused_by_its_first_value_outside_and_no_other_is(
    rows: list[list[float]], guard: Guard, datatype: str
) -> None:
    expected = []
    for number, row in enumerate(rows):
        outside = [value for value in row if not takes(guard, value)]
        if outside:
            expected.append((number, 1, outside[0]))
    if datatype == "BF16":
        array: Array = (np.array(rows, np.float32).view(np.uint32) >> 16).astype(np.uint16)
    else:
        array = np.array(rows, DTYPES[datatype])
    np.testing.assert_equal([tuple(each) for each in refused(array, guard, datatype)], expected)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=6), st.integers(0, 5), st.integers(0, 5))
def test_whole_numbers_have_bounds(rows: list[int], low: int, high: int) -> None:
    array = np.array(rows, np.uint8).reshape(-1, 1)
    found = refused(array, Guard(False, low, high), "UINT8")
    assert [each.row for each in found] == [n for n, value in enumerate(rows) if not low <= value <= high]


def test_without_a_guard_and_without_values_nothing_is_refused() -> None:
    assert refused(np.full((2, 1), nan, np.float32), None, "FP32") == []
    assert refused(np.empty((2, 0), np.float32), Guard(finite=True), "FP32") == []


@pytest.mark.parametrize(
    ("guard", "words"),
    [
        (Guard(finite=True), "finite"),
        (Guard(least=0), "at least 0"),
        (Guard(True, 0.25, 1), "finite, at least 0.25, at most 1"),
    ],
)
def test_a_guard_says_what_it_takes(guard: Guard, words: str) -> None:
    assert str(guard) == words
