"""What a worker adds to the batches of a model with sequences, and what it keeps between them."""

import json
from collections.abc import Mapping

import numpy as np
import pytest

from serving.values.sequences import (
    ControlSpec,
    SequenceSpec,
    SequenceStep,
    StateSpec,
    pack_spec,
    unpack_spec,
)
from serving.worker.frames.arrays import Arrays, TensorError, decode_inputs
from serving.worker.frames.batches import TensorPlace
from serving.worker.replicas.sequences import STEPS, Row, SequenceModel, pack_steps

CONTROLS = (
    ControlSpec("start", "START", "INT32"),
    ControlSpec("end", "END", "FP32"),
    ControlSpec("ready", "READY", "BOOL"),
    ControlSpec("corrid", "ID", "UINT64"),
)
SUM = (StateSpec("SUM", "NEXT", "INT32", (1,)),)


class Adder:
    """Y is the sum so far; it raises on a 13, after it has made its answer."""

    def __init__(self) -> None:
        self.seen: dict[str, list[object]] = {}

    def predict(self, inputs: Arrays, parameters: object) -> Mapping[str, object]:
        self.seen = {name: array.reshape(-1).tolist() for name, array in inputs.items()}
        total = np.add(inputs.get("SUM", 0), inputs["X"])
        if 13 in inputs["X"]:
            raise RuntimeError("thirteen")
        return {"Y": total, "NEXT": total}


def model(strategy: str = "oldest", state: tuple[StateSpec, ...] = SUM) -> tuple[Adder, SequenceModel]:
    inner = Adder()
    return inner, SequenceModel(inner, SequenceSpec(strategy, 4, 1_000_000, CONTROLS, state))


def ask(whole: SequenceModel, *rows: tuple[int, str, int], keep: bool = True) -> list[int]:
    """The answers to rows of (slot, flags, X), as a batch that came over the wire."""
    steps = pack_steps(
        [Row(slot, SequenceStep(slot + 1, "S" in flags, "E" in flags)) for slot, flags, _ in rows]
    )
    payload = memoryview(bytearray(b"".join(steps.buffers)))
    inputs = decode_inputs([STEPS], [TensorPlace("BYTES", (1,), len(payload))], len(rows), payload)
    inputs["X"] = np.array([[value] for _, _, value in rows], np.int32)
    found = whole.predict(inputs, {})
    assert set(found) == {"Y"}, "the state is no answer"
    if keep:
        whole.keep()
    answer = found["Y"]
    assert isinstance(answer, np.ndarray)
    return [int(each) for each in answer.reshape(-1)]


def test_each_slot_has_a_sum_of_its_own_from_start_on() -> None:
    _, whole = model()
    assert ask(whole, (2, "S", 5), (0, "S", 7)) == [5, 7]
    assert ask(whole, (0, "", 1), (2, "", 1)) == [8, 6]
    assert ask(whole, (2, "E", 1)) == [7]
    assert ask(whole, (2, "S", 4), (0, "", 2)) == [4, 10]


def test_with_oldest_a_batch_has_the_rows_that_came_with_their_controls() -> None:
    inner, whole = model()
    ask(whole, (2, "SE", 5), (0, "S", 7))
    assert inner.seen["X"] == [5, 7]
    assert inner.seen["START"] == [1, 1]
    assert inner.seen["END"] == [1.0, 0.0]
    assert inner.seen["READY"] == [True, True]
    assert inner.seen["ID"] == [3, 1]


def test_with_direct_a_sequence_has_its_row_and_rows_without_a_request_are_not_ready() -> None:
    inner, whole = model("direct")
    assert ask(whole, (2, "S", 5), (0, "S", 7)) == [5, 7]
    assert inner.seen["X"] == [7, 0, 5]
    assert inner.seen["READY"] == [True, False, True]
    assert ask(whole, (2, "", 1)) == [6]
    assert inner.seen["READY"] == [False, False, True]
    assert ask(whole, (0, "", 1)) == [8]
    assert inner.seen["X"] == [1]


def test_a_batch_that_raises_or_is_not_kept_leaves_the_state_as_it_was() -> None:
    _, whole = model()
    ask(whole, (0, "S", 5))
    with pytest.raises(RuntimeError):
        ask(whole, (0, "", 13))
    assert ask(whole, (0, "", 1), keep=False) == [6]
    assert ask(whole, (0, "", 1)) == [6]


def test_a_start_that_raises_leaves_nothing_of_the_sequence_before_in_its_slot() -> None:
    _, whole = model()
    ask(whole, (0, "S", 500))
    with pytest.raises(RuntimeError):
        ask(whole, (0, "S", 13))
    assert ask(whole, (0, "", 1)) == [1]


def test_rows_of_a_sample_are_sequences_of_one_request_and_touch_no_slot() -> None:
    inner, whole = model()
    ask(whole, (0, "S", 5))
    whole.predict({"X": np.ones((3, 1), np.int32)}, {})
    whole.keep()
    assert inner.seen["START"] == [1, 1, 1]
    assert inner.seen["END"] == [1.0, 1.0, 1.0]
    assert inner.seen["SUM"] == [0, 0, 0]
    assert ask(whole, (0, "", 1)) == [6]


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        (StateSpec("OTHER", "NEXT", "INT32", (2,)), "state 'NEXT' has shape [1, 1], expected [1, 2]"),
        (StateSpec("SUM", "OTHER", "INT32", (1,)), "state 'OTHER' is a NoneType, expected numpy.ndarray"),
        (StateSpec("SUM", "NEXT", "BOOL", (1,)), "state 'NEXT' has dtype int32, expected bool"),
    ],
)
def test_a_state_that_is_not_as_declared_fails_the_batch(state: StateSpec, sentence: str) -> None:
    _, whole = model(state=(state,))
    with pytest.raises(TensorError) as raised:
        ask(whole, (0, "S", 1))
    assert str(raised.value) == sentence


def test_a_slot_that_the_model_does_not_have_is_refused() -> None:
    _, whole = model()
    with pytest.raises(TensorError, match="slot 4"):
        ask(whole, (4, "S", 1))


def test_text_ids_reach_a_model_that_takes_text() -> None:
    inner = Adder()
    spec = SequenceSpec("oldest", 4, 1, (ControlSpec("corrid", "ID", "BYTES"),), SUM)
    whole = SequenceModel(inner, spec)
    steps = pack_steps([Row(0, SequenceStep("größe", start=True))])
    data = bytes(steps.buffers[0])[4:]
    array = np.empty((1, 1), object)
    array[0, 0] = data
    whole.predict({"X": np.ones((1, 1), np.int32), STEPS.name: array}, {})
    assert inner.seen["ID"] == ["größe".encode()]


def test_what_a_load_order_says_of_sequences_arrives() -> None:
    spec = SequenceSpec("direct", 4, 5, CONTROLS, SUM)
    assert unpack_spec(json.loads(json.dumps(pack_spec(spec)))) == spec
    assert unpack_spec(pack_spec(None)) is None
    faulty: list[object] = [
        [], {}, ["direct", 0, 5, [], []], ["direct", 4, 5, [], [["A", "B", "INT32", [0]]]],
    ]  # fmt: skip
    for wrong in faulty:
        with pytest.raises((TypeError, ValueError)):
            unpack_spec(wrong)
