"""How many GPUs solvers of placement need, and how long they take, on one core.

python -m loadtests.placing.placement [--data DIR] [--json FILE]

`DIR/parvagpu`: ParvaGPU's profiles and scenarios ($PENSTOCK_DATA by default); without them models are drawn,
and the scenarios left out. `bound`: of the linear relaxation; `whole`: what whole replicas on instances of
their own need at least. A star: that there are none fewer is proved.
"""

import argparse
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from time import process_time

from loadtests.placing import fleets
from loadtests.virtual.baselines import first_fit, mig_serving, parvagpu
from serving.policy.placement.formulation.bundling import carries
from serving.policy.placement.solvers.exact import solve_exact
from serving.policy.placement.solvers.rounding import price_and_round, round_prices
from serving.policy.placement.terms.plan import Draft
from serving.policy.placement.terms.problem import PlacementProblem

SEED = 7
SIZES = ((100, 300.0), (300, 1_000.0), (1_000, 3_000.0), (1_000, 10_000.0), (3_000, 10_200.0))
"""Demands, and devices by the linear relaxation."""
SCENARIO_DEVICES = 30
DRAWN = 11
MORE = 1.5
"""Devices there are, times those of the relaxation."""
LIMIT_S = 20.0
EXACT_MAX = 300
SLOW_MAX = 1_000

Solve = Callable[[PlacementProblem], Draft | None]


@dataclass(frozen=True, slots=True)
class Result:
    """Devices that a solver needs, whether fewer are proved not to do, and the seconds that it took."""

    devices: int
    proved: bool
    seconds: float


@dataclass(frozen=True, slots=True)
class Line:
    """A problem and what came of it, by solver."""

    name: str
    bound: float
    whole: float
    results: Mapping[str, Result]


def exact(problem: PlacementProblem) -> Draft | None:
    """Return the integer program."""
    return solve_exact(problem, {}, LIMIT_S)


SOLVERS: Mapping[str, tuple[Solve, int]] = {
    "exact": (exact, EXACT_MAX),
    "price-and-round": (price_and_round, 10**9),
    "ParvaGPU": (parvagpu.solve, 10**9),
    "first fit": (first_fit.solve, 10**9),
    "MIG-Serving": (mig_serving.solve, SLOW_MAX),
}
"""With the most demands that they are asked for."""


def measure(name: str, problem: PlacementProblem) -> Line:
    """Return all solvers that are not too slow for it. ValueError where one carries less than is asked."""
    draft, whole = round_prices(problem)
    results = {}
    for solver, (solve, most) in SOLVERS.items():
        if len(problem.demands) > most:
            continue
        begin_s = process_time()
        found = solve(problem)
        took_s = process_time() - begin_s
        if found is not None and not carries(problem, found.bundles):
            raise ValueError(f"{name}: {solver} does not carry all demands")
        if found is not None:
            results[solver] = Result(len(found.bundles), found.optimal, took_s)
    return Line(name, draft.bound, whole, results)


def problems(data: Path | None) -> Iterator[tuple[str, PlacementProblem]]:
    """Yield the scenarios of the data, if there are any, and large fleets of its models, or of drawn ones."""
    folder = data / "parvagpu" if data else None
    if folder:
        for processes_max in (3, 5):
            for number in fleets.SCENARIOS:
                demands = fleets.scenario(folder, number, processes_max)
                yield f"S{number}, {processes_max} processes", fleets.fleet(demands, SCENARIO_DEVICES)
    models = fleets.measured(folder) if folder else fleets.drawn(SEED, DRAWN)
    models = {name: [each for each in options if each.processes <= 3] for name, options in models.items()}
    for count, devices in SIZES:
        demands = fleets.large(SEED, count, devices, models)
        yield f"{count} demands", fleets.fleet(demands, int(MORE * devices))


def heading() -> str:
    """Return the heading of the table."""
    return f"{'':15} {'bound':>9} {'whole':>6} " + " ".join(f"{solver:>24}" for solver in SOLVERS)


def row(line: Line) -> str:
    """Return a row: for each solver the devices, with a star if proved, how far they are over the bound, and
    its seconds."""
    cells = [_cell(line, line.results.get(solver)) for solver in SOLVERS]
    return f"{line.name:15} {line.bound:9.1f} {line.whole:6.0f} " + " ".join(cells)


def _cell(line: Line, result: Result | None) -> str:
    if result is None:
        return f"{'-':>24}"
    star = "*" if result.proved else " "
    return f"{result.devices:8}{star} {result.devices / line.bound - 1:+6.1%} {result.seconds:6.2f} s"


def main() -> int:
    """Print the table and return 0. Raises ValueError if a solver is at fault."""
    asked = _arguments()
    if asked.data is None:
        print("no --data and no $PENSTOCK_DATA: drawn models instead of measured ones, no scenarios")
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    print(heading())
    lines = []
    for name, problem in problems(asked.data):
        lines.append(measure(name, problem))
        print(row(lines[-1]), flush=True)
    if asked.json is not None:
        asked.json.write_text(json.dumps([asdict(line) for line in lines]) + "\n")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m loadtests.placing.placement", description=(__doc__ or "").split("\n")[0]
    )
    default = os.environ.get("PENSTOCK_DATA")
    parser.add_argument(
        "--data", type=Path, default=Path(default) if default else None, help="with parvagpu/"
    )
    parser.add_argument("--json", type=Path, help="write the figures there too")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
