"""ParvaGPU's A100 profiles and six scenarios (SC 2024; MunQ-Lee/ParvaGPU_SC24, MIT) as placement problems,
and generated demands of the same form, which need no data."""

import os
import random
from collections.abc import Mapping
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest

from loadtests.placing import fleets
from loadtests.placing.fleets import KIND, SCENARIOS, SHARES, make_option, within
from serving.policy.placement.terms.geometry import A100_80
from serving.policy.placement.terms.problem import Demand, Instances, Option, PlacementDevice, Pool

__all__ = ["COMMITTED", "SCENARIOS", "data_folder", "demands", "generated", "pool", "surfaces", "within"]

COMMITTED = (2, 3, 5, 7, 13, 16)
"""GPUs that ParvaGPU's own maps use, by scenario."""
SLICES = 7
GEOMETRY = tuple(each for each in A100_80 if each.name != "1g.20gb")
"""Without the instance of double memory, of which ParvaGPU knows nothing."""

Options = Mapping[str, tuple[Option, ...]]
"""By model."""


def data_folder() -> Path:
    """$PENSTOCK_DATA/parvagpu; skips the test where that is not there."""
    data = os.environ.get("PENSTOCK_DATA")
    if not data:
        pytest.skip("PENSTOCK_DATA names no folder with data (parvagpu/prof_data/*.csv)")
    folder = Path(data) / "parvagpu"
    if not (folder / "prof_data").is_dir():
        pytest.skip(f"{data} has no parvagpu/prof_data")
    return folder


def pool(count: int) -> Pool:
    """So many A100s of 80 GB, to be divided into MIG instances."""
    devices = tuple(PlacementDevice(f"gpu{place}") for place in range(count))
    return Pool(KIND, KIND, Instances(GEOMETRY), devices)


def surfaces(folder: Path) -> Options:
    """What was measured: for each model an option for each size of instance and number of processes."""
    return {model: tuple(options) for model, options in fleets.measured(folder).items()}


def demands(folder: Path, scenario: int, processes_max: int = 5) -> tuple[Demand, ...]:
    """The models of one of the six scenarios, with at most so many processes on an instance."""
    return fleets.scenario(folder, scenario, processes_max)


def generated(
    seed: int, count: int, total_gpus: float | None = None, profiles: Options | None = None
) -> tuple[Demand, ...]:
    """Demands for `count` models with Pareto(1.2) rates; of `profiles`, models drawn from them, else of
    generated ones.

    SLOs are 3 to 20 times what a row takes alone on a whole device. `total_gpus`: rates are scaled so that
    the best offers would fill so many devices if instances could be cut to measure.
    """
    draw = random.Random(seed)
    found = []
    for place in range(count):
        options = draw.choice(list(profiles.values())) if profiles else _drawn(draw)
        alone_us = min(each.curve[0][1] for each in options)
        slo_us = alone_us * 3 * (20 / 3) ** draw.random()
        found.append(Demand(f"model{place:04}", 50 * draw.paretovariate(1.2), slo_us, options))
    if total_gpus is None:
        return tuple(found)
    scale = total_gpus / sum(_least_gpus(each) for each in found)
    return tuple(replace(each, rate=each.rate * scale) for each in found)


def _least_gpus(demand: Demand) -> float:
    slices = min((each.option.share.amount / each.throughput for each in demand.offers), default=inf)
    return demand.rate * slices / SLICES


def _drawn(draw: random.Random) -> tuple[Option, ...]:
    """A model whose batches take a fixed time and that of their rows, for which up to `wide` slices are of
    use and each further one of less; one to three processes hide some of the fixed time from each other, and
    large batches do not fit into small instances."""
    fixed_us, row_us = draw.lognormvariate(8.6, 0.5), draw.lognormvariate(7.6, 0.8)
    wide, bend, rows_max = draw.uniform(2, 7), draw.uniform(0.7, 1.0), 1 << draw.randint(3, 6)
    found = []
    for size in SHARES:
        speed = min(size, wide) ** bend * (1 + 0.05 * max(0.0, size - wide))
        for processes in (1, 2, 3):
            points = []
            for rows in (1, 2, 4, 8, 16, 32, 64, 128):
                if rows * processes <= rows_max * size:
                    computing_us = row_us * rows / speed
                    points.append((rows, max(fixed_us + computing_us, computing_us * processes)))
            if points:
                found.append(make_option(size, processes, points))
    return tuple(found)
