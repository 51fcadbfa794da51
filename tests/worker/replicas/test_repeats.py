"""A variant that says that it is deterministic is run twice on its sample: what counts as the same answer."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from serving.values.specs import TensorSpec
from serving.worker.backends.python import PythonBackend
from serving.worker.frames.arrays import Array, encode_outputs
from serving.worker.frames.orders import LoadOrder
from serving.worker.process.garbage import Garbage
from serving.worker.process.memory import Memory
from serving.worker.replicas.repeats import TOLERANCE, CopiedOutput, difference, kept
from serving.worker.replicas.replicas import load_replica
from tests.runtime.recorder import model_spec, write_model


def answer(datatype: str, array: Array) -> tuple[list[TensorSpec], list[CopiedOutput]]:
    specs = [TensorSpec("Y", datatype, (-1, -1))]
    return specs, kept(encode_outputs(specs, {"Y": array.reshape(1, -1)}, 1, datatype))


def differs(datatype: str, one: Array, other: Array) -> str:
    specs, first = answer(datatype, one)
    return difference(specs, first, answer(datatype, other)[1])


def bf16(*values: float) -> Array:
    return (np.array(values, "<f4").view("<u4") >> 16).astype("<u2")


def bytes_of(*values: bytes) -> Array:
    found = np.empty(len(values), object)
    found[:] = values
    return found


@pytest.mark.parametrize("datatype", ["FP16", "FP32", "FP64"])
def test_floats_are_the_same_within_the_tolerance_of_the_largest(datatype: str) -> None:
    dtype = {"FP16": "<f2", "FP32": "<f4", "FP64": "<f8"}[datatype]
    one = np.array([0.0, 8.0, np.nan, np.inf], dtype)
    assert not differs(datatype, one, one + np.array([8 * TOLERANCE, 0, 0, 0], dtype))
    moved = one + np.array([8.25 * TOLERANCE, 0, 0, 0], dtype)
    assert differs(datatype, one, moved) == f"output 'Y' was 0 and then {8.25 * TOLERANCE:.6g}"


def test_of_bf16_two_steps_are_the_same_and_three_are_not() -> None:
    step = 2.0**-7
    assert not differs("BF16", bf16(1.0), bf16(1.0 + 2 * step))
    assert differs("BF16", bf16(1.0), bf16(1.0 + 3 * step)) == "output 'Y' was 1 and then 1.02344"


@pytest.mark.parametrize("other", [np.nan, -np.inf, 1e30])
def test_what_is_infinite_is_not_nearly_anything_else(other: float) -> None:
    one = np.array([np.inf], "<f4")
    assert differs("FP32", one, np.array([other], "<f4")).startswith("output 'Y' was inf and then")


@pytest.mark.parametrize(
    ("datatype", "one", "other"),
    [
        ("INT64", np.array([1 << 60]), np.array([(1 << 60) + 1])),
        ("BOOL", np.array([True]), np.array([False])),
        ("BYTES", bytes_of(b"a", b"b"), bytes_of(b"a", b"c")),
    ],
)
def test_what_is_no_float_is_the_same_where_it_is_equal(datatype: str, one: Array, other: Array) -> None:
    assert not differs(datatype, one, one.copy())
    assert differs(datatype, one, other) == "output 'Y' had other values the second time"


def test_another_shape_is_another_answer() -> None:
    told = differs("INT64", np.array([1, 2]), np.array([1, 2, 3]))
    assert told == "output 'Y' had the shape [2] and then [3]"


def loaded(folder: Path, predict: str, deterministic: bool = True) -> str:
    order = LoadOrder.of(1, model_spec(folder, {"X": "FP32"}, {"Y": "FP32"}), "only")
    order = replace(order, deterministic=deterministic)
    write_model(folder, predict)
    return load_replica(PythonBackend(1), order, Memory(), Garbage())[1].differs


@pytest.mark.slow
def test_a_variant_that_draws_random_numbers_is_found_out_where_it_says_otherwise(tmp_path: Path) -> None:
    draw = "return {'Y': np.random.default_rng().random((1, 4))}"
    assert loaded(tmp_path / "m", draw).startswith("output 'Y' was 0.")
    assert not loaded(tmp_path / "n", draw, deterministic=False)


@pytest.mark.parametrize(
    "predict",
    [
        "inputs['X'] += 1; return {'Y': inputs['X']}",
        "self.out = getattr(self, 'out', np.zeros((1, 4), 'f4')); self.out += inputs['X']; "
        "answer = self.out; self.out = answer * 0; return {'Y': answer}",
    ],
)
def test_a_model_that_changes_its_inputs_or_keeps_buffers_may_be_deterministic(
    tmp_path: Path, predict: str
) -> None:
    assert not loaded(tmp_path / "m", predict)


def test_a_model_that_counts_in_the_buffer_that_it_answers_with_is_found_out(tmp_path: Path) -> None:
    count = "self.out = getattr(self, 'out', np.zeros((1, 4), 'f4')); self.out += 1; return {'Y': self.out}"
    assert loaded(tmp_path / "m", count) == "output 'Y' was 1 and then 2"
