"""What measuring takes: few packages, so that a sweep is light to carry to a machine with a GPU."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from loadtests.harness.gateway import ROOT

MEASURING = {"numpy", "orjson", "pydantic", "pynvml", "rich", "typer", "yaml"}
WORKER = {"numpy", "orjson"}
"""And what the model's own code imports: torch, safetensors, tokenizers."""
THEIRS = {
    "annotated_doc", "annotated_types", "click", "markdown_it", "mdurl", "pydantic_core", "pygments",
    "shellingham", "typing_extensions", "typing_inspection",
}  # fmt: skip
"""What the packages above depend on: pip installs it with them."""

TOLD = """
import json, sys
def told():
    origins = {name: getattr(module.__spec__, "origin", None) or "" for name, module in sys.modules.items()
               if getattr(module, "__spec__", None)}
    names = {name.partition(".")[0] for name, origin in origins.items() if "-packages" in origin}
    return json.dumps([name for name in names - {"router", "serving"} if not name.startswith("_")])
"""
MEASURE = f"""{TOLD}
from router.cli import app
try:
    app(sys.argv[1:])
finally:
    sys.stderr.write("\\n" + told())
"""
MODEL = f"""{TOLD}
from pathlib import Path
import numpy
class Model:
    def predict(self, inputs, parameters): return inputs
    def sample(self, rows, size): return {{"X": numpy.zeros((rows, 1), "float32")}}
def load(artifact, options):
    Path(__file__).with_name("told.json").write_text(told())
    return Model()
"""
DEFINITION = """
name: m
inputs: [{name: X, datatype: FP32, shape: [-1, 1]}]
outputs: [{name: X, datatype: FP32, shape: [-1, 1]}]
batch_max: 1
slo_ms: 100
variants: [{name: v}]
default_variant: v
"""


@pytest.mark.slow
def test_measuring_imports_the_packages_that_it_needs_and_no_other(tmp_path: Path) -> None:
    model, profiles = tmp_path / "m", tmp_path / "profiles"
    model.mkdir()
    (model / "model.py").write_text(MODEL)
    (model / "model.yaml").write_text(DEFINITION)
    asked = ["--shares", "1", "--point-seconds", "0.01", "--allow-noise", "--profiles", str(profiles)]
    command = [sys.executable, "-c", MEASURE, "profile", str(model), *asked]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert list(profiles.rglob("m.v.json"))
    assert set(json.loads(done.stderr.splitlines()[-1])) - THEIRS == MEASURING
    assert set(json.loads((model / "told.json").read_text())) - THEIRS == WORKER
