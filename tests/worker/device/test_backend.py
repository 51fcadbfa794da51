"""A model of tensors is served on a CPU too, and one that cannot be is refused with a sentence."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from serving.worker.backends.python import PythonBackend
from serving.worker.frames.orders import LoadOrder
from serving.worker.process.garbage import Garbage
from serving.worker.process.memory import Memory
from serving.worker.replicas.replicas import load_replica
from tests.runtime.recorder import model_spec

pytestmark = pytest.mark.live

GARBAGE = Garbage()
MODEL = """
import numpy as np
{imports}
class Model:
    padded_size = 5
    def predict_device(self, inputs, parameters):
        assert inputs['X'].device.type == 'cpu' and not torch.is_grad_enabled()
        return {{'Y': inputs['X'] + parameters.get('more', 1)}}
    def sample(self, rows, size):
        return {{'X': np.ones((rows, 1), np.float32)}}
def load(artifact, options):
    return Model()
"""


def order(folder: Path, imports: str) -> LoadOrder:
    folder.mkdir()
    (folder / "model.py").write_text(MODEL.format(imports=imports))
    return LoadOrder.of(1, model_spec(folder, {"X": "FP32"}, {"Y": "FP32"}), "only")


def test_a_model_of_tensors_computes_on_a_cpu_as_any_other(tmp_path: Path) -> None:
    deterministic = replace(order(tmp_path / "m", "import torch"), deterministic=True)
    replica, loaded = load_replica(PythonBackend(1), deterministic, Memory(), GARBAGE)
    outputs, spent_us = replica.predict({"X": np.ones((2, 1), np.float32)}, {"more": 4})
    assert np.array_equal(np.asarray(outputs["Y"]), np.full((2, 1), 5, np.float32))
    assert spent_us > 0
    assert replica.padded_size == 5
    assert replica.launches
    assert loaded.differs == ""


def test_a_model_of_tensors_without_torch_is_refused(tmp_path: Path) -> None:
    backend = PythonBackend(1)
    backend._settle_newly = lambda: None  # type: ignore[method-assign]  # tests have imported torch themselves
    with pytest.raises(AttributeError, match="has predict_device, but imports no torch"):
        load_replica(backend, order(tmp_path / "m", ""), Memory(), GARBAGE)
