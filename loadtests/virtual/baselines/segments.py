"""A rate as whole replicas: copies of the most efficient one, and a smaller one for the rest.

ParvaGPU calls them segments (Lee et al., SC 2024: optimal triplet decision and demand matching).
"""

from collections.abc import Sequence
from math import ceil

from loadtests.virtual.baselines.pools import NEAR
from serving.policy.placement.terms.plan import PlacedReplica, Slot
from serving.policy.placement.terms.problem import Demand, Offer


def cover(demand: Demand, offers: Sequence[Offer]) -> list[tuple[Offer, float]]:
    """Return copies of the offer with the most throughput for its amount, each with what it has to carry.

    Of equal offers, the smallest is copied. The last copy is the smallest offer that carries the rest. The
    list is empty if nothing is asked or offered.
    """
    if not offers or demand.rate <= 0:
        return []
    best = max(
        offers, key=lambda each: (each.throughput / each.option.share.amount, -each.option.share.amount)
    )
    near = NEAR * demand.rate
    copies = max(0, ceil((demand.rate - near) / best.throughput) - 1)
    rest = demand.rate - copies * best.throughput
    enough = [each for each in offers if each.throughput >= rest - near or each is best]
    last = min(enough, key=lambda each: each.option.share)
    return [(best, best.throughput)] * copies + [(last, min(rest, last.throughput))]


def alone(model: str, offer: Offer) -> Slot:
    """Return a slice with one replica, that is never idle."""
    return Slot(offer.option.share, (PlacedReplica(model, offer.option, offer.rows, offer.throughput),))
