"""The fleet whose scheduler is timed answers all that comes, on any number of slices."""

import pytest

from loadtests.slices_cost import Fleet

COUNTED = 1000


@pytest.mark.parametrize("slices", [1, 20])
def test_each_request_is_answered_and_its_cost_is_counted(slices: int) -> None:
    fleet = Fleet(slices, 0.5, seed=1)
    assert fleet.play(COUNTED) > 0
    assert 0.85 * COUNTED < fleet.rows <= COUNTED  # the first tenth is not counted
    assert fleet.scheduler.open_requests == 0
