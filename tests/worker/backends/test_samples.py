"""A model without `sample` is measured with inputs that are made for it, where its shapes and types allow."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from serving.values.specs import TensorSpec
from serving.values.tensor import ANY
from serving.worker.backends.python import PythonBackend
from serving.worker.backends.samples import make_sample, warm_rows
from serving.worker.frames.arrays import DTYPES
from serving.worker.frames.orders import LoadOrder, MeasureOrder
from serving.worker.process.garbage import Garbage
from serving.worker.process.memory import Memory
from serving.worker.process.yardstick import Yardstick
from serving.worker.replicas.replicas import load_replica
from tests.runtime.recorder import model_spec


@pytest.mark.parametrize("datatype", [name for name in DTYPES if name != "BYTES"])
def test_a_sample_has_the_stated_shape_and_type_and_small_numbers(datatype: str) -> None:
    sample = make_sample([TensorSpec("X", datatype, (-1, 3, 5))], 7)["X"]
    assert (sample.shape, sample.dtype) == ((7, 3, 5), DTYPES[datatype])
    numbers = sample.astype(np.float64)
    if datatype == "BF16":
        numbers = (sample.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    assert 0 <= numbers.min() < numbers.max() <= 1


def test_of_any_datatype_it_is_fp32() -> None:
    assert make_sample([TensorSpec("X", ANY, (-1, 2))], 1)["X"].dtype == np.float32


def test_it_is_the_same_each_time_and_of_every_input() -> None:
    inputs = [TensorSpec("A", "FP32", (-1, 4)), TensorSpec("B", "INT64", (-1,))]
    first, second = make_sample(inputs, 3), make_sample(inputs, 3)
    assert [*first] == ["A", "B"]
    assert all(np.array_equal(first[name], second[name]) for name in first)


PREDICTS = """\
class Model:
    def predict(self, inputs, parameters): return {'Y': inputs['X'] + 1}
def load(artifact, options): return Model()
"""


def order(folder: Path, datatype: str, shape: tuple[int, ...], code: str = PREDICTS) -> LoadOrder:
    folder.mkdir()
    (folder / "model.py").write_text(code)
    made = LoadOrder.of(1, model_spec(folder, {"X": datatype}, {"Y": datatype}), "only")
    return replace(made, inputs=(TensorSpec("X", datatype, shape),))


def test_a_model_without_a_sample_is_loaded_and_measured(tmp_path: Path) -> None:
    asked = order(tmp_path / "m", "FP32", (-1, 4))
    replica, _ = load_replica(PythonBackend(1), asked, Memory(), Garbage())
    found = replica.measure(MeasureOrder(1, 4, 0, 3, 10**9), Memory(), Yardstick())
    assert (found.rows, len(found.latencies_us)) == (4, 3)


@pytest.mark.parametrize(
    ("datatype", "shape", "why"),
    [
        ("BYTES", (-1, 1), "input 'X' is BYTES, which may be anything"),
        ("INT64", (-1, -1), r"input 'X' has the shape \[-1, -1\], of which rows may have any size"),
    ],
)
def test_where_none_can_be_made_the_model_has_to_bring_one(
    tmp_path: Path, datatype: str, shape: tuple[int, ...], why: str
) -> None:
    asked = order(tmp_path / "m", datatype, shape)
    with pytest.raises(AttributeError, match=f"no method sample.rows, size., and none can be made: {why}"):
        PythonBackend(1).load(asked)
    with pytest.raises(ValueError, match=why):
        make_sample(asked.inputs, 1)


def test_a_sample_that_is_no_method_is_a_mistake(tmp_path: Path) -> None:
    code = PREDICTS.replace("class Model:", "class Model:\n    sample = 3")
    with pytest.raises(AttributeError, match="has a sample that is no method"):
        PythonBackend(1).load(order(tmp_path / "m", "FP32", (-1, 4), code))


def test_a_gpu_is_warmed_with_every_batch_of_up_to_64_rows_and_steps_beyond_largest_first() -> None:
    assert warm_rows(1) == (1,)
    assert warm_rows(4) == (4, 3, 2, 1)
    many = warm_rows(100)
    assert many[:6] == (100, 96, 88, 80, 72, 64)
    assert many[5:] == tuple(range(64, 0, -1))
