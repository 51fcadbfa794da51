"""The builds: done once, done again when something is missing, wrong names refused."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.models.samples import MODELS, built

pytestmark = pytest.mark.slow


def _run(script: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(script), *arguments], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("model", ["digits", "minilm"])
def test_a_second_build_does_nothing(model: str) -> None:
    accuracy = built(model, "build/accuracy.json")
    before = accuracy.stat().st_mtime_ns
    done = _run(MODELS / "build.py", model)
    assert done.returncode == 0
    assert f"{model}: up to date" in done.stdout
    assert accuracy.stat().st_mtime_ns == before


def test_a_build_with_a_missing_output_or_a_changed_source_is_done_again(tmp_path: Path) -> None:
    folder = tmp_path / "digits"
    built("digits", "build/state.txt")
    shutil.copytree(MODELS / "digits", folder)
    (folder / "training.py").write_text("def train_all(build):\n    print('training', build.name)\n")
    assert "training build" in _run(folder / "build.py").stdout
    assert "up to date" in _run(folder / "build.py").stdout
    (folder / "build" / "cnn.safetensors").unlink()
    assert "training build" in _run(folder / "build.py").stdout
    assert "training build" in _run(folder / "build.py", "--force").stdout


def test_an_interrupted_build_is_not_taken_for_a_finished_one(tmp_path: Path) -> None:
    folder = tmp_path / "digits"
    shutil.copytree(MODELS / "digits", folder)
    (folder / "training.py").write_text("def train_all(build):\n    raise SystemExit('stopped')\n")
    assert _run(folder / "build.py", "--force").returncode == 1
    assert "stopped" in _run(folder / "build.py").stderr


def test_a_model_that_is_not_built_is_refused_with_those_that_are() -> None:
    refused = _run(MODELS / "build.py", "digit")
    assert refused.returncode == 2
    assert "nothing is built for digit, only for digits, minilm" in refused.stderr
