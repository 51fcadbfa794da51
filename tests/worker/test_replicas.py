"""Promises of replicas and of the Python backend: models do not clash, failures say what and where."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from serving.worker.arrays import TensorError
from serving.worker.backends.python import PythonBackend
from serving.worker.memory import Memory
from serving.worker.orders import LoadOrder, MeasureOrder
from serving.worker.replicas import describe, load_replica
from serving.worker.yardstick import Yardstick
from tests.runtime.recorder import model_spec, write_model


def order(folder: Path, replica: int = 1) -> LoadOrder:
    return LoadOrder.of(replica, model_spec(folder, {"X": "FP32"}, {"Y": "FP32"}), "only")


def test_folders_of_the_same_name_keep_their_own_code(tmp_path: Path) -> None:
    backend = PythonBackend(1)
    for parent, sign in (("one", "+"), ("two", "-")):
        write_model(tmp_path / parent / "m", f"return {{'Y': {sign}inputs['X'] * self.options['factor']}}")
    first, loaded = load_replica(backend, order(tmp_path / "one" / "m"), Memory())
    second, _ = load_replica(backend, order(tmp_path / "two" / "m"), Memory())
    assert loaded.load_us > 0
    assert loaded.memory_bytes >= 0
    one = np.ones((1, 1), np.float32)
    answers = [np.asarray(replica.predict({"X": one}, {})[0]["Y"]).item() for replica in (first, second)]
    assert answers == [3, -3]


def test_warming_up_runs_the_smallest_and_the_largest_size_and_checks_the_answers(tmp_path: Path) -> None:
    folder = write_model(
        tmp_path / "m", "return {'Y': inputs['X'][:, :-8]}", "return {'X': np.ones((rows, size), np.float32)}"
    )
    load_replica(PythonBackend(1), replace(order(folder), sizes=(8, 64)), Memory())
    with pytest.raises(TensorError, match="lacks the inputs"):
        load_replica(PythonBackend(1), order(write_model(tmp_path / "n", "return {}", "return {}")), Memory())
    with pytest.raises(TensorError, match="returned the outputs"):
        load_replica(PythonBackend(1), order(write_model(tmp_path / "o", "return {}")), Memory())


def test_a_measurement_ends_with_its_repeats_or_its_budget_but_runs_once(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m", "time.sleep(0.002); return {'Y': inputs['X']}")
    replica, _ = load_replica(PythonBackend(1), order(folder), Memory())

    def runs(asked: MeasureOrder) -> int:
        return len(replica.measure(asked, Memory(), Yardstick()).latencies_us)

    assert runs(MeasureOrder(1, 4, 0, 3, 10**9)) == 3
    assert runs(MeasureOrder(1, 4, 0, 100, 0)) == 1
    assert 1 <= runs(MeasureOrder(1, 4, 0, 100, 9000)) <= 4


def test_a_measurement_runs_the_yardstick_and_says_what_memory_a_run_takes(tmp_path: Path) -> None:
    grow = "held = np.ones(rows << 20, np.float32); return {'Y': inputs['X']}"
    folder = write_model(tmp_path / "m", grow.replace("rows", "len(inputs['X'])"))
    replica, loaded = load_replica(PythonBackend(1), order(folder), Memory())
    found = replica.measure(MeasureOrder(1, 8, 0, 3, 10**9, yardsticks=5), Memory(), Yardstick())
    assert (found.rows, len(found.latencies_us), len(found.yardsticks_us)) == (8, 3, 5)
    assert 24 << 20 <= found.activation_bytes <= 64 << 20
    assert 0 < loaded.warm_us <= loaded.load_us


@pytest.mark.parametrize(
    ("code", "complaint"),
    [
        ("def load(: pass", "SyntaxError"),
        ("load = 3", "AttributeError: .* has no function load"),
        ("def load(artifact, options): return 3", "AttributeError: .* has no method predict"),
        ("def load(artifact, options):\n    raise KeyError('w')", r"KeyError: 'w' \(model.py:2\)"),
    ],
)
def test_code_that_cannot_be_loaded_is_described(tmp_path: Path, code: str, complaint: str) -> None:
    (tmp_path / "model.py").write_text(code)
    with pytest.raises(Exception) as raised:  # noqa: PT011  # whatever the model's code raises
        PythonBackend(1).load(order(tmp_path))
    assert re.search(complaint, describe(raised.value))


def test_a_folder_without_code_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"model\.py is not there"):
        PythonBackend(1).load(order(tmp_path))
