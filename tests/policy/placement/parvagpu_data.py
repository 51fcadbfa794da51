"""ParvaGPU's A100 profiles and six scenarios (SC 2024; MunQ-Lee/ParvaGPU_SC24, MIT) as placement problems,
and generated demands of the same form, which need no data."""

import csv
import os
import random
from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest

from serving.policy.placement.geometry import MigProfile
from serving.policy.placement.problem import Demand, Device, Instances, Option, Pool
from serving.specs import Share

SCENARIOS = (1, 2, 3, 4, 5, 6)
COMMITTED = (2, 3, 5, 7, 13, 16)
"""GPUs that ParvaGPU's own maps use, by scenario."""
KIND = "a100"
SLICES = 7
GEOMETRY = (
    MigProfile(19, "1g.10gb", (0, 1, 2, 3, 4, 5, 6), 1, 7, 9.5, 14),
    MigProfile(14, "2g.20gb", (0, 2, 4), 2, 3, 19.5, 28),
    MigProfile(9, "3g.40gb", (0, 4), 4, 2, 39.25, 42),
    MigProfile(5, "4g.40gb", (0,), 4, 1, 39.25, 56),
    MigProfile(0, "7g.80gb", (0,), 8, 1, 78.75, 98),
)
"""Of an A100 with 80 GB (MIG user guide)."""
SHARES = {share.amount: share for share in (Share.parse(f"mig:{each.name}") for each in GEOMETRY)}

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
    devices = tuple(Device(f"gpu{place}") for place in range(count))
    return Pool(KIND, KIND, Instances(GEOMETRY), devices)


def surfaces(folder: Path) -> Options:
    """What was measured: for each model an option for each size of instance and number of processes.

    The throughput there is one process's, 0 where memory ran out, and the latency is rounded to milliseconds:
    so it is rows / throughput here. Where a larger batch was measured faster, the smaller one takes as long:
    it could be padded.
    """
    return {file.stem: tuple(_options(file)) for file in sorted((folder / "prof_data").glob("*.csv"))}


def demands(folder: Path, scenario: int, streams_max: int = 5) -> tuple[Demand, ...]:
    """The models of one of the six scenarios, with at most so many processes on an instance."""
    rates, slos = (
        list(csv.reader((folder / "SLO" / name).read_text().splitlines()))[scenario - 1]
        for name in ("SLO_req_rate.csv", "SLO_latency.csv")
    )
    return tuple(
        Demand(model, float(rate), float(slo) * 1000, within(options, streams_max))
        for (model, options), rate, slo in zip(surfaces(folder).items(), rates, slos, strict=True)
        if rate != "N/A"
    )


def within(options: tuple[Option, ...], streams_max: int) -> tuple[Option, ...]:
    """Those with at most so many batches at once."""
    return tuple(each for each in options if each.streams <= streams_max)


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


def _options(file: Path) -> Iterator[Option]:
    measured: dict[tuple[float, int], list[tuple[int, float]]] = {}
    for amount, rows, count, rate, _ in list(csv.reader(file.read_text().splitlines()))[1:]:
        if float(rate):
            points = measured.setdefault((float(amount), int(count)), [])
            points.append((int(rows), int(rows) * 1e6 / float(rate)))
    for (size, processes), points in sorted(measured.items()):
        yield _option(size, processes, points)


def _option(size: float, processes: int, points: list[tuple[int, float]]) -> Option:
    least_us = inf
    curve = []
    for rows, latency_us in sorted(points, reverse=True):
        least_us = min(least_us, latency_us)
        curve.append((rows, least_us))
    return Option(KIND, SHARES[size], "fp32", tuple(curve[::-1]), streams=processes)


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
                found.append(_option(size, processes, points))
    return tuple(found)
