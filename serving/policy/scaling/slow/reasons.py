"""What could not be had, in words, in the order in which it was given up: bought, degraded, shed."""

from collections.abc import Iterator

import numpy as np

from serving.policy.scaling.slow.covers import make_covers
from serving.policy.scaling.slow.objective_value import CarriedShares, by_kind
from serving.policy.scaling.slow.problem import ScalingProblem, too_dear
from serving.policy.scaling.slow.tables import Floats, Ints
from serving.values.objectives import CHEAPEST

_NEAR = 1e-6


def reasons(problem: ScalingProblem, replicas: Ints, carried: CarriedShares) -> dict[int, str]:
    """Return a sentence for each claim with less than it needs, or a worse variant than unlimited slices and
    money would give."""
    used = by_kind(problem, replicas).sum(axis=0)
    wanted = _wanted(problem)
    offers = problem.offers
    whole = np.maximum(1.0 - carried.shed, _NEAR)
    lost = np.bincount(offers.claim, carried.shares * offers.loss, len(wanted)) / whole
    short = (carried.shed > 0) | (carried.lacking > 0)
    minds = np.array([each.optimize != CHEAPEST for each in problem.claims.each], bool)
    found: dict[int, str] = {}
    for claim in np.flatnonzero(short | (minds & (lost > wanted + _NEAR))).tolist():
        limits = "; ".join(_limits(problem, claim, replicas, used))
        given = list(_given(problem, claim, carried, float(lost[claim]), float(wanted[claim])))
        if short[claim] or limits:  # what is worse by choice, as a mixture is cheaper, is no lack
            found[claim] = f"{limits or 'nothing that would do can be bought'}; so {', and '.join(given)}"
    return found


def _given(
    problem: ScalingProblem, claim: int, carried: CarriedShares, lost: float, wanted: float
) -> Iterator[str]:
    """Yield what was given up."""
    claimant, shed = problem.claims.each[claim], float(carried.shed[claim])
    if lost > wanted + _NEAR and shed < 1:
        best = max(claimant.variants.values())
        yield f"accuracy is {best - lost:.4g} where it would be {best - wanted:.4g}"
    if shed > 0:
        rate = float(problem.claims.rate[claim])
        yield (
            f"{shed * rate:.4g} of {rate:.4g} rows a second are shed (priority {claimant.priority}, "
            f"weight {claimant.weight:g})"
        )
    if carried.lacking[claim]:
        yield f"{carried.lacking[claim]} of at least {claimant.least} replicas are lacking"


def _wanted(problem: ScalingProblem) -> Floats:
    """Return how much accuracy each claim would lose by its own choice if there were no limits."""
    every = make_covers(problem)
    found = np.zeros(len(problem.claims.each))
    order = np.lexsort((every.cost, every.claim))
    owners, firsts = np.unique(every.claim[order], return_index=True)
    found[owners] = every.loss[order[firsts]]
    return found


def _limits(problem: ScalingProblem, claim: int, replicas: Ints, used: Ints) -> Iterator[str]:
    """Yield what kept the claim from buying."""
    claimant, kinds = problem.claims.each[claim], problem.kinds
    places = problem.of(claim)
    if not len(places):
        yield _nothing(problem, claim)
        return
    may = np.unique(problem.offers.kind[places])
    full = [
        f"{used[kind]} of {kinds.count[kind]} {kinds.names[kind]}"
        for kind in may.tolist()
        if used[kind] >= kinds.count[kind]
    ]
    if full:
        yield f"taken are {', '.join(full)}"
    paid = float(kinds.paid @ used)
    if paid + float(kinds.paid[may].min()) > problem.cost_max:
        yield f"the hour costs {paid:.4g} of at most {problem.cost_max:.4g}"
    if int(replicas[places].sum()) >= claimant.most:
        yield f"it may have {claimant.most} replicas at most"


def _nothing(problem: ScalingProblem, claim: int) -> str:
    """Return why a claim has no offers."""
    claimant, kinds = problem.claims.each[claim], problem.kinds
    index = {name: place for place, name in enumerate(kinds.names)}
    dear = set()
    for (_, kind), capacity in claimant.capacities.items():
        place = index.get(kind)
        pace = capacity.rates[-1][-1] / capacity.counts[-1]
        if place is not None and kinds.count[place] and too_dear(kinds.paid[place], pace, claimant.cost_max):
            dear.add(kind)
    if dear:
        return f"a million rows cost more than {claimant.cost_max:g} on {', '.join(sorted(dear))}"
    return "there is no slice that carries any of it in time"
