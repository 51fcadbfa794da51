"""The load test of disturbances runs, from the capacity of the bare model to the table."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from loadtests.harness.gateway import ROOT
from loadtests.scheduling.disturbed import WINDOWS

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.in_turn(3)]

PATIENCE_S = 280
DISTURBANCES = ("burner", "server stopped")  # `poisoned` needs a profile, which a busy machine does not give


@pytest.mark.timeout(300)
def test_disturbances_are_played_and_told(tmp_path: Path) -> None:
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        pytest.skip("the worker needs a core of its own")
    found = tmp_path / "found.json"
    line = [sys.executable, "-m", "loadtests.scheduling.disturbed", "--contenders", "slo", "--loads", "0.2"]
    line += ["--disturbances", *DISTURBANCES, "--rounds", "1", "--scale", "0.1", "--json", f"{found}"]
    line += ["--worker-core", f"{cores[0]}", "--core", f"{cores[1]}"]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(found.read_text())
    assert told["capacity"] > 0
    rows = told["rows"]
    assert [row["case"] for row in rows] == [[each, 0.2, "slo"] for each in DISTURBANCES]
    for row in rows:
        (goodput,) = row["rounds"]
        assert goodput.keys() == WINDOWS.keys()
        assert min(goodput.values()) >= 0  # how good they are no run of a second says
    assert done.stdout.count("\n| ") == len(DISTURBANCES) + 1
