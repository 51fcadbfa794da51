"""How many replicas, by whom: every scaling policy on the same loads, in virtual time.

  python -m loadtests.scaling.autoscaling                          # all, on two processes
  python -m loadtests.scaling.autoscaling --workloads flash cv4 --policies slo hpa
  python -m loadtests.scaling.autoscaling --starts 5 30 120 --workloads step flash --policies slo hpa oracle
  python -m loadtests.scaling.autoscaling --variants --policies slo hpa infaas

The live controller and scheduler run; what differs is the policy that says how many replicas there are to be.
A replica of the model takes 80 + 50 b ms for a batch of b, so it computes 17 rows a second at most, due in
800 ms; it gets batches 10 s after it was asked for, in the mean (5 to 15). There are 60 slices.
"""

import argparse
import csv
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from math import sqrt
from pathlib import Path
from time import process_time

import numpy as np

from loadtests.scaling.autoscaling_table import HEADER, Row, promises, table
from loadtests.scaling.autoscaling_workloads import SETTLE_S, WORKLOADS
from loadtests.virtual.baselines.scaling_oracle import Oracle
from loadtests.virtual.scaled_world import (
    KIND,
    SECOND,
    ScaledModel,
    ScaledSimulation,
    ScaledWorld,
    SimulatedTables,
)
from serving.control.commands import FindCapacity
from serving.policy.scaling.catalogue import create_policy
from serving.policy.scaling.interface import ReplicaPolicy
from serving.simulation.traffic.arrivals import Arrival
from serving.simulation.traffic.patterns import Seconds
from serving.values.objectives import MOST_ACCURATE, Needs, ScalingSpec

POLICIES: dict[str, tuple[str, float | None]] = {
    "slo": ("slo", None),
    "hpa": ("hpa", None),
    "hpa 0.6": ("hpa", 0.6),
    "keda": ("keda", None),
    "ray_serve": ("ray_serve", None),
    "aiad": ("aiad", None),
    "mark": ("mark", None),
    "inferline": ("inferline", None),
    "infaas": ("infaas", None),
    "oracle": ("oracle", None),
}
"""Policies by the name under which they are entered, and what they aim at."""

START_S = 10.0

ONE = ScaledModel(variants=(("v", 0.0, 50_000, 80_000),), slo_us=800_000)
SLOW = ScaledModel(variants=(("v", 0.0, 250_000, 400_000),), slo_us=3_000_000)
"""A batch of b takes 400 + 250 b ms, so a replica computes 3 rows a second at most, due in 3 s."""
THREE = replace(
    ONE,
    variants=(
        ("large", 0.92, 70_000, 110_000),
        ("base", 0.88, 50_000, 80_000),
        ("small", 0.80, 20_000, 40_000),
    ),
    needs=Needs(optimize=MOST_ACCURATE),
)


@dataclass(frozen=True, slots=True)
class Case:
    """One run: `start_s` from the wish for a replica to its first batch, in the mean; `share` of the length
    of the workload that is played."""

    workload: str
    policy: str
    seed: int = 0
    start_s: float = START_S
    variants: bool = False
    share: float = 1.0

    @property
    def model(self) -> ScaledModel:
        """That the workload asks."""
        if self.variants:
            return THREE
        return SLOW if WORKLOADS[self.workload].slow else ONE

    @property
    def world(self) -> ScaledWorld:
        """A fifth of a start is the worker's, the rest is loading."""
        policy, target = POLICIES[self.policy]
        model = self.model
        load_us = int(0.8 * self.start_s * SECOND / len(model.variants))
        scaling = ScalingSpec("fixed" if policy == "oracle" else policy, target)
        return ScaledWorld(
            (replace(model, load_us=load_us),), start_us=int(0.2 * self.start_s * SECOND), scaling=scaling
        )


def play(case: Case, tables: SimulatedTables) -> Row:
    """Play one case to its end, and return its row."""
    began_s = process_time()
    load = WORKLOADS[case.workload]
    instants = load.instants(case.seed, case.share)
    asked = [Arrival(int(at_s * SECOND) + 1, 0, load.rows) for at_s in instants.tolist()]

    def create(spec: ScalingSpec) -> ReplicaPolicy:
        return _oracle(instants, load.rows) if case.policy == "oracle" else create_policy(spec)

    run = ScaledSimulation(case.world, asked, tables, case.seed, create)
    end_s = SETTLE_S + int(load.length_s * case.share / 60) * 60
    score = run.run(int(SETTLE_S) * SECOND, int(end_s) * SECOND)
    label = f"{case.workload}, {case.start_s:g} s" if case.start_s != START_S else case.workload
    return Row(label, case.policy, score, process_time() - began_s)


def _oracle(instants: Seconds, rows: int) -> Oracle:
    at_us = instants * SECOND

    def future(first_us: int, last_us: int) -> float:
        low, high = np.searchsorted(at_us, (first_us, last_us))
        return float(high - low) * rows / (last_us - first_us) * SECOND

    # requests of so many rows, Poisson: rows in gaps of that CV
    return Oracle(future, cv=sqrt(2 * rows - 1))


def filled(models: Iterable[ScaledModel]) -> SimulatedTables:
    """Return tables with the capacity of every variant of these models: half a minute each."""
    tables = SimulatedTables()
    for model in models:
        world = ScaledWorld((model,))
        served = model.served(world.specs)
        for name, *_ in model.variants:
            tables.capacity(FindCapacity(served, name, KIND, model.profile(name), world.slices))
    return tables


def main() -> int:
    """Return 0 if our policy keeps its promises on all that was run, else 1."""
    asked = _arguments()
    cases = [
        Case(workload, policy, asked.seed, start_s, asked.variants, asked.share)
        for workload in asked.workloads
        for start_s in asked.starts
        for policy in asked.policies
    ]
    rows = [*_played(cases, filled({case.model for case in cases}), asked.processes)]
    print("\n".join(table(rows)))
    if asked.csv:
        with asked.csv.open("w") as file:
            csv.writer(file).writerows([HEADER, *(row.cells for row in rows)])
    missed = [*promises(rows)]
    print("\n".join(f"MISSED: {line}" for line in missed) or "met: every promise of ours on these loads")
    return 1 if missed else 0


def _played(cases: Sequence[Case], tables: SimulatedTables, processes: int) -> Iterator[Row]:
    with ProcessPoolExecutor(processes) as pool:
        for row in pool.map(play, cases, [tables] * len(cases)):
            sys.stderr.write(f"{' '.join(map(str, row.cells))}, {row.seconds:.0f} s\n")
            yield row


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--workloads", nargs="+", choices=WORKLOADS, default=[*WORKLOADS], metavar="LOAD")
    add("--policies", nargs="+", choices=POLICIES, default=[*POLICIES], metavar="POLICY")
    add("--starts", nargs="+", type=float, default=[START_S], help="seconds until a replica is there")
    add("--variants", action="store_true", help="three variants, of which the data plane chooses")
    add("--share", type=float, default=1.0, help="of the length that is played")
    add("--seed", type=int, default=0)
    add("--processes", type=int, default=2)
    add("--csv", type=Path, metavar="FILE")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
