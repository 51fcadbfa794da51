"""Every batching policy while others disturb the slice, in virtual time: before, meanwhile, and after.

  python -m loadtests.scheduling.disturbed_policies            # some five minutes on two processes
  python -m loadtests.scheduling.disturbed_policies --policies slo clockwork --shares 3

The model is an MLP as it ran on one core: a batch of b rows takes 0.48 b + 9.5 ms (noise 5 %), the SLO is
50 ms. From second 5 on for 3 s others use the core. Rates are shares of what the slice carries in batches
that take half the SLO (1,280 rows/s). Goodput is requests a second answered in time, by the second in which
they came: before, meanwhile, in the second after, and in the fourth to sixth second after. `fresh` is what
the same policy has in those seconds where nothing disturbed it: a policy without a metastable state is
there again.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from statistics import mean

from loadtests.scheduling.policies import contenders
from loadtests.virtual.virtual_world import Run, World, offer
from serving.scheduler.commands import Answer
from serving.simulation.devices.device import Physics
from serving.values.disturbance import Disturbance, preempted, shared, slowed
from serving.values.specs import BatchingSpec
from serving.values.vocabulary import COMPLETED

CAPACITY = 1280.0  # rows/s in batches of 32, which take 25 ms
AT_S, FOR_S, SECONDS = 5, 3, 14
SHARES = (0.5, 1.5, 3.0)
DISTURBANCES: Mapping[str, Disturbance] = {
    "a busy neighbour": shared(AT_S, FOR_S),
    "three times slower": slowed(AT_S, FOR_S, 3),
    "stops of 1 to 50 ms, 30 %": preempted(AT_S, FOR_S, 0.3, (1, 50)),
    "stops of 1 to 50 ms, 60 %": preempted(AT_S, FOR_S, 0.6, (1, 50)),
}
WINDOWS = {"before": (2, 5), "meanwhile": (5, 8), "1st s after": (8, 9), "4th to 6th": (11, 14)}


class SecondBySecond(Run):
    """A run that counts, by the second of their arrival, the rows that were answered in time: `good`."""

    def __init__(self, world: World, seed: int) -> None:
        self.good: Counter[int] = Counter()
        super().__init__(world, seed)

    def answered(self, answer: Answer, now_us: int) -> None:
        """See `Simulation`."""
        request = answer.request
        if answer.outcome is COMPLETED and now_us <= request.deadline_us:
            self.good[request.arrived_us // 1_000_000] += request.rows


@dataclass(frozen=True, slots=True)
class Row:
    """Goodput of one policy at a share of capacity, by the names of WINDOWS, and `fresh`."""

    policy: str
    disturbance: str
    share: float
    goodput: Mapping[str, float]


def world_of(policy: BatchingSpec, disturbance: Disturbance | None) -> World:
    """Return the MLP under a policy, disturbed or not."""
    return World(
        policy, slo_us=50_000, alpha_us=480, beta_us=9500, learned=False,
        physics=Physics(noise=0.05, overhead_us=700),
        disturbances=() if disturbance is None else (disturbance,),
    )  # fmt: skip


def goodput(world: World, rate: float, seeds: int) -> dict[str, float]:
    """Return requests a second answered in time, the mean over seeds, by the names of WINDOWS."""
    runs = []
    for seed in range(seeds):
        run = SecondBySecond(world, seed)
        run.play(offer(world, rate, SECONDS, seed))
        runs.append(run)
    return {
        name: mean(run.good[second] for run in runs for second in range(first, end))
        for name, (first, end) in WINDOWS.items()
    }


def measure(policy: str, specs: Sequence[BatchingSpec], name: str, share: float, seeds: int) -> Row:
    """Return one row: among several specs, the one that does best while it is disturbed."""
    found = []
    for spec in specs:
        disturbed = goodput(world_of(spec, DISTURBANCES[name]), share * CAPACITY, seeds)
        fresh = goodput(world_of(spec, None), share * CAPACITY, seeds)
        found.append({**disturbed, "fresh": fresh["4th to 6th"]})
    return Row(policy, name, share, max(found, key=lambda each: each["meanwhile"]))


def table(rows: Sequence[Row], share: float) -> Iterator[str]:
    """Yield Markdown: policies by disturbance at one share of capacity."""
    shown = [row for row in rows if row.share == share]
    names = list(dict.fromkeys(row.disturbance for row in shown))
    columns = [*WINDOWS, "fresh"]
    yield f"\n{share:g} times capacity, {share * CAPACITY:.0f} requests/s: {', '.join(columns)}\n"
    yield "| policy | " + " | ".join(names) + " |"
    yield "|---" * (len(names) + 1) + "|"
    for policy in dict.fromkeys(row.policy for row in shown):
        cells = [row for row in shown if row.policy == policy]
        told = (", ".join(f"{row.goodput[column]:.0f}" for column in columns) for row in cells)
        yield f"| {policy} | " + " | ".join(told) + " |"


def main() -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--policies", nargs="*", default=[], help="by their names; all where none is named")
    parser.add_argument("--shares", nargs="+", type=float, default=list(SHARES), help="of the capacity")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--processes", type=int, default=2)
    asked = parser.parse_args()
    tasks = [
        (each.name, [replace(spec, guard_us=300) for spec in each.specs], name, share, asked.seeds)
        for share in asked.shares
        for name in DISTURBANCES
        for each in contenders("C")  # a row of the same SLO
        if each.name != "slo exact" and (not asked.policies or each.name.split()[0] in asked.policies)
    ]
    with ProcessPoolExecutor(asked.processes) as pool:
        rows = []
        for row in pool.map(measure, *zip(*tasks, strict=True)):
            rows.append(row)
            sys.stderr.write(f"{row.share:g} {row.disturbance}: {row.policy}\n")
    for share in asked.shares:
        print("\n".join(table(rows, share)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
