"""Where a batch comes back with refused rows, requests that have one fail, and the others are answered."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from serving.ports import Call, Reply
from serving.runtime.calls.payloads import Pending, keep_parts
from serving.scheduler.commands import RunBatch
from serving.scheduler.waiting.requests import Piece, Request
from serving.values.specs import Guard, TensorSpec
from serving.values.tensor import Tensor
from serving.values.vocabulary import COMPLETED, MODEL_ERROR
from serving.worker.frames.batches import BatchOutput, BatchResult, RefusedRow
from tests.builders import model_spec, served

SPEC = replace(model_spec("m"), outputs=(TensorSpec("Y", "INT8", (-1, 1), Guard(most=9)),))
MODEL = served(SPEC)


def pieces_of(row_counts: list[int], rows_max: int) -> tuple[list[Piece], dict[int, Pending]]:
    """Requests of so many rows, each in pieces of at most `rows_max`."""
    pieces, waiting = [], {}
    for number, rows in enumerate(row_counts):
        call = Call(MODEL, [Tensor("X", "INT8", (rows, 1), bytes(rows))], rows)
        request = Request(number, "m", rows, 0, 0)
        waiting[number] = Pending(call, request, lambda _reply: None, 0)
        pieces += [Piece(request, first, min(rows_max, rows - first)) for first in range(0, rows, rows_max)]
    return pieces, waiting


def run(pieces: list[Piece], waiting: dict[int, Pending], bad: set[int]) -> dict[int, Reply]:
    """All pieces in one batch, of which those rows are refused."""
    rows = sum(piece.rows for piece in pieces)
    batch = RunBatch(1, "s", pieces, rows)
    data = np.arange(rows, dtype=np.int8).tobytes()
    result = BatchResult(1, 5, 0, rows, [BatchOutput("INT8", (1,), data, rows)])
    result.refused = [RefusedRow(row, 0, 99.0) for row in sorted(bad)]
    keep_parts(batch, result, waiting, 10)
    return {number: each.complete(batch) for number, each in waiting.items()}


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.integers(1, 3), st.data())
def test_only_requests_with_a_refused_row_fail(
    row_counts: list[int], rows_max: int, data: st.DataObject
) -> None:
    pieces, waiting = pieces_of(row_counts, rows_max)
    total = sum(row_counts)
    bad = data.draw(st.sets(st.integers(0, total - 1)))
    first = 0
    for number, reply in run(pieces, waiting, bad).items():
        own = range(first, first + row_counts[number])
        first += row_counts[number]
        if refused := sorted(bad & set(own)):
            assert reply.outcome is MODEL_ERROR
            assert not reply.outputs
            assert reply.detail == (
                f"the answer of m is refused: row {refused[0] - own[0]} of output 'Y' holds 99, "
                "expected at most 9"
            )
            assert waiting[number].refused_output == "Y"
        else:
            assert reply.outcome is COMPLETED
            assert bytes(reply.outputs[0].data) == bytes(own)
            assert waiting[number].refused_output == ""
