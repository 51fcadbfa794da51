"""A rehearsed fleet starts, loses its host and is there again."""

from pathlib import Path

import pytest

from loadtests.rehearsal_start import SLICES, fleet_settings, measure

pytestmark = pytest.mark.live


def test_a_fleet_is_ready_and_again_after_its_host_is_killed(tmp_path: Path) -> None:
    ready_s, back_s, slowest_s = measure(fleet_settings(1, tmp_path / "profiles"), SLICES, tmp_path)
    assert 0 < ready_s < 60
    assert 0 < back_s < 60
    assert 0 < slowest_s < 60
