"""What variants cost each other when they run on one device at the same time, from measured co-runs.

The model is Bubble-Up's (J. Mars et al., MICRO 2011): how much a tenant presses on what it shares with others
(caches, memory bandwidth, power) is one number, how sensitive it is to that another, so that all pairs follow
from a few. Here slowdown = 1 + sensitivity(tenant) * sum of pressure(others), and never less than 1.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import log

import numpy as np

from serving.profile.derived.nonnegative import Floats, nonnegative_least_squares
from serving.profile.files.corun import CoRun, Tenant

ROUNDS = 200
SETTLED = 1e-10


@dataclass(frozen=True, slots=True)
class Slowdown:
    """The fitted model; the pressures' mean is 1, so that a sensitivity is the cost of a usual neighbour.

    `residuals`: measured over fitted slowdown, in the order of the runs.
    """

    sensitivity: Mapping[Tenant, float]
    pressure: Mapping[Tenant, float]
    residuals: tuple[float, ...]

    @staticmethod
    def fit(runs: Sequence[CoRun]) -> "Slowdown":
        """Fit the model to the slowdowns by least squares, weighted by the runs' counts; no number is
        negative. Raises ValueError if there are no runs.

        The slowdown is linear in either kind of number if the other kind is known. So the fit finds the two
        in turn, each by non-negative least squares. (Alternating least squares; P. Paatero, U. Tapper,
        Environmetrics 5, 1994.)
        """
        if not runs:
            raise ValueError("a slowdown model needs at least one measured co-run")
        tenants = sorted({run.tenant for run in runs})
        others = sorted({other for run in runs for other in run.others})
        beside = np.array([[run.others.count(other) for other in others] for run in runs], dtype=np.float64)
        rows = np.array([tenants.index(run.tenant) for run in runs])
        extra = np.array([run.slowdown - 1 for run in runs])
        weights = np.array([float(run.count) for run in runs])
        sensitivity, pressure = _alternate(rows, beside, extra, weights)
        fitted = 1 + sensitivity[rows] * (beside @ pressure)
        return Slowdown(
            dict(zip(tenants, sensitivity.tolist(), strict=True)),
            dict(zip(others, pressure.tolist(), strict=True)),
            tuple(((extra + 1) / fitted).tolist()),
        )

    def factor(self, tenant: Tenant, others: Iterable[Tenant]) -> float:
        """Return how many times as long a batch takes beside `others`, at least 1.

        A tenant that was not measured is taken for the nearest of its variant (in share, size, rows). A
        tenant of a variant that was not measured is taken for the worst of all. A veto must not be blind to a
        tenant that it does not know.
        """
        pressure = sum(_known(self.pressure, other) for other in others)
        return 1 + _known(self.sensitivity, tenant) * pressure


def _alternate(rows: Floats, beside: Floats, extra: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Return the sensitivities by index and the pressures by column of `beside`. `rows`: the index of each
    run."""
    count = int(rows.max()) + 1
    pressure = np.ones(beside.shape[1])
    sensitivity = np.zeros(count)
    root = np.sqrt(weights)
    for _ in range(ROUNDS):
        overloaded = beside @ pressure
        gain = np.bincount(rows, weights * extra * overloaded, count)
        size = np.bincount(rows, weights * overloaded**2, count)
        before = sensitivity
        sensitivity = np.maximum(np.divide(gain, size, out=np.zeros(count), where=size > 0), 0.0)
        if not sensitivity.any():
            break
        pressure = nonnegative_least_squares(beside * (sensitivity[rows] * root)[:, None], extra * root)
        mean = float(pressure.mean())
        if not mean:
            break
        pressure, sensitivity = pressure / mean, sensitivity * mean
        if np.abs(sensitivity - before).max() < SETTLED * sensitivity.max():
            break
    return sensitivity, pressure


def _known(values: Mapping[Tenant, float], tenant: Tenant) -> float:
    """Return the value of that tenant, or of the measured one that stands for it."""
    if tenant in values:
        return values[tenant]
    name = (tenant.model, tenant.variant)
    akin = [each for each in values if (each.model, each.variant) == name]
    if not akin:
        return max(values.values(), default=0.0)
    nearest = min(_distance(each, tenant) for each in akin)
    return max(values[each] for each in akin if _distance(each, tenant) == nearest)


def _distance(one: Tenant, other: Tenant) -> tuple[bool, float, float, float]:
    """Return the distance of two tenants. Other kinds of share are furthest; then amounts, sizes and rows by
    their ratio."""
    pairs = (
        (one.share.amount, other.share.amount),
        (one.size + 1, other.size + 1),
        (one.rows, other.rows),
    )
    amount, size, rows = (abs(log(left / right)) for left, right in pairs)
    return one.share.kind != other.share.kind, amount, size, rows
