"""Profiled capacity: the highest rate that keeps an SLO on one slice, as its profile says.

One definition for all that name it (`penstock profile`, `place`, `simulate`, `explain`). A request that just
missed a batch waits for that one and then for its own, so two batches must fit: 2 l(b) <= SLO (Nexus, SOSP
2019). Of the batches that do, the one that carries most counts. That need not be the largest: where caches
or a library's kernels do not suffice, a row of a larger batch takes longer. Latencies are typical ones
(medians), of a model that is alone on the slice, and the slice is never idle.
"""

from collections.abc import Callable
from dataclasses import dataclass

from serving.profile.derived.latency import Latency

FITTING = 0.5
"""Of the SLO, what a batch may take."""
_NEAR = 1e-9  # relative: of batches that carry as much the largest is taken, whatever the rounding


@dataclass(frozen=True, slots=True)
class ProfiledCapacity:
    """`rate`: rows a second in batches of `rows`; each batch takes `latency_us`."""

    rows: int
    latency_us: float
    rate: float


def carried(
    latency: Latency, slo_us: float, rows_max: int, size: int = 0, factor: float = 1.0
) -> ProfiledCapacity | None:
    """Return what a slice carries within `slo_us` microseconds, in measured batches of up to `rows_max` rows
    of `size`; None where not one row is computed within half of it. `factor`: what batches take over the
    profile."""
    fitting = min(latency.rows_in(slo_us * FITTING / factor, size), latency.rows_measured(size), rows_max)
    return most(1, fitting, lambda rows: latency.predict_us(rows, size) * factor)


def most(least: int, fitting: int, took_us: Callable[[int], float]) -> ProfiledCapacity | None:
    """Return the batch of `least` to `fitting` rows that carries most; None where there is none."""
    best: ProfiledCapacity | None = None
    for rows in range(least, fitting + 1):
        latency_us = took_us(rows)
        rate = rows * 1e6 / latency_us
        if best is None or rate >= best.rate * (1 - _NEAR):
            best = ProfiledCapacity(rows, latency_us, rate)
    return best
