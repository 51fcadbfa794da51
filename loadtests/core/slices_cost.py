"""What the scheduler costs, by the number of slices: microseconds of one core per request of one row.

    python -m loadtests.core.slices_cost [--slices 1 8 32 100 300] [--load 0.5] [--rounds 5] [--calls]

One model is on all slices, and its requests come by chance (Poisson), at a share of what full batches carry.
They are simulated, and only the scheduler's own events are timed (`loadtests.virtual.simulation_cost`). With
`--calls` Python calls are counted instead: they are the same on any machine.
"""

import argparse
import os
import statistics

from loadtests.virtual.simulation_cost import counted, decisions
from loadtests.virtual.virtual_world import World
from serving.values.specs import BatchingSpec

SLICES = (1, 8, 32, 100, 300)
BATCH_MAX, BATCH_US, ROW_US, SLO_US = 32, 5_000, 1_000, 200_000
REQUESTS = 20_000


def cost(slices: int, load: float, seed: int, requests: int = REQUESTS, is_in_calls: bool = False) -> float:
    """Return what a request costs in the mean, in microseconds or in calls."""
    world = World(
        BatchingSpec(), slices, slo_us=SLO_US, alpha_us=ROW_US, beta_us=BATCH_US, batch_max=BATCH_MAX
    )
    rate = load * slices * BATCH_MAX / (BATCH_US + ROW_US * BATCH_MAX) * 1e6
    taken = (counted if is_in_calls else decisions)(world, rate, requests, seed)
    total = sum(sum(each) for each in taken.values())
    return total / len(taken["arrive"]) / (1 if is_in_calls else 1e3)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--slices", type=int, nargs="+", default=SLICES)
    parser.add_argument("--load", type=float, default=0.5, help="share of what full batches carry")
    parser.add_argument("--rounds", type=int, default=5, help="rounds whose median is printed")
    parser.add_argument("--calls", action="store_true", help="count calls of Python functions instead")
    asked = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    print(f"one model at {asked.load:g} of its capacity, medians of {asked.rounds} x {REQUESTS} requests")
    print(f"{'slices':>7}{'calls' if asked.calls else 'us':>8} a request{'times':>8}")
    first = 0.0
    for count in asked.slices:
        costs = [cost(count, asked.load, seed, is_in_calls=asked.calls) for seed in range(asked.rounds)]
        median = statistics.median(costs)
        first = first or median
        print(f"{count:7}{median:18.1f}{median / first:8.2f}", flush=True)


if __name__ == "__main__":
    main()
