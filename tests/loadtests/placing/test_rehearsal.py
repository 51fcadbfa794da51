"""The rehearsed fleet that a load test plays can be simulated, and carries what its profile says."""

import json
from argparse import Namespace
from pathlib import Path

import pytest

from loadtests.placing.rehearsal import SLICES, fleet_settings, write_profile
from loadtests.scheduling.sim_fidelity import MODEL, simulated
from router.settings import load_settings

pytestmark = pytest.mark.slow

ASKED = Namespace(gpus=2, batch_ms=8.0, row_ms=1.0, noise=0.0, seed=1)


def test_the_fleet_is_rehearsed_and_its_simulation_answers_a_moderate_load(tmp_path: Path) -> None:
    longest_ms = write_profile(ASKED, tmp_path / "profiles")
    assert longest_ms == 24.0
    config = tmp_path / "penstock.yaml"
    config.write_text(json.dumps(fleet_settings(ASKED, tmp_path / "profiles", 3 * longest_ms)))
    slices = load_settings(config).slices
    assert len(slices) == 2 * SLICES
    assert all(each.rehearsed for each in slices)
    found = simulated(config, "--rate", f"{MODEL}=200", "--seconds", "5", "--noise", "0")["total"]
    assert 180 < found["goodput"] < 220
    assert 9 < found["p50_ms"] < 24
