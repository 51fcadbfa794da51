"""When two models agree on a request: classes, directions, near numbers, and all else exactly."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.policy.rollouts.agreement import agree
from serving.values.tensor import Tensor


def tensor(values: object, kind: str = "<f4", datatype: str = "FP32") -> Tensor:
    array = np.array(values, kind)
    return Tensor("Y", datatype, array.shape, array.tobytes())


@pytest.mark.parametrize(
    ("old", "new", "agreed"),
    [
        ([[1, 5, 2]], [[0, 9, 1]], True),  # the same class
        ([[1, 5, 2]], [[5, 1, 2]], False),
        ([[1, 5], [5, 1]], [[1, 5], [1, 5]], False),  # one row of two
        ([[3, 4, 4.01]], [[3, 4.02, 4]], True),  # the same direction
        ([1.0, 2.0], [1.005, 2.01], True),
        ([1.0, 2.0], [1.0, 2.1], False),
        ([[1.0], [2.0]], [[1.0], [2.1]], False),
        ([[1, 5]], [[1, 5], [1, 5]], False),
    ],
)
def test_floats(old: object, new: object, agreed: bool) -> None:
    assert agree([tensor(old)], [tensor(new)]) is agreed


def test_other_datatypes_have_to_be_equal_and_halves_are_numbers() -> None:
    assert agree([tensor([1, 2], "<i4", "INT32")], [tensor([1, 2], "<i4", "INT32")])
    assert not agree([tensor([1, 2], "<i4", "INT32")], [tensor([1, 3], "<i4", "INT32")])
    assert not agree([tensor([1, 2], "<i4", "INT32")], [tensor([1, 2])])
    assert agree([tensor([[1, 5]], "<f2", "FP16")], [tensor([[2, 4]], "<f2", "FP16")])
    halves = [
        Tensor("Y", "BF16", (1, 2), np.array(each, "<u2").tobytes())
        for each in ([16256, 16448], [16448, 16256])
    ]
    assert agree(halves[:1], halves[:1])
    assert not agree(halves[:1], halves[1:])
    assert not agree([tensor([1.0])], [])


@given(st.lists(st.lists(st.floats(width=32), min_size=3, max_size=3), min_size=1, max_size=4))
def test_a_model_agrees_with_itself_unless_it_answers_with_no_numbers(rows: list[list[float]]) -> None:
    found = agree([tensor(rows)], [tensor(rows)])
    assert found or not np.isfinite(np.array(rows)).all()
