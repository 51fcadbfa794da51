"""What n replicas carry, from their profile alone: counted with until a simulation has filled the table."""

from serving.policy.placement.terms.pooling import SPARE
from serving.policy.scaling.carried.capacity import Capacity
from serving.profile.curve import Profile
from serving.values.specs import ServedModel

COUNTS = (1, 2, 4, 8, 16, 32)
CVS = (1.0, 2.0, 4.0, 8.0)
SIGMAS = 3.0
"""With which the bound below comes to what an M/D/n queue carries at its 99th percentile: 0.31 0.57 0.76 0.87
of its capacity for 1, 2, 4 and 8 servers with an SLO of three services (the queue: 0.22 0.54 0.75 0.87), 0.57
0.76 0.87 for 1, 2 and 4 with one of five (0.51 0.74 0.87). Fewer would promise more than there is."""
HOPELESS = 0.5
"""Of what is computed row by row, where not one row is computed within the SLO: more replicas keep no promise
then, but what is asked is to be answered."""


def guess(profile: Profile, served: ServedModel) -> Capacity:
    """Return a guess of the capacity. At each count it is by the batch that carries the most, of a middling
    size if rows have sizes."""
    curves = list(profile.curves().values())
    curve = curves[len(curves) // 2]
    slo_s = SPARE * served.own.slo_us / 1e6
    batches = [(rows, took_us / 1e6) for rows, took_us in zip(curve.rows, curve.latency_us, strict=True)]
    hopeless = carried(COUNTS[-1], CVS[0], batches, slo_s) <= 0
    single_s = curve.at(1) / 1e6
    return Capacity(
        COUNTS,
        CVS,
        tuple(
            tuple(HOPELESS * n / single_s if hopeless else carried(n, cv, batches, slo_s) for n in COUNTS)
            for cv in CVS
        ),
        guessed=True,
    )


def carried(count: int, cv: float, batches: list[tuple[int, float]], slo_s: float) -> float:
    """Return the rows a second that `count` replicas answer within `slo_s`, if the gaps have coefficient of
    variation `cv`.

    A request waits for the next start, one of `count` in a batch's time, and for its own batch
    (`placement/pooling.py`). The rest of the SLO is for the queue. n rows on average are at most n + SIGMAS *
    cv * sqrt(n) (a Brownian arrival curve). Take the window in which that is worst against the service curve.
    It is worked off in time while rho / (1 - rho) <= 4 * left * saturated / (SIGMAS * cv)^2.
    """
    best = 0.0
    for rows, took_s in batches:
        left_s = slo_s - took_s * (1 + 1 / count)
        if left_s > 0:
            saturated = count * rows / took_s
            odds = 4 * left_s * saturated / (SIGMAS * cv) ** 2
            best = max(best, saturated * odds / (1 + odds))
    return best
