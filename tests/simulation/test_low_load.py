"""Catalogue 5: what a request waits, and what slices are busy for, while there is room."""

from dataclasses import replace
from statistics import median

import pytest

from loadtests.virtual.virtual_world import Run, VirtualModel, World, offer
from serving.simulation.tally import Tally
from tests.simulation.catalogue import (
    BUSY_SHARE,
    CAPACITIES,
    LOW_LOAD,
    MIXED,
    MIXED_CAPACITY,
    SETTLE_US,
    SLO,
    TOLERATED_BAD,
    WAIT_US,
    WORLDS,
)

pytestmark = pytest.mark.in_turn(2)

REQUESTS = 2000
MEASURE_US = 1_000_000  # at least
CONSOLIDATED = replace(SLO, mode="consolidate")


def play(world: World, rate: float) -> tuple[Tally, float]:
    """What became of the requests, and the slices that were busy on average."""
    counted_us = max(MEASURE_US, REQUESTS / rate * 1e6)
    tally = Run(world).play(offer(world, rate, (SETTLE_US + counted_us) / 1e6, 0))
    return tally, tally.busy_us / counted_us


def target(model: VirtualModel, rate: float) -> int:
    """The largest batch that its first row can wait for: l(b) + b / rate <= SLO (Symphony)."""
    fitting = (b for b in range(2, 65) if model.latency_us(b) + b / rate <= model.slo_us)
    return max(fitting, default=1)


def half_wait_for_nothing(world: World, rate: float) -> bool:
    tally, _ = play(world, rate)
    return tally.good == tally.offered and median(tally.waits_us) <= world.each[0].latency_us(1) + WAIT_US


@pytest.mark.slow
@pytest.mark.parametrize("row", WORLDS)
def test_at_low_load_half_of_all_requests_wait_for_nothing_but_their_own_batch(row: str) -> None:
    assert half_wait_for_nothing(WORLDS[row], LOW_LOAD * CAPACITIES[row])


def test_so_do_requests_of_unlike_models() -> None:
    assert half_wait_for_nothing(MIXED, LOW_LOAD * MIXED_CAPACITY)


@pytest.mark.slow
@pytest.mark.parametrize("load", [0.1, 0.7])
@pytest.mark.parametrize("row", ["A", "B", "E", "F", "H"])
def test_consolidated_slices_are_busy_as_batches_of_the_target_size_need_and_promises_are_kept(
    row: str, load: float
) -> None:
    world = replace(WORLDS[row], policy=CONSOLIDATED)
    rate = load * CAPACITIES[row]
    of_each_us = rate / len(world.each) / 1e6
    rows = target(world.each[0], of_each_us)
    tally, slices = play(world, rate)
    assert slices <= BUSY_SHARE * len(world.each) * of_each_us * world.each[0].latency_us(rows) / rows
    assert tally.good >= (1 - TOLERATED_BAD) * tally.offered


@pytest.mark.slow
def test_consolidation_is_what_saves_the_time() -> None:
    rate = 0.1 * CAPACITIES["H"]
    _, consolidated = play(replace(WORLDS["H"], policy=CONSOLIDATED), rate)
    _, eager = play(WORLDS["H"], rate)
    assert eager > 3 * consolidated
