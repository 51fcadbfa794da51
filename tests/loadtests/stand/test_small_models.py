"""The small models of load tests are models."""

from pathlib import Path

import numpy as np

from loadtests.stand.small_models import INPUTS, write_models
from router.settings import load_model
from serving.worker.backends.python import PythonBackend
from serving.worker.frames.orders import LoadOrder


def test_each_has_weights_of_its_own_and_of_the_size_that_was_asked_for(tmp_path: Path) -> None:
    homes = write_models(tmp_path, [1 << 20, 2 << 20], load_ms=0, slo_ms=70)
    specs = [load_model(home) for home in homes]
    assert [spec.name for spec in specs] == ["m0", "m1"]
    assert {spec.slo_us for spec in specs} == {70_000}
    sizes = [(home / "weights.safetensors").stat().st_size for home in homes]
    assert np.allclose(sizes, [1 << 20, 2 << 20], rtol=0.01)
    backend = PythonBackend(threads=1)
    models = [backend.load(LoadOrder.of(number, spec, "fp32")) for number, spec in enumerate(specs)]
    first, second = (
        np.asarray(model.predict({"X": np.ones((1, INPUTS), np.float32)}, {})["Y"]) for model in models
    )
    assert first.shape == (1, 4)
    assert not np.allclose(first, second)
