"""Many small models for measurements and tests: copies of one perceptron layer, each with weights of its own.

Loading one reads its weights, and waits for as long as asked in addition, as for a slower disk.
"""

from collections.abc import Iterable
from pathlib import Path
from textwrap import dedent

import numpy as np
from safetensors.numpy import save_file

INPUTS = 64
_CODE = '''\
"""One layer: Y is X times the weights. Loading waits for `load_ms` in addition, as for a slower disk."""

import time

import numpy as np
from safetensors.numpy import load_file


class Model:
    def __init__(self, weights):
        self._weights = weights

    def predict(self, inputs, parameters):
        return {"Y": inputs["X"] @ self._weights[:, :4]}

    def sample(self, rows, size):
        return {"X": np.ones((rows, self._weights.shape[0]), np.float32)}


def load(artifact, options):
    time.sleep(options["load_ms"] / 1000)
    return Model(load_file(artifact)["weights"])
'''


def write_models(folder: Path, sizes_bytes: Iterable[int], load_ms: float, slo_ms: float) -> list[Path]:
    """Write folders `m0`, `m1` and so on under `folder`, with weights of these sizes."""
    written = []
    for number, size_bytes in enumerate(sizes_bytes):
        home = folder / f"m{number}"
        home.mkdir(parents=True)
        columns = max(size_bytes // (4 * INPUTS), 4)
        numbers = np.random.default_rng(number)
        save_file({"weights": numbers.random((INPUTS, columns), np.float32)}, home / "weights.safetensors")
        (home / "model.py").write_text(_CODE)
        (home / "model.yaml").write_text(_yaml(home.name, load_ms, slo_ms))
        written.append(home)
    return written


def _yaml(name: str, load_ms: float, slo_ms: float) -> str:
    return dedent(f"""\
        name: {name}
        inputs: [{{name: X, datatype: FP32, shape: [-1, {INPUTS}]}}]
        outputs: [{{name: Y, datatype: FP32, shape: [-1, 4]}}]
        batch_max: 4
        slo_ms: {slo_ms:g}
        deterministic: true
        default_variant: fp32
        variants: [{{name: fp32, artifact: weights.safetensors, options: {{load_ms: {load_ms:g}}}}}]
        """)
