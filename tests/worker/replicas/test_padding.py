"""Rows of unlike size share a batch, and each request gets the answer that it would have had alone."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.ports import Call
from serving.runtime.calls.batch_lanes import Lanes
from serving.runtime.calls.payloads import Pending, gather, scatter
from serving.scheduler.waiting.requests import Piece, Request
from serving.values.specs import SizeHint, TensorSpec, padded_sizes
from serving.values.tensor import ABSENT, Buffer, Tensor
from serving.worker.backends.samples import make_sample
from serving.worker.frames.arrays import Arrays, TensorError, encode_outputs
from serving.worker.frames.batches import BatchOutput, RunOrder, TensorPlace
from serving.worker.replicas.padding import add_masks, inputs_of
from tests.builders import model_spec, served

INPUTS = (
    TensorSpec("ids", "INT64", (-1, -1), names=("", "tokens"), pad=7),
    TensorSpec("fixed", "FP32", (-1, 2)),
    TensorSpec("mask", "BOOL", (-1, -1), names=("", "tokens"), pad=0, mask=True, optional=True),
)
SPEC = replace(
    model_spec(),
    inputs=INPUTS,
    outputs=(
        TensorSpec("states", "FP32", (-1, -1, 2), names=("", "tokens", "")),
        TensorSpec("sum", "INT64", (-1,)),
    ),
    size_hint=SizeHint("ids", (16, 64), "values"),
    padded=padded_sizes(INPUTS),
)
MODEL = served(SPEC)


def call_of(ids: np.ndarray[tuple[int, int], np.dtype[np.int64]], mask: bool = False) -> Call:
    rows, tokens = ids.shape
    tensors = [
        Tensor("ids", "INT64", ids.shape, ids.tobytes()),
        Tensor("fixed", "FP32", (rows, 2), np.arange(rows * 2, dtype=np.float32).tobytes()),
        Tensor("mask", "BOOL", ids.shape, b"\1" * (rows * tokens))
        if mask
        else Tensor("mask", ABSENT, (rows,), b""),
    ]
    call = Call(MODEL, tensors, rows)
    call.size = tokens
    return call


def predict(arrays: Arrays) -> Arrays:
    """A model that heeds its mask: it says of each token what it is, and sums them up."""
    ids, mask = arrays["ids"], arrays["mask"]
    states = np.stack([ids, mask], axis=2).astype(np.float32)
    return {"states": states, "sum": np.where(mask, ids, 0).sum(1)}


def run_of(pieces: Sequence[Piece], pending: Sequence[Pending]) -> RunOrder:
    """The batch as its worker reads it."""
    run = RunOrder(1, 1, sum(piece.rows for piece in pieces), 0)
    buffers: list[Buffer] = []
    for entry in gather(pieces, pending):
        run.inputs.append(TensorPlace(entry.datatype, entry.dims, sum(map(len, entry.buffers))))
        buffers += entry.buffers
    run.payload = memoryview(bytearray(b"".join(map(bytes, buffers))))
    return run


def outputs_of(run: RunOrder, arrays: Arrays) -> list[BatchOutput]:
    encoded = encode_outputs(SPEC.outputs, predict(arrays), run.rows, "")
    return [BatchOutput(each.datatype, each.dims, bytes(each.data), run.rows) for each in encoded]


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 6)), min_size=1, max_size=5), st.booleans())
def test_each_request_has_the_answer_that_it_has_alone(shapes: list[tuple[int, int]], mask: bool) -> None:
    drawn = np.random.default_rng(1)
    calls = [call_of(drawn.integers(1, 99, shape), mask) for shape in shapes]
    pending = [Pending(call, Request(at, "m", call.rows, 0, 0), print, 0) for at, call in enumerate(calls)]
    pieces = [Piece(each.request, 0, each.call.rows) for each in pending]
    run = run_of(pieces, pending)
    arrays = inputs_of(INPUTS, run)
    tokens = max(size for _, size in shapes)
    assert {name: array.shape for name, array in arrays.items()} == {
        "ids": (run.rows, tokens), "fixed": (run.rows, 2), "mask": (run.rows, tokens)
    }  # fmt: skip
    assert (arrays["ids"][~arrays["mask"].astype(bool)] == 7).all()
    outputs, first = outputs_of(run, arrays), 0
    for owner, piece in zip(pending, pieces, strict=True):
        alone = run_of([piece], [owner])
        expected = scatter(outputs_of(alone, inputs_of(INPUTS, alone)), owner.call, 0, piece.rows)
        found = scatter(outputs, owner.call, first, piece.rows)
        assert [(each.shape, bytes(each.data)) for each in found] == [
            (each.shape, bytes(each.data)) for each in expected
        ]
        first += piece.rows


def test_rows_of_one_size_are_sent_as_they_are() -> None:
    owner = Pending(call_of(np.ones((2, 3), np.int64)), Request(1, "m", 2, 0, 0), print, 0)
    assert len(gather([Piece(owner.request, 0, 2)], [owner])) == len(INPUTS)


def test_unlike_sizes_of_one_bucket_share_a_lane_and_others_do_not() -> None:
    lanes = Lanes(MODEL)
    keys = [
        lanes.describe(call_of(np.ones((1, size), np.int64)), size, 0, 0).lane_key for size in (3, 16, 17, 64)
    ]
    assert keys[0] == keys[1] != keys[2] == keys[3]


def test_bytes_that_do_not_fit_the_sizes_are_refused() -> None:
    calls = [call_of(np.ones((1, size), np.int64)) for size in (2, 3)]
    pending = [Pending(call, Request(at, "m", 1, 0, 0), print, 0) for at, call in enumerate(calls)]
    run = run_of([Piece(each.request, 0, 1) for each in pending], pending)
    run.inputs[0].byte_count -= 8
    run.inputs[1].byte_count += 8
    with pytest.raises(TensorError, match="'ids' has 32 bytes"):
        inputs_of(INPUTS, run)


def test_a_sample_has_the_size_of_its_hint_and_nothing_filled_up() -> None:
    sample = make_sample(INPUTS[:2], 3, SPEC.size_hint, 12)
    add_masks(INPUTS, sample)
    assert sample["ids"].shape == sample["mask"].shape == (3, 12)
    assert sample["mask"].all()
    pixels = TensorSpec("p", "FP32", (-1, 3, -1, -1), names=("", "", "h", "w"), pad=0.5)
    assert make_sample([pixels], 1, SizeHint("p", (3 * 64 * 64,), "values"), 3 * 64 * 64)["p"].shape == (
        1,
        3,
        64,
        64,
    )


def test_filling_and_masks_are_bits_where_the_datatype_is_bf16() -> None:
    sound = TensorSpec("s", "BF16", (-1, -1), names=("", "n"), pad=1.0)
    run = RunOrder(1, 1, 2, 0)
    run.inputs = [TensorPlace("BF16", (2,), 6), TensorPlace("UINT64", (1,), 16)]
    run.payload = memoryview(np.array([1, 2, 3], "<u2").tobytes() + np.array([1, 2], "<u8").tobytes())
    assert inputs_of([sound], run)["s"].tolist() == [[1, 0x3F80], [2, 3]]
