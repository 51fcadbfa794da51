"""Surfaces for tests: measured ones of ParvaGPU, and generated ones of the same form."""

import csv
import random
from collections.abc import Iterable
from math import exp
from pathlib import Path

from serving.profile.derived.surface import Place, Surface

AMOUNTS = (1.0, 2.0, 3.0, 4.0, 7.0)
"""Compute slices of an A100's MIG instances."""
ROWS = tuple(1 << power for power in range(8))

Measured = dict[Place, float]
"""Latency in microseconds by amount and rows."""


def parvagpu(file: Path, processes: int = 1) -> Measured:
    """An A100 profile of ParvaGPU (SC 2024); 0 stands there for what ran out of memory.

    Throughput is a process's, and more precise than the latency, which is rounded to milliseconds.
    """
    with file.open(newline="") as lines:
        table = [
            (float(size), int(rows), int(count), float(rate)) for size, rows, count, rate, _ in _body(lines)
        ]
    return {
        (size, rows): rows * 1e6 / rate for size, rows, count, rate in table if count == processes and rate
    }


def _body(lines: Iterable[str]) -> list[list[str]]:
    return list(csv.reader(lines))[1:]


def generated(seed: int, noise: float = 0.02) -> Measured:
    """A model whose batches take the longer of a fixed time (kernels that cannot fill the share) and the time
    of its rows, with a soft corner, measured with noise; large batches do not fit on small shares."""
    draw = random.Random(seed)
    fixed_us, row_us = draw.lognormvariate(9.0, 0.6), draw.lognormvariate(7.8, 0.8)
    corner, rows_max = draw.uniform(2, 6), 1 << draw.randint(4, 8)
    return {
        (amount, rows): (fixed_us**corner + (row_us * rows / amount) ** corner) ** (1 / corner)
        * exp(draw.gauss(0, noise))
        for amount in AMOUNTS
        for rows in ROWS
        if rows <= rows_max * amount
    }


def surface(measured: Measured, kind: str = "mig") -> Surface:
    """All points of the same weight."""
    return Surface.through(kind, {place: (latency_us, 1.0) for place, latency_us in measured.items()})
