"""First fit decreasing (Johnson, 1973): the largest replica first, each on the first device that has room.

Each rate becomes copies of the replica that carries most for its size, and a smaller one for the rest.

On devices divided by amounts, room is also memory. There, all replicas also have to keep their SLOs and carry
what they should while the others compute.
"""

from collections.abc import Sequence

from loadtests.virtual.baselines.colocated import ColocatedPart, first_fit
from loadtests.virtual.baselines.filling import Filling
from loadtests.virtual.baselines.pools import each_pool, offers
from loadtests.virtual.baselines.segments import alone, cover
from loadtests.virtual.baselines.squishy import Session
from serving.policy.placement.terms.geometry import Multiset
from serving.policy.placement.terms.plan import Draft, Slot
from serving.policy.placement.terms.problem import Instances, PlacementProblem, Pool


def solve(problem: PlacementProblem) -> Draft:
    """Return a draft on pools of any kind."""
    return each_pool(problem, "first_fit", _pack)


def _pack(problem: PlacementProblem, pool: Pool) -> Sequence[tuple[Slot, ...]]:
    replicas = [
        (demand, offer, rate)
        for demand in problem.demands
        for offer, rate in cover(demand, offers(pool, demand))
    ]
    replicas.sort(key=lambda each: -each[1].option.share.amount)
    if not isinstance(pool.division, Instances):
        parts = [
            ColocatedPart(offer.option.share, (Session(demand, offer.option, rate),))
            for demand, offer, rate in replicas
        ]
        return first_fit(pool, parts)
    gpus = Filling(pool.division.geometry, len(pool.devices))
    for demand, offer, _ in replicas:
        gpus.place(alone(demand.model, offer), _first)
    return [tuple(slots) for slots in gpus.devices if slots]


def _first(index: int, _: Multiset) -> tuple[float, ...]:
    return (index,)
