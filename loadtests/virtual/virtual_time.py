"""The live scheduler in virtual time, exact batch latencies, no overhead: what a policy can do at best.

One process, no clock: arrivals are drawn from a seed, a batch of b rows takes alpha * b + beta. It prints
the capacity (highest rate at which at most 1 % of requests are not answered in time, by bisection) and
the goodput at given rates. Run: python -m loadtests.virtual.virtual_time --policy slo --slices 1 --slo-ms 25
"""

import argparse

from loadtests.virtual.virtual_world import World, good_share
from serving.policy.batching.catalogue import POLICIES
from serving.simulation.traffic.patterns import POISSON_CV
from serving.values.specs import BatchingSpec

TOLERATED_BAD = 0.01  # Nexus and Symphony count capacity at 1 % bad


def capacity(world: World, duration_s: float, seeds: int, grain: float = 0.004) -> float:
    """Return the highest rate with at most TOLERATED_BAD bad, to `grain` of it, by bisection."""
    low, high = 0.0, 1e6 / world.row_us * world.slices
    while high - low > grain * high:
        rate = (low + high) / 2
        if good_share(world, rate, duration_s, seeds) >= 1 - TOLERATED_BAD:
            low = rate
        else:
            high = rate
    return low


def main() -> None:
    """Print capacity and goodput for one world."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--policy", choices=sorted(POLICIES), default="static")
    parser.add_argument("--slices", type=int, default=1)
    parser.add_argument("--models", type=int, default=1)
    parser.add_argument("--slo-ms", type=float, default=25)
    parser.add_argument("--cv", type=float, default=POISSON_CV, help="of the gaps between arrivals")
    parser.add_argument("--seconds", type=float, default=100)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rates", type=float, nargs="*", default=[])
    parser.add_argument("--size", type=int)
    parser.add_argument("--delay-ms", type=float, default=0)
    parser.add_argument("--guard-us", type=int, default=0)
    parser.add_argument("--no-admission", action="store_true", help="nobody is turned away at arrival")
    asked = parser.parse_args()
    batching = BatchingSpec(
        asked.policy,
        size=asked.size,
        delay_us=int(asked.delay_ms * 1000),
        guard_us=asked.guard_us,
        admission=not asked.no_admission,
    )
    world = World(batching, asked.slices, asked.models, int(asked.slo_ms * 1000), gap_cv=asked.cv)
    if not asked.rates:
        print(f"capacity {capacity(world, asked.seconds, asked.seeds):.0f} requests/s")
    for rate in asked.rates:
        good = rate * good_share(world, rate, asked.seconds, asked.seeds)
        print(f"offered {rate:.0f}: good {good:.0f} requests/s")


if __name__ == "__main__":
    main()
