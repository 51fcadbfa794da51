"""A profile that was measured while others used the machine: no load is lost by it for long."""

from collections.abc import Callable
from dataclasses import replace
from itertools import product

import pytest

from loadtests.virtual.virtual_world import good_share
from serving.simulation.devices.device import Physics
from tests.seeds import some
from tests.simulation.catalogue import SETTLED

SECONDS = 20
SEEDS = 2
KEPT = {300: 0.98, 500: 0.98, 1500: 0.93}  # of what is answered in time where the profile is right, by rate

PROFILED: dict[str, Callable[[int], float]] = {
    "all too slow": lambda _rows: 1.8,
    "all too quick": lambda _rows: 0.6,
    "large batches too slow": lambda rows: 1 + min(rows, 16) / 20,
    "large batches too quick": lambda rows: 1 - min(rows, 16) / 32,
    "small batches too slow": lambda rows: 1 + 1 / rows,
    "every second size too slow": lambda rows: 1.5 if rows.bit_length() % 2 else 1.0,
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("profiled", "rate", "noise"), some([*product(PROFILED, [300, 500, 1500], [0.0, 0.1])], 8)
)
def test_what_is_answered_in_time_is_near_what_a_right_profile_answers(
    profiled: str, rate: int, noise: float
) -> None:
    world = replace(SETTLED, learned=False, settle_us=5_000_000, physics=Physics(noise=noise))
    wrong = replace(world, profiled=PROFILED[profiled])
    assert good_share(wrong, rate, SECONDS, SEEDS) >= KEPT[rate] * good_share(world, rate, SECONDS, SEEDS)
