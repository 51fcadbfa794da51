"""Price-and-round: a placement of thousands of demands on thousands of devices, in about a second.

The linear relaxation gives prices of slices. At these prices, every demand has cheap sets of whole replicas
that carry it, and a master program mixes the sets (`formulation/covers.py`, `formulation/master.py`). All but
a few demands come out of it with one such set. An integer program finds those few and the devices
(`formulation/settling.py`). It stays small for a fleet of any size.
"""

from serving.policy.placement.formulation.bundling import carries, cost, deal, needed
from serving.policy.placement.formulation.choices import Choices, choices
from serving.policy.placement.formulation.master import mix
from serving.policy.placement.formulation.settling import Numbers, settle
from serving.policy.placement.formulation.whole import next_cost, whole_bound
from serving.policy.placement.solvers.bound import market
from serving.policy.placement.terms.plan import ROUNDING, Bundle, Draft, Slot
from serving.policy.placement.terms.problem import Instances, PlacementProblem

METHOD = "price-and-round"
TINY = 1e-6
"""The part of a device's price that taking all of it costs besides. So of what costs the same, less is
taken."""


def price_and_round(problem: PlacementProblem) -> Draft:
    """Return a draft near the cheapest.

    `optimal` is True if it costs no more than whole replicas, each on a MIG instance of its own, have to.

    If the devices do not suffice, demands are carried in part or not at all. Raise ValueError if a pool is
    not divided into instances: `packing.py` is for those.
    """
    return round_prices(problem)[0]


def round_prices(problem: PlacementProblem) -> tuple[Draft, float]:
    """Return (the draft of `price_and_round`, the least cost to carry all demands by whole replicas)."""
    other = [pool.name for pool in problem.pools if not isinstance(pool.division, Instances)]
    if other:
        raise ValueError(f"{other[0]} is not divided into instances")
    every = choices(problem)
    relaxed = market(every)
    if not every.each:
        return Draft((), METHOD, relaxed.bound, optimal=not every.hopeless), relaxed.bound
    tiny = TINY * min((each.pool.price for each in every.divisions if each.pool.price > 0), default=1.0)
    found = mix(every, relaxed.prices, tiny)
    least = next_cost(every, whole_bound(every, found.prices))
    numbers = settle(every, found, least)
    bundles = needed(problem, _bundles(every, numbers))
    certain = all(each.domains_min <= 1 for each in every.demands)
    cheap = cost(problem, bundles) <= least * (1 + ROUNDING)
    optimal = certain and cheap and carries(problem, bundles)
    return Draft(bundles, METHOD, relaxed.bound, optimal), least


def _bundles(every: Choices, numbers: Numbers) -> list[Bundle]:
    slots: list[list[Slot]] = [[] for _ in every.divisions]
    for place, count in sorted(numbers.replicas.items()):
        choice = every.each[place]
        slots[choice.division] += [every.slot(choice)] * count
    dealt = zip(every.divisions, numbers.devices, slots, strict=True)
    return [bundle for division, devices, here in dealt for bundle in deal(division, devices, here)]
