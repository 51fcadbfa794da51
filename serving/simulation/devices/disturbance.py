"""A simulated device whose slices others disturb (`serving.values.disturbance`)."""

from collections.abc import Sequence

import numpy as np

from serving.scheduler.commands import RunBatch
from serving.simulation.devices.device import BatchDevice, BatchTimes
from serving.values.disturbance import Disturbance, Pace, check_apart, ends_us, paces_of


class DisturbedDevice:
    """A device with slices that others disturb. Each slice has stops of its own, drawn from `seed`."""

    def __init__(self, device: BatchDevice, disturbances: Sequence[Disturbance], seed: int) -> None:
        """Take the disturbances. Raises ValueError if two of them overlap."""
        check_apart(disturbances)
        self._device = device
        self._disturbances = sorted(disturbances, key=lambda each: each.at_s)
        self._seed = seed
        self._paces: dict[str, list[Pace]] = {}  # by slice
        self._computed_us: dict[str, float] = {}  # by slice: when its latest batch has been computed

    def take(self, batch: RunBatch, start_us: int, running: int) -> BatchTimes:
        """See `BatchDevice`. A batch that was sent ahead starts when the one before it has been computed."""
        took = self._device.take(batch, start_us, running)
        way_us = took.elapsed_us - took.compute_us
        starts_us = start_us + way_us / 2
        if batch.staged:
            starts_us = max(starts_us, self._computed_us.get(batch.slice, 0.0))
        ends_us = self._ends_us(batch.slice, starts_us, took.compute_us)
        self._computed_us[batch.slice] = ends_us
        compute_us = max(round(ends_us - starts_us), took.compute_us)
        return BatchTimes(compute_us, compute_us + way_us)

    def _ends_us(self, name: str, start_us: float, work_us: float) -> float:
        """Return when that work has been computed."""
        paces = self._paces.get(name)
        if paces is None:
            rng = np.random.default_rng([self._seed, 2, len(self._paces)])
            paces = self._paces[name] = paces_of(self._disturbances, rng)
        return ends_us(paces, start_us, work_us)
