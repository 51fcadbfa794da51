"""How long batches really take: profiles, and what profiles do not know.

All randomness comes from one seed, drawn in blocks: the same seed gives the same run, bit for bit.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import ceil, log, pi, sin, sqrt
from typing import NamedTuple, Protocol

import numpy as np

from serving.scheduler.commands import RunBatch
from serving.simulation.devices.site import SiteReplica

Place = tuple[str, str, str]
"""Slice, model, variant."""

Truth = Callable[[int, int], float]
"""(rows, size of the largest) -> microseconds of compute"""

_BLOCK = 4096  # draws at once: one at a time costs a microsecond


class BatchTimes(NamedTuple):
    """A batch computes for `compute_us`, as its worker will report, and is back after `elapsed_us`."""

    compute_us: int
    elapsed_us: int


class BatchDevice(Protocol):
    """What the simulator asks for each batch that starts."""

    def take(self, batch: RunBatch, start_us: int, running: int) -> BatchTimes:
        """Return how long a batch takes that starts beside `running` others."""
        ...


class ExactDevice:
    """Batches take what the truth says, and nothing else takes any time."""

    def __init__(self, truths: Mapping[Place, Truth]) -> None:
        """Take the `truths` by slice, model and variant."""
        self._truths = truths

    def take(self, batch: RunBatch, start_us: int, running: int) -> BatchTimes:  # noqa: ARG002  a Device
        """See `BatchDevice`."""
        took_us = ceil(self._truths[batch.slice, batch.model, batch.variant](batch.rows, batch.size))
        return BatchTimes(took_us, took_us)


@dataclass(frozen=True, slots=True)
class Physics:
    """How a device departs from its profile.

    `noise`: coefficient of variation of a batch's latency (lognormal, median 1). `drift`: latencies swing by
    this share over `drift_period_s`, as with clocks and temperature. `interference`: each other busy slice
    makes a batch longer by this share. `outlier_share` of batches take `outlier_factor` times as long.
    `overhead_us`: from dispatch to worker and back, beside the compute.
    """

    noise: float = 0.0
    drift: float = 0.0
    drift_period_s: float = 60.0
    interference: float = 0.0
    outlier_share: float = 0.0
    outlier_factor: float = 10.0
    overhead_us: int = 0

    def __post_init__(self) -> None:
        if not (self.noise >= 0 and 0 <= self.drift < 1 and self.drift_period_s > 0):
            raise ValueError("noise must be at least 0, drift within 0..1 and its period above 0 s")
        if not (self.interference >= 0 and 0 <= self.outlier_share <= 1 and self.overhead_us >= 0):
            raise ValueError("interference and overhead must be at least 0, the outliers' share within 0..1")


class NoisyDevice:
    """Batches take what `physics` makes of the truth."""

    def __init__(self, truths: Mapping[Place, Truth], physics: Physics, seed: int) -> None:
        self._truths = truths
        self._physics = physics
        self._factors = _noise(physics, np.random.default_rng([seed, 1]))

    def take(self, batch: RunBatch, start_us: int, running: int) -> BatchTimes:
        """See `BatchDevice`."""
        physics = self._physics
        took_us = self._truths[batch.slice, batch.model, batch.variant](batch.rows, batch.size) * next(
            self._factors
        )
        if physics.drift:
            took_us *= 1 + physics.drift * sin(2 * pi * start_us / (physics.drift_period_s * 1e6))
        took_us *= 1 + physics.interference * running
        compute_us = max(ceil(took_us), 1)
        return BatchTimes(compute_us, compute_us + physics.overhead_us)


def truths_of(residents: Iterable[SiteReplica]) -> dict[Place, Truth]:
    """Return what the residents' profiles say."""
    return {(each.slice, each.model, each.variant): each.latency.predict_us for each in residents}


def _noise(physics: Physics, rng: np.random.Generator) -> Iterator[float]:
    sigma = sqrt(log(1 + physics.noise**2))
    while True:
        factors = np.exp(sigma * rng.standard_normal(_BLOCK))
        outliers = rng.random(_BLOCK) < physics.outlier_share
        yield from np.where(outliers, factors * physics.outlier_factor, factors).tolist()
