"""Catalogue 8: arrival rates read too high or too low by a factor, everywhere they are read."""

import pytest

from loadtests.virtual.virtual_world import good_share
from serving.policy.estimates.rates import Rate
from tests.seeds import some
from tests.simulation.catalogue import CAPACITIES, MISREAD, MISREAD_SHARE, TOLERATED_BAD, WORLDS

pytestmark = pytest.mark.in_turn(2)

SECONDS = {"A": 60, "D": 5}
true_peak = Rate.peak


@pytest.mark.slow
@pytest.mark.parametrize("factor", some(MISREAD))
@pytest.mark.parametrize("row", SECONDS)
def test_capacity_hardly_depends_on_the_rate_that_is_read(
    row: str, factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Rate, "peak", lambda self, now_us: factor * true_peak(self, now_us))
    rate = MISREAD_SHARE * CAPACITIES[row]
    assert good_share(WORLDS[row], rate, SECONDS[row], 1) >= 1 - TOLERATED_BAD
