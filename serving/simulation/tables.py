"""What n replicas of a variant carry, off one queue: the live scheduler in virtual time, at rates that are
searched by bisection.

One queue before several replicas carries more than as many queues before one each (pooling, Erlang 1917),
and bursts carry less than a steady stream. Neither follows from a profile by a formula once requests are
batched (`docs/autoscaling.md`), so it is played out.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import exp, log, sqrt
from statistics import median

import numpy as np

from serving.control.commands import FindCapacity
from serving.policy.scaling.carried.capacity import Capacity
from serving.policy.scaling.carried.guess import guess
from serving.profile.curve import Profile, isotonic
from serving.profile.derived.latency import Latency
from serving.simulation.devices.device import NoisyDevice, Physics, truths_of
from serving.simulation.devices.site import Site, SiteReplica
from serving.simulation.engine import Simulation
from serving.simulation.traffic.arrivals import Arrival
from serving.simulation.traffic.patterns import RateStep, draw
from serving.values.objectives import Needs
from serving.values.specs import Limits, ServedModel

COUNTS = (1, 2, 4, 8, 16)
CVS = (1.0, 2.0, 4.0, 8.0)
REQUESTS = 2_500
"""Of a run at CV 1: at the 99th percentile 25 may be late. Bursts come in as many fewer, larger lumps."""
SLOS = 30
"""A run lasts at least so many SLOs: what comes beyond capacity in a shorter one finds room in the queue."""
REQUESTS_MAX = 12_000
GRAIN = 0.04  # of a rate at CV 1: how closely it is searched
STRIDE = 1.25  # from a rate to the next until the one sought lies between two
GLANCE = 100  # arrivals after which a run that has failed already is ended
LEAST = 0.05  # of what replicas compute without a pause: below it they carry nothing
SEED = 10
_P95 = 1.645  # standard deviations of a normal distribution
_UNBOUNDED = Limits(queue_requests=1_000_000, queue_rows=1_000_000)


def find_capacity(asked: FindCapacity) -> Iterator[Capacity]:
    """Yield a table after each of its rows, what has not been simulated yet by guess; the last is complete.

    Requests are of one row, of a middling size where rows have sizes; a batch takes what the profile says,
    with the spread that was measured with it. All rates of a CV are tried with the same arrivals, nearer
    together or further apart, so a higher one is never served better by luck. The table is made such that
    n replicas carry no less each than fewer do, and no more where gaps vary more.
    """
    trial = _Trial(asked)
    counts = tuple(count for count in COUNTS if count == 1 or count <= asked.most)
    guessed = guess(asked.profile, asked.model)
    rows: list[tuple[float, ...]] = []
    for cv in CVS:
        rows.append(_row(trial, cv, counts, rows[-1] if rows else None))
        left = [
            _within(rows[-1], [guessed.rate(count, other) for count in counts]) for other in CVS[len(rows) :]
        ]
        yield Capacity(counts, CVS, (*rows, *left), guessed=bool(left))


def _row(
    trial: "_Trial", cv: float, counts: Sequence[int], above: Sequence[float] | None
) -> tuple[float, ...]:
    """Return the row of one CV. `above`: the row of the next smaller CV."""
    found: list[float] = []
    for place, count in enumerate(counts):
        most = trial.most(count) if above is None else above[place]
        like_fewer = found[-1] * count / counts[place - 1] if found else 0.0
        found.append(trial.rate(count, cv, like_fewer or most / STRIDE**2, most))
    each = isotonic([rate / count for rate, count in zip(found, counts, strict=True)], [1.0] * len(counts))
    level = [rate * count for rate, count in zip(each, counts, strict=True)]
    return tuple(level) if above is None else _within(above, level)


def _within(above: Sequence[float], rates: Sequence[float]) -> tuple[float, ...]:
    return tuple(min(pair) for pair in zip(above, rates, strict=True))


class _Trial:
    """Runs of one variant at given rates."""

    def __init__(self, asked: FindCapacity) -> None:
        profile, model = asked.profile, asked.model
        self._latency = Latency(profile)
        sizes = [*profile.curves()]
        self._size = sizes[len(sizes) // 2]
        self._variant = asked.variant
        self._served = _alone(model, asked.variant)
        self._aim = model.own.percentile / 100
        self._physics = Physics(noise=spread(profile))
        fitting = self._latency.rows_within(model.own.slo_us, self._size)
        self._row_us = min(
            self._latency.predict_us(rows, self._size) / rows
            for rows in range(1, min(fitting, model.spec.batch_max) + 1)
        )
        self._arrivals: dict[float, list[float]] = {}

    def most(self, count: int) -> float:
        """Return the rows a second that `count` replicas compute without a pause."""
        return count * 1e6 / self._row_us

    def rate(self, count: int, cv: float, start: float, most: float) -> float:
        """Return the highest rate below `most` that is answered in time, searched from `start` on; 0 where
        not even a small part of `most` is."""
        low, high, rate, stride = 0.0, most, min(start, most), STRIDE
        while high > max(low * (1 + GRAIN * sqrt(cv)), most * LEAST):
            if self._is_carried(count, cv, rate):
                low = rate
            else:
                high = rate
            rate = min(low * stride, sqrt(low * high)) if low else high / stride
            stride *= STRIDE
        return low

    def _is_carried(self, count: int, cv: float, rate: float) -> bool:
        served = replace(self._served, slices=tuple(f"s{place}" for place in range(count)))
        residents = tuple(
            SiteReplica(name, served.name, self._variant, self._latency) for name in served.slices
        )
        device = NoisyDevice(truths_of(residents), self._physics, SEED)
        run = Simulation(Site((served,), residents, limits=_UNBOUNDED, learned=True), device)
        wanted = int(min(max(REQUESTS * sqrt(cv), SLOS * rate * served.slo_us / 1e6), REQUESTS_MAX))
        bad_max = int(wanted * (1 - self._aim))
        run.play(self._offer(run, cv, wanted, 1e6 / rate, bad_max))
        return run.tally.offered - run.tally.good <= bad_max

    def _offer(
        self, run: Simulation, cv: float, wanted: int, gap_us: float, bad_max: int
    ) -> Iterator[Arrival]:
        """Yield arrivals, until it is certain that too many are not answered in time."""
        for start in range(0, wanted, GLANCE):
            if run.tally.offered - run.tally.good - run.scheduler.open_requests > bad_max:
                return
            for at in self._unit(cv)[start : min(start + GLANCE, wanted)]:
                yield Arrival(int(at * gap_us) + 1, 0, size=self._size)

    def _unit(self, cv: float) -> list[float]:
        """Return arrivals at a rate of 1."""
        if cv not in self._arrivals:
            steps = [RateStep(1.0, REQUESTS_MAX * 1.5)]
            self._arrivals[cv] = draw(steps, cv, np.random.default_rng([SEED, int(cv * 100)])).tolist()
        return self._arrivals[cv]


def _alone(model: ServedModel, variant: str) -> ServedModel:
    """Return the model with that variant as its only one; its other promises stay."""
    own = Needs(slo_us=model.own.slo_us, percentile=model.own.percentile, slo_rows=model.own.slo_rows or None)
    return replace(
        model, slo_us=model.own.slo_us, variants=(variant,), default_variant=variant, needs=own, tiers=(),
        selection=None, replicas=None,
    )  # fmt: skip


def spread(profile: Profile) -> float:
    """Return the coefficient of variation of a batch's latency, as if it were lognormal. It comes from the
    median ratio of p95 to p50 over the measured points; 0 if too few points give a ratio."""
    ratios = [point.p95_us / point.p50_us for point in profile.points if 0 < point.p50_us < point.p95_us]
    if len(ratios) * 2 < len(profile.points):
        return 0.0
    sigma = log(median(ratios)) / _P95
    return sqrt(exp(sigma**2) - 1)
