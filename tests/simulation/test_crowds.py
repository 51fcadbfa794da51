"""A crowd that comes at once is answered as well as by rules that know no rate: what slo forms follows it."""

import numpy as np
import pytest

from loadtests.virtual.virtual_world import Run, World
from serving.simulation.traffic.arrivals import Arrival
from serving.simulation.traffic.patterns import POISSON_CV, due_times
from serving.values.specs import BatchingSpec

pytestmark = pytest.mark.in_turn(2)

SECONDS, SEEDS = 20, 6
SLO, WINDOW_DROP = BatchingSpec("slo", guard_us=0), BatchingSpec("window_drop", guard_us=0)


def in_time(policy: BatchingSpec, pattern: str) -> float:
    """The mean share over the seeds."""
    shares = []
    for seed in range(SEEDS):
        due = due_times(pattern, SECONDS, POISSON_CV, np.random.default_rng(seed))
        shares.append(Run(World(policy), seed).play(Arrival(int(s * 1e6) + 1, 0) for s in due).attainment)
    return float(np.mean(shares))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pattern", "least"), [("mmpp(100,600,dwell=0.5)", 0.87), ("mmpp(1,700,dwell=0.2)", 0.765)]
)
def test_of_a_load_that_jumps_as_much_is_answered_in_time_as_by_the_window_drop_alone(
    pattern: str, least: float
) -> None:
    share = in_time(SLO, pattern)
    assert share >= least  # 0.842 and 0.717 without a rate of the last 25 ms
    assert share >= 0.98 * in_time(WINDOW_DROP, pattern)
