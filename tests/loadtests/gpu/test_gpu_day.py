"""All of a day on a GPU, on a machine of stand-ins: each step ends as it should, and nothing is left."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from loadtests.gpu.gpu_day import STEPS
from loadtests.gpu.gpu_day_report import Outcome, Shown, Status, markdown
from tests.gpus.machine import ROOT, Machine, standing_in

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.in_turn(3)]

TORCH = "torch computes on no GPU here"


def day(machine: Machine, folder: Path, *more: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "loadtests.gpu.gpu_day", "--report", str(folder), *more]
    environment = {**os.environ, **machine.environment()}
    environment.pop("CUDA_VISIBLE_DEVICES", None)
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def found(folder: Path) -> dict[str, tuple[str, str]]:
    steps = json.loads((folder / "gpu_day.json").read_text())["steps"]
    return {each["name"]: (each["outcome"]["status"], each["outcome"]["sentence"]) for each in steps}


def test_a_day_shows_what_stand_ins_can_show_and_leaves_nothing(tmp_path: Path) -> None:
    with standing_in("h200", "h200:3g.71gb@4#1") as machine:
        before = machine.layouts
        ended = day(machine, tmp_path, "--models", "simple,identity", "--recut", "--seconds", "3")
        assert ended.returncode == 0, ended
        assert (machine.processes(), machine.mps_folders(), machine.layouts) == ([], [], before)
        made, *destroyed = machine.take_ran()
        assert made.startswith("mig -i 1 -cgi 19:")
        assert destroyed == ["mig -i 1 -dci -gi 2", "mig -i 1 -dgi -gi 2"]
    outcomes = found(tmp_path)
    assert [*outcomes] == [step.name for step in STEPS]
    assert {name for name, (status, _) in outcomes.items() if status == "skipped"} == {
        "caps", "memory", "turns", "copies", "sharing"
    }  # fmt: skip
    assert {outcomes[name][1] for name in ("caps", "memory", "turns", "copies")} == {TORCH}
    assert "requests answered while the worker of half-1 was killed" in outcomes["killed"][1]
    page = (tmp_path / "gpu_day.md").read_text()
    assert "9 ok, 0 failed, 5 skipped." in page


def test_a_step_that_fails_is_reported_and_the_others_follow(tmp_path: Path) -> None:
    with standing_in("-h200", "h200/mode=2") as machine:
        ended = day(machine, tmp_path, "--device", "cuda:1", "--only", "inventory,clients,instances")
        assert ended.returncode == 1, ended
        assert machine.processes() == []
    outcomes = found(tmp_path)
    assert [status for status, _ in outcomes.values()] == ["ok", "failed", "skipped"]
    assert "there is no cuda:1 here; there is cuda:0" in outcomes["clients"][1]


def test_all_of_it_ends_in_twenty_minutes() -> None:
    assert sum(step.bound_s for step in STEPS) <= 20 * 60


def test_a_page_has_a_line_for_each_step() -> None:
    outcome = Outcome(Status.FAILED, "a | b", {"took s": 1.23456})
    page = markdown({"GPUs": "one"}, [Shown("quit", "MPS caps", outcome, 2.0, 40)])
    assert "| quit | MPS caps | failed | 2.0 of 40 | a \\| b |" in page
    assert "- took s: 1.235" in page
