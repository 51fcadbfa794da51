"""Each import contract of pyproject.toml can be broken. `make lint` says whether the tree keeps them."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.architecture.source_rules import ROOT

CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]

# contract -> a file that is given a line, and the line that breaks the contract there
BREACHES = {
    "the edge and the load tests are above the core": ("serving/ports.py", "import router.settings"),
    "imports flow down only": ("serving/values/vocabulary.py", "import serving.ports"),
    "no cycles": ("serving/policy/limits/admission.py", "import serving.policy.arbitration"),
    "decisions read no clock, await nothing and touch no file": (
        "serving/scheduler/waiting/lanes.py",
        "import time",
    ),
    "web and rpc frameworks stay at the edge": ("serving/runtime/calls/gateway.py", "import fastapi"),
    "torch stays beside the device": ("router/http/example.py", "import torch"),
    "metrics live in one place": ("router/http/example.py", "import prometheus_client"),
    "files are parsed in one place": ("router/http/example.py", "import yaml"),
    "Redis is spoken to by the cache and by cells": ("serving/runtime/caching/caching.py", "import redis"),
    "HTTP/2 is spoken in one place": ("router/http/example.py", "import ngh2"),
    "tokens are counted in one place": ("router/http/example.py", "import tokenizers"),
    "NVML is asked in one place": ("router/http/example.py", "import pynvml"),
    "the product draws its own pictures": ("router/http/example.py", "import matplotlib"),
    "solvers are asked in one place": ("router/http/example.py", "import scipy"),
}
OTHER_HALF_OF_THE_CYCLE = ("serving/policy/arbitration.py", "import serving.policy.limits.admission")


def _lint(tree: Path) -> str:
    """What import-linter says of the packages in `tree`; a process of its own, as packages load once."""
    command = [
        sys.executable,
        "-c",
        "from importlinter.cli import lint_imports_command as run; run()",
        "--no-cache",
    ]
    return subprocess.run(command, cwd=tree, capture_output=True, text=True, timeout=60).stdout


def _verdicts(report: str) -> dict[str, str]:
    names = "|".join(re.escape(contract["name"]) for contract in CONTRACTS)
    return dict(re.findall(rf"^({names}) (KEPT|BROKEN)", report, re.MULTILINE))


@pytest.fixture
def breached(tmp_path: Path) -> Path:
    """The tree with every contract broken once."""
    for package in ("router", "serving", "loadtests"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for path, line in (*BREACHES.values(), OTHER_HALF_OF_THE_CYCLE):
        with (tmp_path / path).open("a") as file:
            file.write(line + "\n")
    return tmp_path


@pytest.mark.slow
def test_every_contract_can_be_broken(breached: Path) -> None:
    report = _lint(breached)
    assert _verdicts(report) == dict.fromkeys(BREACHES, "BROKEN"), report


def test_every_contract_has_its_breach() -> None:
    assert set(BREACHES) == {contract["name"] for contract in CONTRACTS}
