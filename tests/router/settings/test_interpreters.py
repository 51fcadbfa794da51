"""`python:` of a slice: which programs can be a worker's interpreter, and what is said of others."""

import os
import sys
from pathlib import Path

import pytest

from router.management.operations.slice_json import read_slice, told_slice
from router.settings import SettingsError, load_settings
from router.settings.machine.interpreters import unfit
from serving.runtime.environment import PACKAGES, environment, python_command
from serving.values.slice_specs import SliceSpec
from tests.router.settings.samples import GATEWAY, write_deployment, write_gateway

SLICE = "name: cpu-a, cores: 1"


def program(file: Path, script: str) -> Path:
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return file


def test_this_interpreter_is_fit() -> None:
    assert not unfit(Path(sys.executable))


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo 3 9", "is Python 3.9; expected 3.11 or later"),
        ("echo 3 12 orjson", "has no orjson; try `"),
        ("echo 3 12 numpy orjson", "has no numpy and no orjson; try `"),
        ("echo broken >&2; exit 3", "is no Python that runs: broken"),
        ("exit 3", "is no Python that runs: it exited with 3"),
        ("echo hello", "is no Python that runs"),
    ],
)
def test_a_program_that_no_worker_can_run_in_says_why(tmp_path: Path, script: str, message: str) -> None:
    assert message in unfit(program(tmp_path / "python", script))


def test_a_file_that_is_no_program_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no program")
    for path in (tmp_path / "text", tmp_path / "none", tmp_path):
        assert unfit(path).startswith("is no program; expected")


def test_packages_that_are_installed_later_count(tmp_path: Path) -> None:
    file = program(tmp_path / "python", "echo 3 12 numpy")
    assert unfit(file)
    program(file, "echo 3 12")
    assert not unfit(file)


def test_the_path_is_beside_the_settings_file(tmp_path: Path) -> None:
    write_deployment(tmp_path)
    (tmp_path / "venv").mkdir()
    os.symlink(sys.executable, tmp_path / "venv" / "python")
    text = GATEWAY.replace(SLICE, f"{SLICE}, python: venv/python", 1)
    assert text != GATEWAY
    settings = load_settings(write_gateway(tmp_path, text))
    found = {each.name: each.python for each in settings.slices}
    assert found["cpu-a"] == str(tmp_path / "venv" / "python")
    assert found["cpu-b"] == ""


def test_a_wrong_one_is_a_problem_at_its_place(tmp_path: Path) -> None:
    write_deployment(tmp_path)
    text = GATEWAY.replace(SLICE, f"{SLICE}, python: nowhere/python", 1)
    with pytest.raises(SettingsError) as caught:
        load_settings(write_gateway(tmp_path, text))
    (problem,) = caught.value.problems
    assert problem.where == "slices[0].python"
    assert "'nowhere/python' is no program" in problem.message


def test_an_applied_placement_keeps_it() -> None:
    spec = SliceSpec("a", (0,), python="/venv/python")
    assert read_slice(told_slice(spec)) == spec
    assert "python" not in told_slice(SliceSpec("a", (0,)))


def test_another_interpreter_gets_none_of_the_paths_of_the_gateways(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/gateway")
    monkeypatch.setenv("PYTHONHOME", "/gateway")
    found = environment({}, own_python=False)
    assert not {"PYTHONPATH", "PYTHONHOME"} & set(found)
    assert environment({"PYTHONPATH": "/own"}, own_python=False)["PYTHONPATH"] == "/own"
    assert environment({})["PYTHONPATH"] == os.pathsep.join((PACKAGES, "/gateway"))


def test_the_command_names_the_module_for_either_interpreter() -> None:
    assert python_command("serving.worker") == [sys.executable, "-P", "-m", "serving.worker"]
    program, *others, module = python_command("serving.worker", "/venv/python")
    assert (program, module, others[-1]) == ("/venv/python", "serving.worker", PACKAGES)
