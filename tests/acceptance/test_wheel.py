"""The wheel serves from an empty folder, without torch and without this checkout."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from serving.compiled.wheel import build
from tests.acceptance.gateway import serving_one
from tests.acceptance.test_one_model import X, asked
from tests.worker.backends.graphs import WEIGHTS, linear

ABSENT = (
    "torch",
    "scipy",
    "safetensors",
    "tokenizers",
    "transformers",
    "sklearn",
    "aiohttp",
    "gevent",
    "tests",
    "tritonclient",
    "rapidjson",
    "grpc_health",
    "grpc_reflection",
)
"""Packages that a gateway is installed without."""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a process that has the wheel's packages, and not those of ABSENT."""
    folder = tmp_path_factory.mktemp("site")
    wheel = build(tmp_path_factory.mktemp("dist"), compiled=False)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    hidden = f"import sys\nsys.modules.update(dict.fromkeys({ABSENT!r}))\n"
    (folder / "sitecustomize.py").write_text(hidden)
    return {**os.environ, "PYTHONPATH": str(folder)}


def test_a_model_is_served_by_the_wheel_alone(installed: dict[str, str], tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import router; print(router.__file__)"]
    found = subprocess.run(command, env=installed, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert found.stdout.startswith(installed["PYTHONPATH"])
    linear(tmp_path / "linear.onnx")
    with serving_one(tmp_path, "linear.onnx", installed) as gateway:
        assert np.allclose(asked(gateway, "linear").as_numpy("y"), X @ WEIGHTS)
        assert gateway.stop() == 0


@pytest.mark.parametrize(
    "name", ["router/cli.py", "serving/worker/__main__.py", "serving/compiled/finder.py"]
)
def test_the_wheel_has_the_sources_and_no_tests(installed: dict[str, str], name: str) -> None:
    site = Path(installed["PYTHONPATH"])
    assert (site / name).is_file()
    assert not [*site.glob("tests*"), *site.glob("loadtests*"), *site.rglob("__pycache__/*.whl")]


def test_a_plan_without_its_solver_names_the_extra(installed: dict[str, str], tmp_path: Path) -> None:
    linear(tmp_path / "linear.onnx")
    with serving_one(tmp_path, "linear.onnx", installed):
        pass  # it writes the settings
    (settings,) = tmp_path.rglob("penstock.yaml")
    command = [sys.executable, "-m", "router.cli", "place", str(settings), "--rates", "linear=10"]
    ended = subprocess.run(command, env=installed, cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode != 0
    assert "try `pip install 'penstock[plan]'`" in ended.stderr
    assert "Traceback" not in ended.stderr
