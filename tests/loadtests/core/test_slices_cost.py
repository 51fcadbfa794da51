"""The scheduler's events are timed, for as many requests as come, on any number of slices."""

import pytest

from loadtests.core.slices_cost import cost
from loadtests.virtual.simulation_cost import decisions
from loadtests.virtual.virtual_world import World
from serving.values.specs import BatchingSpec

COUNTED, RATE = 1000, 200.0


@pytest.mark.parametrize("slices", [1, 20])
def test_each_request_and_each_batch_is_counted_and_costs_something(slices: int) -> None:
    ticks = iter(range(1 << 40))
    world = World(BatchingSpec(), slices, batch_max=4)
    taken = decisions(world, RATE, COUNTED, seed=1, clock=lambda: next(ticks))
    assert 0.85 * COUNTED < len(taken["arrive"]) < 1.15 * COUNTED  # Poisson
    assert len(taken["arrive"]) / 4 <= len(taken["batch_done"]) <= len(taken["arrive"])
    assert all(each == [1] * len(each) for each in taken.values())  # nothing else asked the clock meanwhile


def test_it_is_the_mean_over_requests() -> None:
    assert cost(20, 0.5, seed=1, requests=COUNTED) > 0
