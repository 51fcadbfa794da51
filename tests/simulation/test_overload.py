"""Catalogue 3: what is answered in time when more is offered than can be."""

import pytest

from loadtests.virtual.virtual_world import World, good_share
from tests.simulation.catalogue import CAPACITIES, CAPACITY_SHARE, OVERLOAD_SHARE, WORLDS

pytestmark = pytest.mark.in_turn(2)

SECONDS = {"A": 20, "D": 3, "E": 15}


def goodput(world: World, rate: float, seconds: float) -> float:
    return rate * good_share(world, rate, seconds, 1)


@pytest.mark.slow
@pytest.mark.parametrize("row", ["A", "D", "E"])  # one model and slice; eight slices; four models
def test_goodput_does_not_fall_when_two_and_four_times_the_capacity_is_offered(row: str) -> None:
    world, seconds = WORLDS[row], SECONDS[row]
    capacity = CAPACITY_SHARE * CAPACITIES[row]
    at_capacity = goodput(world, capacity, seconds)
    for times in (2, 4):
        assert goodput(world, times * capacity, seconds) >= OVERLOAD_SHARE * at_capacity
