"""Fleets of several kinds of device, for methods that were published for one kind.

The pools come one after another, each with what the pools before could not carry.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf

from serving.policy.placement.terms.plan import Bundle, Draft, Slot
from serving.policy.placement.terms.problem import Demand, Offer, Option, Parts, PlacementProblem, Pool
from serving.values.slice_specs import Share

NEAR = 1e-9
"""Relative to a demand's rate: less than that is not worth a replica."""

Pack = Callable[[PlacementProblem, Pool], Sequence[tuple[Slot, ...]]]
"""Returns the slices of each used device of the pool, for the problem's demands. There are at most as many
devices as the pool has."""


def offers(pool: Pool, demand: Demand) -> tuple[Offer, ...]:
    """Return the model's offers on that pool, at most one for each share, the smallest first."""
    fitting = replace(demand, options=tuple(each for each in demand.options if pool.fits(each)))
    return tuple(sorted(fitting.offers, key=lambda each: each.option.share))


def single(pool: Pool, demand: Demand, share: Share) -> Option | None:
    """Return the option that runs the model best on that share, one batch at a time.

    A model has to run so where it shares a slice.
    """
    options = tuple(each for each in demand.options if each.share == share and each.processes == 1)
    return next((each.option for each in offers(pool, replace(demand, options=options))), None)


def each_pool(problem: PlacementProblem, method: str, pack: Pack) -> Draft:
    """Return a draft of the pools one after another, first the pool on which the demands are cheapest."""
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
    """Return the pools by their mean price ratio, the lowest first.

    The ratio is a model's price of a row there to its price on its cheapest pool.
    """
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
    """Return the price of a row a second, by the share of a device that the most efficient offer takes."""
    whole = capacity(pool)
    return min(
        (pool.price * each.option.share.amount / whole / each.throughput for each in offers(pool, demand)),
        default=inf,
    )


def capacity(pool: Pool) -> float:
    """Return the capacity of a device: its divided amount, or the compute slices of its largest instance."""
    if isinstance(pool.division, Parts):
        return pool.division.total
    return max((slices(each.name) for each in pool.division.geometry), default=0.0)


def slices(name: str) -> float:
    """Return the compute slices of a MIG profile: 3 of "3g.40gb"."""
    return float(name.partition("g")[0])
