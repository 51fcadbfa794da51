"""Loads and requests that end or stop the process in which they run: what they cost the models beside them.

A gateway of its own, with two slices that share what is served; the models that it is asked to load are bad.
"""

import contextlib
import json
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from loadtests.harness.gateway import Gateway, model_entry, started
from loadtests.harness.wire import ask, post
from loadtests.hostile.abuse.bombs import Attack

SLICES: Final = ("left", "right")
SLO_MS: Final = 500.0
HELD_S: Final = 8
DELAY_MS: Final = 60_000
MODEL_YAML: Final = """
name: {name}
inputs: [{{name: X, datatype: INT32, shape: [-1, 1]}}]
outputs: [{{name: Y, datatype: INT32, shape: [-1, 1]}}]
batch_max: 4
slo_ms: 500
"""
MODEL_PY: Final = """
class Model:
    def predict(self, inputs, parameters):
        return {"Y": inputs["X"]}


def load(artifact, options):
    return Model()
"""
BAD: Final = {
    "exiting": "import os\nos._exit(1)\n",
    "holding": f"import ctypes\nctypes.PyDLL(None).sleep({HELD_S})\n",  # PyDLL keeps the interpreter
}
"""What their code does as it is imported."""


def attacks() -> Iterator[Attack]:
    name = "load, two slices: its import calls os._exit"
    yield Attack(name, 0, lambda gateway: _load(gateway, "exiting"), own=_two_slices)
    name = f"load, two slices: it holds the interpreter {HELD_S} s"
    yield Attack(name, 0, lambda gateway: _load(gateway, "holding"), own=_two_slices)
    yield Attack(f"infer, two slices: execute_delay_ms of {DELAY_MS}", 0, _delay, own=_two_slices)


@contextlib.contextmanager
def _two_slices() -> Iterator[Gateway]:
    with tempfile.TemporaryDirectory(prefix="penstock-") as folder:
        for name, code in BAD.items():
            place = Path(folder, name)
            place.mkdir()
            (place / "model.yaml").write_text(MODEL_YAML.format(name=name))
            (place / "model.py").write_text(code + MODEL_PY)
        entries = [model_entry(name, slices=list(SLICES), slo_ms=SLO_MS) for name in ("simple", "identity")]
        slices = [{"name": name} for name in SLICES]
        with started(entries, slices=slices, repository={"folders": [folder]}) as gateway:
            yield gateway


def _load(gateway: Gateway, name: str) -> str:
    door = replace(gateway, rest_port=gateway.admin_port)
    answer = ask(door, post(f"/v2/repository/models/{name}/load", b"{}"))
    return f"{answer.status} {answer.body[:60].decode(errors='replace')}"


def _delay(gateway: Gateway) -> str:
    tensor = {"name": "INPUT0", "shape": [1, 1], "datatype": "INT32", "data": [4]}
    question = {"inputs": [tensor], "parameters": {"execute_delay_ms": DELAY_MS}}
    answer = ask(gateway, post("/v2/models/identity/infer", json.dumps(question).encode()))
    return f"{answer.status} {answer.body[:80].decode(errors='replace')}"
