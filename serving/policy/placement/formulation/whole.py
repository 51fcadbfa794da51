"""The least cost of whole replicas, each on a slice of its own: a sharper bound than the linear relaxation's.

At any prices of slices, the cheapest covers of all demands have a total cost. Devices cost at least that,
less what they are worth above their own prices (Lagrangian relaxation; Geoffrion 1974). At the prices of the
master program the bound is nearly exact, and devices are whole. So it is often the cost of what was found.
"""

from collections.abc import Sequence
from fractions import Fraction
from math import ceil, gcd

from serving.policy.placement.formulation.choices import Choices, Prices
from serving.policy.placement.formulation.covers import Item, Search, items
from serving.policy.placement.formulation.division import Division
from serving.policy.placement.terms.plan import ROUNDING

NEAR = 0.1
"""The part of the cheapest device's price by which the bound may be too low, for covers that are not looked
for."""
DENOMINATOR_MAX = 10_000


def whole_bound(every: Choices, prices: Prices) -> float:
    """Return a lower bound on the cost of devices that carry all demands by whole replicas.

    Any prices give a bound, if none is negative. Slices that slow each other down carry less, and so cost
    more.
    """
    near = NEAR * min((each.pool.price for each in every.divisions), default=0.0) / max(len(every.demands), 1)
    covers = sum(
        _cheapest(demand.rate * (1 - ROUNDING), known, near)
        for demand, known in zip(every.demands, items(every, prices), strict=True)
    )
    return covers - sum(map(_excess, every.divisions, prices))


def _cheapest(rate: float, known: Sequence[Item], near: float) -> float:
    """Return the cost of the cheapest cover, or less.

    It is less by `near`, or if there are too many covers to look at.
    """
    search = Search(known, most=1, near=near).run(rate)
    return min(search.found[0][0] - near, search.floor)


def _excess(division: Division, prices: Sequence[float]) -> float:
    """Return how much more all devices of a pool are worth than they cost."""
    ways = [zip(gives, prices, strict=True) for gives in division.gives]
    worth = max(sum(given * price for given, price in way) for way in ways)
    return len(division.pool.devices) * max(worth - division.pool.price, 0.0)


def next_cost(every: Choices, bound: float) -> float:
    """Return the least that whole devices can cost at or above the bound.

    If all prices are multiples of one price, such as a cent, then so are costs.
    """
    step = Fraction(0)
    for division in every.divisions:
        price = Fraction(division.pool.price).limit_denominator(DENOMINATOR_MAX)
        if float(price) != division.pool.price:
            return bound
        step = Fraction(
            gcd(step.numerator * price.denominator, price.numerator * step.denominator),
            step.denominator * price.denominator,
        )
    return ceil(bound / float(step) - ROUNDING) * float(step) if step else bound
