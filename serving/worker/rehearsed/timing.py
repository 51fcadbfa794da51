"""How long rehearsed batches take: what the profile says, and what the entry of `devices:` adds to that.

All randomness of a slice comes from the seed, its name, and how often its worker was started.
"""

from collections.abc import Callable, Sequence
from math import ceil, exp, inf, log, sqrt
from random import Random
from typing import Final

from serving.profile.derived.latency import Latency
from serving.values.disturbance import ends_us, paces_of, read_disturbances
from serving.values.rehearsal import RehearsalSpec
from serving.worker.rehearsed.neighbours import Key, Neighbours

NO_COST: Final = Neighbours((), "")
OUTLIER_FACTOR: Final = 10.0
"""As `penstock simulate --outliers` has it."""


class Pace:
    """One life of one slice: its noise, its stalls and its end, drawn as time goes on.

    `neighbours` returns what the other slices of the device compute at the moment, by model and variant;
    `cost` says what the co-runs of the profiles tell of that.
    """

    def __init__(
        self,
        spec: RehearsalSpec,
        name: tuple[str, int],
        begun_us: int,
        neighbours: Callable[[], Sequence[Key]] = lambda: (),
        cost: Neighbours = NO_COST,
    ) -> None:
        """Create a pace. `name`: the slice, and which of its lives this is."""
        self._spec = spec
        self._begun_us = begun_us
        self._neighbours = neighbours
        self._cost = cost
        self._noise = _drawn("noise", spec.seed, name)
        self._faults = _drawn("faults", spec.seed, name)
        self._sigma = sqrt(log(1 + spec.noise**2))
        self.lost_us = begun_us + self._gap_us(spec.crash_every_s)
        self._stall_us = begun_us + self._gap_us(spec.stall_every_s)
        disturbed = read_disturbances(spec.disturb) if spec.disturb else ()
        ordered = sorted(disturbed, key=lambda each: each.at_s)
        self._paces = paces_of(ordered, _drawn("others", spec.seed, name))

    def work_us(self, latency: Latency, rows: int, size: int) -> int:
        """Return the microseconds of compute that a batch takes which begins now, beside its neighbours."""
        took_us = latency.predict_us(rows, size)
        if self._sigma:
            took_us *= exp(self._sigma * self._noise.gauss(0.0, 1.0))
        if self._spec.outliers and self._noise.random() < self._spec.outliers:
            took_us *= OUTLIER_FACTOR
        if self._spec.interference or self._cost:
            profile, others = latency.profile, self._neighbours()
            took_us *= 1 + self._spec.interference * len(others)
            took_us *= self._cost.factor((profile.model, profile.variant), others)
        return max(ceil(took_us), 1)

    def ends_us(self, start_us: int, work_us: int) -> int:
        """Return when so much work is done that starts then; instants are asked for in ascending order."""
        begun_us = self._begun_us
        end_us = begun_us + round(ends_us(self._paces, start_us - begun_us, work_us))
        length_us = self._spec.stall_s * 1e6
        while self._stall_us < end_us:
            if (over_us := self._stall_us + length_us) > start_us:
                end_us += round(over_us - max(self._stall_us, start_us))
            self._stall_us = over_us + self._gap_us(self._spec.stall_every_s)
        return end_us

    def _gap_us(self, mean_s: float) -> float:
        return self._faults.expovariate(1 / mean_s) * 1e6 if mean_s else inf


def _drawn(what: str, seed: int, name: tuple[str, int]) -> Random:
    return Random(f"{seed} {what} {name[0]} {name[1]}")  # noqa: S311  # it guards nothing
