"""Placement problems to measure solvers by: the six scenarios of ParvaGPU (SC 2024), and large fleets.

ParvaGPU's profiles of 11 models on A100s (MunQ-Lee/ParvaGPU_SC24, MIT) are read from a folder with
`prof_data` and `SLO`; without it models are drawn.
"""

import csv
import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from serving.policy.placement.solvers.bound import lower_bound
from serving.policy.placement.terms.geometry import A100_80
from serving.policy.placement.terms.problem import (
    Demand,
    Instances,
    Option,
    PlacementDevice,
    PlacementProblem,
    Pool,
)
from serving.values.slice_specs import Share

SCENARIOS = (1, 2, 3, 4, 5, 6)
KIND = "a100"
SHARES = {
    share.amount: share
    for share in (
        Share.parse(f"mig:{name}") for name in ("1g.10gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb")
    )
}
ROWS = (1, 2, 4, 8, 16, 32, 64, 128)
SLO_FACTORS = 3.0, 20.0
"""SLOs of large fleets: times what a row takes alone."""
TAIL = 1.2
"""Of the Pareto distribution of their rates."""

Models = Mapping[str, Sequence[Option]]


def fleet(demands: Iterable[Demand], devices: int) -> PlacementProblem:
    """Return the problem of placing the demands on `devices` A100s of 80 GB, at a price of 1."""
    names = tuple(PlacementDevice(f"gpu{place}") for place in range(devices))
    return PlacementProblem(tuple(demands), (Pool(KIND, KIND, Instances(A100_80), names),))


def measured(folder: Path) -> Models:
    """Return the measured options, by size of instance and processes on it.

    The files give the throughput of one process, 0 if memory ran out. Their latency is rounded to
    milliseconds, so this uses rows / throughput instead.
    """
    found: dict[str, list[Option]] = {}
    for file in sorted((folder / "prof_data").glob("*.csv")):
        curves: dict[tuple[float, int], list[tuple[int, float]]] = defaultdict(list)
        for size, rows, processes, rate, _ in _rows(file)[1:]:
            if float(rate):
                curves[float(size), int(processes)].append((int(rows), int(rows) * 1e6 / float(rate)))
        found[file.stem] = [make_option(*key, points) for key, points in sorted(curves.items())]
    return found


def scenario(folder: Path, number: int, processes_max: int) -> tuple[Demand, ...]:
    """Return the demands of one of SCENARIOS, with at most `processes_max` processes on an instance."""
    rates, slos = (
        _rows(folder / "SLO" / name)[number - 1] for name in ("SLO_req_rate.csv", "SLO_latency.csv")
    )
    return tuple(
        Demand(model, float(rate), 1e3 * float(slo), within(options, processes_max))
        for (model, options), rate, slo in zip(measured(folder).items(), rates, slos, strict=True)
        if rate != "N/A"
    )


def drawn(seed: int, count: int) -> Models:
    """Draw `count` models that have use for a few slices. A batch takes a fixed time and a time for its rows.
    Up to three processes hide some of the fixed time from each other."""
    draw = random.Random(seed)
    found: dict[str, list[Option]] = {}
    for place in range(count):
        fixed_us, row_us = draw.lognormvariate(8.6, 0.5), draw.lognormvariate(7.6, 0.8)
        wide, bend = draw.uniform(2, 7), draw.uniform(0.7, 1.0)
        options = []
        for size in SHARES:
            each_us = row_us / (min(size, wide) ** bend * (1 + 0.05 * max(0.0, size - wide)))
            for processes in (1, 2, 3):
                points = [(rows, max(fixed_us + each_us * rows, each_us * rows * processes)) for rows in ROWS]
                options.append(make_option(size, processes, points))
        found[f"drawn{place}"] = options
    return found


def large(seed: int, count: int, devices: float, models: Models) -> tuple[Demand, ...]:
    """Draw `count` demands for models of these. Their rates have a heavy tail and come to `devices` devices
    by the linear relaxation."""
    draw = random.Random(seed)
    found = []
    for place in range(count):
        options = tuple(models[draw.choice(sorted(models))])
        alone_us = min(option.curve[0][1] for option in options)
        low, high = SLO_FACTORS
        slo_us = alone_us * low * (high / low) ** draw.random()
        found.append(Demand(f"model{place}", draw.paretovariate(TAIL), slo_us, options))
    factor = devices / lower_bound(fleet(found, 1_000 * count))
    return tuple(replace(each, rate=each.rate * factor) for each in found)


def within(options: Iterable[Option], processes_max: int) -> tuple[Option, ...]:
    """Return the options with at most `processes_max` processes."""
    return tuple(each for each in options if each.processes <= processes_max)


def _rows(file: Path) -> list[list[str]]:
    return list(csv.reader(file.read_text().splitlines()))


def make_option(size: float, processes: int, points: Sequence[tuple[int, float]]) -> Option:
    """Return an option on an instance of `size` slices; `points`: (rows, us). If a larger batch was faster, a
    smaller one takes as long: it could be padded."""
    least_us = float("inf")
    curve = []
    for rows, latency_us in sorted(points, reverse=True):
        least_us = min(least_us, latency_us)
        curve.append((rows, least_us))
    return Option(KIND, SHARES[size], "fp32", tuple(curve[::-1]), processes=processes)
