"""Promises of a decoupled batch in its worker: what a model may yield, who is dropped, when it is closed."""

from collections.abc import Generator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.values.specs import Guard, TensorSpec
from serving.values.tensor import Buffer
from serving.worker.frames.arrays import TensorError
from serving.worker.frames.batches import BatchResult, RunOrder, TensorPlace, unpack_result
from serving.worker.frames.wire import FrameBuffer, FrameKind
from serving.worker.replicas.streaming import RowSender, answers_of

NOBODY: frozenset[int] = frozenset()
SPEC = (TensorSpec("Y", "INT8", (-1, -1), Guard(most=9)),)


def one(value: int) -> dict[str, np.ndarray[Any, Any]]:
    return {"Y": np.array([[value]], np.int8)}


@given(
    st.integers(1, 4),
    st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=30),
    st.dictionaries(st.integers(0, 29), st.integers(0, 3), max_size=4),
)
def test_each_row_gets_its_answers_until_it_ends_or_has_left(
    rows: int, steps: list[tuple[int, bool]], leaving: dict[int, int]
) -> None:
    """`steps`: rows that answer, or end; `leaving`: after how many answers a row has left."""
    yielded: list[tuple[int, bool]] = []
    told: list[frozenset[int]] = []
    closed: list[bool] = []
    ended: set[int] = set()
    gone: set[int] = set()

    def model() -> Generator[tuple[int, Any], frozenset[int], None]:
        try:
            for row, ends in steps:
                if row < rows and row not in ended:
                    if ends:
                        ended.add(row)
                    yielded.append((row, ends))
                    told.append((yield row, None if ends else one(row)))
        finally:
            closed.append(True)

    def look() -> frozenset[int]:
        row = leaving.get(len(yielded) - 1)
        if row is not None and row < rows:
            gone.add(row)
        return frozenset(gone)

    expected, left = [], set[int]()
    found = [(row, answer is None) for row, answer in answers_of(model(), rows, look)]
    for number, (row, ends) in enumerate(yielded):
        if row not in left:
            expected.append((row, ends))
        if leaving.get(number, rows) < rows:
            left.add(leaving[number])
    assert found == expected
    assert closed == [True]
    assert all(earlier <= later for earlier, later in pairwise(told))
    if len(ended | gone) < rows:  # else it was closed before its end
        assert len(yielded) == sum(1 for _ in told)


@pytest.mark.parametrize(
    ("yielded", "part"),
    [
        ([7], "yielded int, expected a pair of row and outputs"),
        ([(2, one(1))], "an answer of row 2 in a batch of 2 rows"),
        ([(True, one(1))], "an answer of row True"),
        ([(0, None), (0, one(1))], "an answer of row 0 after its end"),
    ],
)
def test_what_no_model_may_yield_is_said(yielded: list[Any], part: str) -> None:
    def model() -> Generator[Any, frozenset[int], None]:
        for each in yielded:
            _ = yield each  # what comes back is of no use here

    with pytest.raises(TensorError, match=part):
        list(answers_of(model(), 2, lambda: NOBODY))


def test_a_stream_that_is_no_generator_is_said() -> None:
    with pytest.raises(TensorError, match="stream returned list, expected a generator"):
        list(answers_of([(0, one(1))], 1, lambda: NOBODY))


def sent(*answers: tuple[int, Any]) -> tuple[list[BatchResult], bytes]:
    """What a batch of two rows sends for these answers, and its end."""
    order = RunOrder(5, 1, 2, 0)
    order.inputs = [TensorPlace("INT8", (1,), 2)]
    frames = FrameBuffer()

    def take(buffers: Any) -> None:
        buffer: Buffer
        for buffer in buffers:
            space = frames.space()
            space[: len(buffer)] = buffer
            frames.filled(len(buffer))

    sender = RowSender(order, SPEC, take)
    found = []
    for row, answer in answers:
        sender.send(row, answer)
        while (frame := frames.next()) is not None:
            assert frame.kind is FrameKind.ROW
            found.append(unpack_result(frame, None))
    return found, sender.end(0)


def test_answers_travel_with_their_row_and_the_end_without_outputs() -> None:
    found, end = sent((1, one(4)), (0, {"Y": np.array([[1, 2]], np.int8)}), (1, None))
    assert [(each.size, each.rows, each.is_last) for each in found] == [
        (1, 1, False),
        (0, 1, False),
        (1, 1, True),
    ]
    assert [bytes(output.data) for each in found for output in each.outputs] == [b"\4", b"\1\2"]
    frames = FrameBuffer()
    frames.space()[: len(end)] = end
    frames.filled(len(end))
    frame = frames.next()
    assert frame is not None
    result = unpack_result(frame, None)
    assert (frame.kind, result.rows, list(result.outputs)) == (FrameKind.RESULT, 2, [])


def test_an_answer_that_a_guard_refuses_is_its_rows_last() -> None:
    found, _ = sent((0, one(1)), (0, one(99)), (0, one(1)), (1, one(2)))
    assert [(each.size, each.is_last, len(each.refused)) for each in found] == [
        (0, False, 0),
        (0, True, 1),
        (1, False, 0),
    ]


def test_an_answer_that_the_spec_does_not_allow_is_said() -> None:
    with pytest.raises(TensorError, match=r"output 'Y' has shape \[2, 1\]"):
        sent((0, {"Y": np.zeros((2, 1), np.int8)}))
