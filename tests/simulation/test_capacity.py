"""Catalogue 4: how much can be offered so that nearly all of it is answered in time."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from loadtests.virtual.virtual_world import World, good_share
from serving.values.specs import BatchingSpec
from tests.seeds import some
from tests.simulation.catalogue import CAPACITIES, CAPACITY_SHARE, SETTLE_US, TOLERATED_BAD, WORLDS

pytestmark = pytest.mark.in_turn(2)

REQUESTS = 40_000
REQUESTS_OF_BASELINE = 4000
BATCH_SHARES = (0.5, 0.75, 1.0)  # of the SLO, for the largest batch
DELAY_SHARES = (0.0, 0.1, 0.2)  # of the SLO


def bad_share(world: World, rate: float, requests: int) -> float:
    return 1 - good_share(world, rate, SETTLE_US / 1e6 + requests / rate, 1)


def baselines(world: World) -> Iterator[World]:
    """`static` over a grid of batches and delays, `aimd` over the delays."""
    model = world.each[0]
    for delay_us in (int(share * model.slo_us) for share in DELAY_SHARES):
        for share in BATCH_SHARES:
            rows = int((share * model.slo_us - model.beta_us) / model.alpha_us)
            if rows > 0:
                yield replace(world, policy=BatchingSpec("static", size=rows, delay_us=delay_us))
        yield replace(world, policy=BatchingSpec("aimd", delay_us=delay_us))


@pytest.mark.slow
@pytest.mark.parametrize("row", some([*WORLDS], 3))
def test_the_composite_carries_what_it_does_in_an_idealised_simulation(row: str) -> None:
    rate = CAPACITY_SHARE * CAPACITIES[row]
    assert bad_share(WORLDS[row], rate, REQUESTS) <= TOLERATED_BAD


@pytest.mark.slow
@pytest.mark.parametrize("row", some([*WORLDS]))
def test_no_tuned_baseline_carries_as_much_that_the_composite_would_be_behind(row: str) -> None:
    rate = CAPACITIES[row]  # the composite carries CAPACITY_SHARE of it
    for world in baselines(WORLDS[row]):
        assert bad_share(world, rate, REQUESTS_OF_BASELINE) > TOLERATED_BAD, world.policy
