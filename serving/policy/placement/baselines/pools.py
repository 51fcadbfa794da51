"""Fleets of several kinds of device, for methods that were published for one: one pool after another, each
with what the pools before could not carry.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf

from serving.policy.placement.plan import Bundle, Draft, Slot
from serving.policy.placement.problem import Demand, Offer, Option, Parts, PlacementProblem, Pool
from serving.specs import Share

NEAR = 1e-9
"""Relative to a demand's rate: less than that is not worth a replica."""

Pack = Callable[[PlacementProblem, Pool], Sequence[tuple[Slot, ...]]]
"""The slices of each device that is used of that pool, at most as many as it has, for the problem's
demands."""


def offers(pool: Pool, demand: Demand) -> tuple[Offer, ...]:
    """What the model could be run as on that pool, at most one offer for each share, smallest first."""
    fitting = replace(demand, options=tuple(each for each in demand.options if pool.fits(each)))
    return tuple(sorted(fitting.offers, key=lambda each: each.option.share))


def single(pool: Pool, demand: Demand, share: Share) -> Option | None:
    """How the model is best run on that share one batch at a time, as it must where it shares a slice."""
    options = tuple(each for each in demand.options if each.share == share and each.streams == 1)
    return next((each.option for each in offers(pool, replace(demand, options=options))), None)


def each_pool(problem: PlacementProblem, method: str, pack: Pack) -> Draft:
    """The pools one after another, that first on which the demands are cheapest."""
    left = {each.model: each.rate for each in problem.demands if each.rate > 0}
    bundles: list[Bundle] = []
    for pool in _cheapest_first(problem):
        open_to = tuple(
            replace(each, rate=left[each.model]) for each in problem.demands if each.model in left
        )
        devices = pack(replace(problem, demands=open_to), pool)
        bundles += [Bundle(pool.name, slots) for slots in devices]
        for resident in (resident for slots in devices for slot in slots for resident in slot.residents):
            left[resident.model] -= resident.capacity
        left = {model: rate for model, rate in left.items() if rate > NEAR * problem.demand_of[model].rate}
    return Draft(tuple(bundles), method)


def _cheapest_first(problem: PlacementProblem) -> list[Pool]:
    """By how much dearer a row is there than on its model's cheapest pool, on average."""
    ratios: dict[str, list[float]] = defaultdict(list)
    for demand in problem.demands:
        prices = {pool.name: _price(pool, demand) for pool in problem.pools}
        least = min(prices.values(), default=inf)
        for pool, price in prices.items():
            if price < inf:
                ratios[pool].append(price / least if least else 1.0)
    return sorted(
        (pool for pool in problem.pools if pool.name in ratios),
        key=lambda pool: (sum(ratios[pool.name]) / len(ratios[pool.name]), pool.price, pool.name),
    )


def _price(pool: Pool, demand: Demand) -> float:
    """Of a row a second, by the share of a device that it takes at the most efficient offer."""
    whole = capacity(pool)
    return min(
        (pool.price * each.option.share.amount / whole / each.throughput for each in offers(pool, demand)),
        default=inf,
    )


def capacity(pool: Pool) -> float:
    """What a device can be divided into: its amount, or the compute slices of its largest instance."""
    if isinstance(pool.division, Parts):
        return pool.division.total
    return max((slices(each.name) for each in pool.division.geometry), default=0.0)


def slices(name: str) -> float:
    """The compute slices of a MIG profile: 3 of "3g.40gb"."""
    return float(name.partition("g")[0])
