"""What gathering and scattering promise: every request's rows, in order, untouched."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.ports import Call
from serving.runtime.calls.payloads import Pending, cut_rows, gather, join
from serving.scheduler.waiting.requests import Piece, Request
from serving.values.tensor import Tensor
from tests.builders import served

MODEL = served()


def element(text: bytes) -> bytes:
    return len(text).to_bytes(4, "little") + text


@given(st.lists(st.lists(st.binary(max_size=5), min_size=2, max_size=2), min_size=1, max_size=6), st.data())
def test_rows_of_bytes_are_cut_at_element_borders(rows: list[list[bytes]], data: st.DataObject) -> None:
    raw = b"".join(element(text) for row in rows for text in row)
    first = data.draw(st.integers(0, len(rows) - 1))
    count = data.draw(st.integers(1, len(rows) - first))
    expected = b"".join(element(text) for row in rows[first : first + count] for text in row)
    assert bytes(cut_rows(Tensor("T", "BYTES", (len(rows), 2), raw), first, count)) == expected


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(1, 3))
def test_a_batch_holds_the_rows_of_its_pieces_in_order(row_counts: list[int], rows_max: int) -> None:
    pieces, pending, expected = [], [], b""
    for number, rows in enumerate(row_counts):
        raw = bytes((number * 16 + row) % 256 for row in range(rows) for _ in range(8))
        call = Call(MODEL, [Tensor("X", "UINT8", (rows, 8), raw)], rows)
        request = Request(number, "m", rows, 0, 0)
        owner = Pending(call, request, lambda _reply: None, 0)
        for first in range(0, rows, rows_max):
            pieces.append(Piece(request, first, min(rows_max, rows - first)))
            pending.append(owner)
        expected += raw
    (batch_input,) = gather(pieces, pending)
    assert b"".join(batch_input.buffers) == expected
    assert batch_input.dims == (8,)


@given(st.permutations([0, 3, 5]))
def test_parts_are_joined_by_their_rows_whatever_order_they_came_in(order: list[int]) -> None:
    rows = {0: 3, 3: 2, 5: 4}
    parts = {first: [Tensor("Y", "UINT8", (rows[first], 1), bytes([first] * rows[first]))] for first in order}
    (joined,) = join(parts)
    assert joined.shape == (9, 1)
    assert bytes(joined.data) == bytes([0] * 3 + [3] * 2 + [5] * 4)


def test_parts_of_unlike_shapes_are_an_error_that_names_the_output() -> None:
    parts = {0: [Tensor("Y", "UINT8", (1, 2), b"ab")], 1: [Tensor("Y", "UINT8", (1, 3), b"abc")]}
    with pytest.raises(ValueError, match="output Y came in unlike shapes"):
        join(parts)
