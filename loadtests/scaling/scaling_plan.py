"""How long the slow plan takes on one core, and how far it is from the linear program of whole covers.

OMP_NUM_THREADS=1 python -m loadtests.scaling.scaling_plan [--models N] [--seed N] [--program]

Models are drawn: four variants, each about two points less accurate and twice as quick as the one before, on
six kinds of slices of which two are spot, a quarter of them of a higher priority; of slices there are so many
for each model as the row says. `seconds` are of this process: arrays, prices, rounding, the plan with its
sentences; forecasts are not in it. `gap`: of what the plan costs, in its own currency, over what covers cost
at least where models may be split among them. It can be under 0, as whole plans may mix kinds in one pool.
With `--program`: prices and rounding beside the integer program alone, each with its seconds and its gap. The
program may look at as many branches as in the plan; of 100 models it takes minutes.
"""

import argparse
import random
from math import inf
from time import process_time

from serving.policy.forecasting.quantiles import Quantiles
from serving.policy.scaling.carried.capacity import Capacity
from serving.policy.scaling.slow.objective_value import worth
from serving.policy.scaling.slow.planning import NODES_MAX, plans
from serving.policy.scaling.slow.problem import ScalingProblem, make_problem
from serving.policy.scaling.slow.program import Left, every_size, solve_exact
from serving.policy.scaling.slow.rounding import Rounded, round_covers
from serving.policy.scaling.slow.tables import Ints
from serving.policy.scaling.slow.task import Claimant, Key, ScalingTask, SliceKind
from serving.values.objectives import OPTIMIZE

COUNTS = (1, 2, 4, 8, 16, 32)
POOLED = (0.22, 0.54, 0.75, 0.87, 0.93, 0.97)
"""Of what n servers could, what they carry with an SLO of three services (M/D/n)."""
KINDS = (
    (SliceKind("small", 0.5), 0.4, 1.0),
    (SliceKind("medium", 1.0), 1.0, 1.0),
    (SliceKind("large", 3.0), 3.2, 0.6),
    (SliceKind("largest", 6.0), 6.5, 0.3),
    (SliceKind("spot medium", 0.35, spot=True), 1.0, 0.5),
    (SliceKind("spot large", 1.0, spot=True), 3.2, 0.3),
)
"""With their speed, and how many there are for each model where there is one slice of the first."""
ROWS = (
    ("plenty", 10.0, inf),
    ("spot is scarce", 1.0, inf),
    ("all are scarce", 0.4, inf),
    ("too few", 0.2, inf),
    ("ceiling", 10.0, 0.95),
)
"""Slices for each model, and the ceiling of an hour for each."""


def draw(count: int, seed: int, slices: float, cost_max: float) -> tuple[ScalingTask, list[Quantiles]]:
    """Return a task, and what is expected of each model."""
    chance = random.Random(seed)
    claimants = [_claimant(f"m{place}", chance) for place in range(count)]
    rates = [min(0.5 * each.weight * 100 * chance.paretovariate(1.2), 10_000.0) for each in claimants]
    kinds = tuple(
        SliceKind(kind.name, kind.price, max(1, int(count * slices * share)), kind.spot)
        for kind, _, share in KINDS
    )
    task = ScalingTask(tuple(claimants), kinds, count * cost_max)
    return task, [Quantiles(0.7 * rate, rate) for rate in rates]


def _claimant(name: str, chance: random.Random) -> Claimant:
    pace, best = chance.uniform(20, 400), chance.uniform(0.75, 0.95)
    variants = {f"v{each}": best - 0.02 * each * chance.uniform(0.8, 1.2) for each in range(4)}
    capacities: dict[Key, Capacity] = {}
    for each, variant in enumerate(variants):
        for kind, speed, _ in KINDS:
            single = pace * 1.9**each * speed * chance.uniform(0.8, 1.25)
            poisson = tuple(single * n * part for n, part in zip(COUNTS, POOLED, strict=True))
            bursty = tuple(0.7 * rate for rate in poisson)
            capacities[variant, kind.name] = Capacity(COUNTS, (1.0, 4.0), (poisson, bursty))
    return Claimant(
        name,
        (),
        variants,
        capacities,
        cv=chance.choice((1.0, 2.0, 4.0)),
        optimize=chance.choice(OPTIMIZE),
        weight=chance.choice((1.0, 2.0)),
        priority=chance.choice((0, 0, 0, 1)),
    )


def _gap(problem: ScalingProblem, rounded: Rounded, replicas: Ints) -> float:
    return worth(problem, replicas) / rounded.bound - 1


def measure(name: str, count: int, seed: int, slices: float, cost_max: float) -> str:
    """Return a row of the table."""
    task, expected = draw(count, seed, slices, cost_max)
    begin_s = process_time()
    plan = list(plans(task, expected))[-1]
    took_s = process_time() - begin_s
    problem = make_problem(task, [each.high for each in expected])
    rounded = round_covers(problem)
    gap = _gap(problem, rounded, rounded.replicas)
    shed = sum(granted.shed > 0 for granted in plan.granted.values())
    lacking = sum(bool(granted.lacking) for granted in plan.granted.values())
    replicas = sum(granted.band.high for granted in plan.granted.values())
    return f"{name:16} {took_s:7.2f} {gap:10.1e} {replicas:9} {plan.cost:9.0f} {shed:6} {lacking:8}"


def compare(name: str, count: int, seed: int, slices: float, cost_max: float) -> str:
    """Return a row of the table of both solvers."""
    task, expected = draw(count, seed, slices, cost_max)
    problem = make_problem(task, [each.high for each in expected])
    begin_s = process_time()
    rounded = round_covers(problem)
    rounded_s = process_time() - begin_s
    sizes = {claim: every_size(problem, claim) for claim in range(count)}
    begin_s = process_time()
    found = solve_exact(problem, sizes, Left(problem.kinds.count, problem.cost_max), NODES_MAX)
    program_s = process_time() - begin_s
    gap = _gap(problem, rounded, rounded.replicas)
    program_gap = inf if found is None else _gap(problem, rounded, found)
    return f"{name:16} {rounded_s:10.3f} {gap:9.1%} {program_s:9.1f} {program_gap:9.1%}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", type=int, default=3_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--program", action="store_true", help="compare with the integer program alone")
    asked = parser.parse_args()
    if asked.program:
        print(f"{asked.models:5} models  rounding s       gap program s       gap")
        for name, slices, cost_max in ROWS:
            print(compare(name, asked.models, asked.seed, slices, cost_max), flush=True)
        return
    print(f"{asked.models:5} models    seconds        gap  replicas   an hour   shed  lacking")
    for name, slices, cost_max in ROWS:
        print(measure(name, asked.models, asked.seed, slices, cost_max), flush=True)


if __name__ == "__main__":
    main()
