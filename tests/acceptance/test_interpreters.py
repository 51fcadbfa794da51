"""A slice with another `python`: its worker computes there, with that environment's packages alone."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import orjson
import pytest

from tests.acceptance.gateway import GatewayProcess, serving_one
from tests.acceptance.test_one_model import X, asked

CODE = """\
import importlib.util
import sys

import numpy as np
import only_there  # a package that the gateway's environment does not have

LEAKED = [name for name in ("fastapi", "pydantic", "router") if importlib.util.find_spec(name)]

def predict(x):
    if LEAKED:
        raise RuntimeError(f"packages of the gateway: {LEAKED}")
    return x * only_there.FACTOR

def sample(rows):
    return {"x": np.ones((rows, 4), np.float32)}
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with numpy, orjson and a package of its own."""
    home = tmp_path_factory.mktemp("other") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    (site,) = home.glob("lib/python*/site-packages")
    packages = Path(np.__file__).parents[1]
    for name in ("numpy", "numpy.libs", "orjson"):
        if (packages / name).exists():
            (site / name).symlink_to(packages / name)
    assert Path(orjson.__file__).is_relative_to(packages)
    (site / "only_there.py").write_text("FACTOR = 3\n")
    return home / "bin" / "python"


@pytest.fixture(scope="module")
def gateway(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    folder = tmp_path_factory.mktemp("served")
    (folder / "tripled.py").write_text(CODE)
    with serving_one(folder, "tripled.py", options=("--python", str(python))) as running:
        yield running


def test_a_model_computes_in_its_own_environment(gateway: GatewayProcess) -> None:
    assert np.array_equal(asked(gateway, "tripled").as_numpy("output"), X * 3)


def test_check_names_the_interpreter_and_its_slices(gateway: GatewayProcess, python: Path) -> None:
    (settings,) = Path(gateway._log).parent.rglob("penstock.yaml")
    command = [sys.executable, "-m", "router.cli", "check", str(settings)]
    told = subprocess.run(command, capture_output=True, text=True, check=True)
    assert f"python: {python} on cpu" in told.stdout


def test_a_plan_refuses_slices_with_another_interpreter(gateway: GatewayProcess) -> None:
    (settings,) = Path(gateway._log).parent.rglob("penstock.yaml")
    command = [sys.executable, "-m", "router.cli", "place", str(settings), "--rates", "tripled=1"]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    assert told.returncode == 2
    assert "another `python`" in told.stderr
