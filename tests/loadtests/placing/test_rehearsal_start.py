"""A rehearsed fleet starts, loses its host and is there again."""

from argparse import Namespace
from pathlib import Path

import pytest

from loadtests.placing.rehearsal_start import measure

pytestmark = pytest.mark.live


def test_a_fleet_is_ready_and_again_after_its_host_is_killed(tmp_path: Path) -> None:
    asked = Namespace(gpus=1, batch_ms=10.0, row_ms=2.0, noise=0.0, seed=1)
    ready_s, back_s, slowest_s = measure(asked, tmp_path)
    assert 0 < ready_s < 60
    assert 0 < back_s < 60
    assert 0 < slowest_s < 60
