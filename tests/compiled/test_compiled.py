"""Machine code decides as its sources do, and is used only where it was made from them."""

import json
import os
import shutil
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import pytest
from mypy import api

from serving import compiled
from serving.compiled.__main__ import OPTIONS, build, obstacle
from serving.policy.batching.catalogue import POLICIES, create_policy
from serving.scheduler.waiting.requests import Piece, Request
from serving.values.specs import BatchingSpec
from tests.architecture.source_rules import ROOT

TOLD_S = 250
pytestmark = pytest.mark.timeout(900)  # compiling takes a minute or two, and may have to be done here

ASK = """
from serving.scheduler import scheduler
from serving.compiled import folder, is_compiled
print([int(is_compiled()), int(scheduler.__file__.startswith(str(folder())))])
"""


@pytest.fixture(scope="module")
def machine_code() -> Path:
    """What is compiled from the present sources; compiled now, where they have changed since `make`."""
    reason = obstacle()
    if reason:
        pytest.skip(reason)
    if not compiled.folder().exists():
        assert build() == ""
    return compiled.folder()


def told(command: list[str], tree: Path = ROOT, **variables: str) -> Any:
    environment = {name: value for name, value in os.environ.items() if name != "PENSTOCK_INTERPRETED"}
    environment |= {"PYTHONPATH": str(tree)} | variables
    done = subprocess.run(
        [sys.executable, *command], cwd=tree, env=environment, capture_output=True, text=True, timeout=TOLD_S
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_a_package_without_type_stubs_can_be_imported(tmp_path: Path) -> None:
    """`make serve` installs no stubs, and the code that decides is compiled all the same."""
    source = tmp_path / "reading.py"
    source.write_text(
        "import yaml\n\n\nclass Loader(yaml.SafeLoader):  # type: ignore[misc]\n    depth: int = 0\n"
    )
    told, errors, code = api.run([*OPTIONS, "--no-site-packages", f"--cache-dir={tmp_path}", str(source)])
    assert (code, errors) == (0, ""), told


@pytest.mark.slow
@pytest.mark.usefixtures("machine_code")
def test_machine_code_decides_in_every_world_as_its_sources_do() -> None:
    fast = told(["-m", "tests.compiled.runs"])
    read = told(["-m", "tests.compiled.runs"], PENSTOCK_INTERPRETED="1")
    assert (fast["compiled"], read["compiled"]) == (True, False)
    assert fast["ends"] == read["ends"]


@pytest.mark.slow
def test_after_a_change_the_sources_are_read_until_they_are_compiled_again(
    machine_code: Path, tmp_path: Path
) -> None:
    for package in compiled.PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    assert told(["-c", ASK], tmp_path) == [1, 1]
    with (tmp_path / "serving" / "values" / "specs.py").open("a") as file:
        file.write("# changed\n")
    assert told(["-c", ASK], tmp_path) == [0, 0]


def test_all_that_decides_is_compiled() -> None:
    names = {str(file) for file in compiled.sources()}
    assert {
        f"serving/policy/batching/{name}.py"
        for name in ("slo", "published/aimd", "published/nanily", "static")
    } <= names
    assert {"serving/scheduler/scheduler.py", "serving/scheduler/dispatch.py"} <= names


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_what_lives_long_takes_no_weak_references(name: str) -> None:
    # mypyc 2.4 drops a weak reference to an object of a class with a __dict__ twice: a crash
    if not compiled.is_compiled():
        pytest.skip("decisions are interpreted here")
    request = Request(1, "m", 1, 0, 1)
    spec = BatchingSpec(name, mode=POLICIES[name].modes[0] if POLICIES[name].modes else "")
    for thing in (create_policy(spec, 1000), request, Piece(request, 0, 1)):
        with pytest.raises(TypeError, match="weak reference"):
            weakref.ref(thing)


def test_without_a_compiler_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler -O2")
    assert obstacle() == "there is no C compiler (no-such-compiler)"
