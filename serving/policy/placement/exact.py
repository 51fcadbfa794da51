"""The cheapest placement, by integer programs (`counting/fleet.py`).

They are solved one after the other: what is missing comes before what is paid, and that before how much of
the devices is taken. Weights of one program for all three would have to differ by more than solvers tell
apart. Where price-and-round has an answer it is not made worse, and often known to be the cheapest.
"""

from collections.abc import Mapping
from dataclasses import replace
from math import inf

from serving.policy.placement.bound import lower_bound
from serving.policy.placement.formulation.bundling import carries, cost, needed
from serving.policy.placement.formulation.fleet import Bundles, FleetProgram
from serving.policy.placement.plan import ROUNDING, Draft
from serving.policy.placement.problem import Instances, PlacementProblem
from serving.policy.placement.programs import InfeasibleError, Solution
from serving.policy.placement.rounding import round_prices

METHOD = "exact"
NODES_MAX = 100
"""For the last program, which only makes the placement smaller."""


def solve_exact(
    problem: PlacementProblem, patterns: Mapping[str, Bundles], time_limit_s: float
) -> Draft | None:
    """The cheapest draft of whole replicas on MIG instances and of `patterns`, by the name of each pool that
    is divided by amounts. Where devices do not suffice, the cheapest of those with the least missing: the sum
    over all demands of the parts that are not carried and of the failure domains that they are not in.

    `optimal` where that is proved. None where the limit passed before there was any draft; it holds for each
    of up to four programs. KeyError where such a pool has no patterns.
    """
    asked = [each for each in problem.demands if each.rate > 0]
    if not asked:
        return Draft((), METHOD, optimal=True)
    spread = any(each.domains_min > 1 for each in asked)
    if not spread and all(isinstance(pool.division, Instances) for pool in problem.pools):
        known, least = round_prices(problem)
        if carries(problem, known.bundles):
            return replace(_improve(problem, known, least, time_limit_s), method=METHOD)
    fleet = FleetProgram(problem, patterns)
    bound = lower_bound(problem)
    found = _solve(fleet, time_limit_s, short=bound == inf)
    return _draft(problem, fleet, _smaller(fleet, found, time_limit_s), bound) if found else None


def _improve(problem: PlacementProblem, known: Draft, least: float, time_limit_s: float) -> Draft:
    """The cheapest, or `known`, which carries all; nothing costs less than `least`."""
    if known.optimal:
        return known
    fleet = FleetProgram(problem, {})
    fleet.cost_between(least * (1 - ROUNDING), cost(problem, known.bundles) * (1 + ROUNDING))
    try:
        found = fleet.program.solve(time_limit_s)
    except InfeasibleError:
        return known
    return _draft(problem, fleet, _smaller(fleet, found, time_limit_s), known.bound) if found else known


def _draft(problem: PlacementProblem, fleet: FleetProgram, found: Solution, bound: float) -> Draft:
    return Draft(needed(problem, [*fleet.bundles(found.values)]), METHOD, bound, found.proved)


def _solve(fleet: FleetProgram, time_limit_s: float, short: bool) -> Solution | None:
    """The cheapest; with as little missing as can be if it is known that devices fall `short`, or found
    out."""
    if not short:
        try:
            return fleet.program.solve(time_limit_s)
        except InfeasibleError:
            pass
    missing = fleet.fall_short()
    prices = fleet.program.costs
    fleet.program.costs = [float(column in missing) for column in range(len(prices))]
    least = fleet.program.solve(time_limit_s)
    fleet.program.costs = prices
    if least is None:
        return None
    fleet.program.row([(column, 1.0) for column in missing], upper=least.cost + ROUNDING * len(missing))
    try:
        cheapest = fleet.program.solve(time_limit_s)
    except InfeasibleError:  # by less than what solvers forgive
        cheapest = None
    return replace(cheapest or least, proved=cheapest is not None and cheapest.proved and least.proved)


def _smaller(fleet: FleetProgram, found: Solution, time_limit_s: float) -> Solution:
    """As many devices, with replicas on as little of them as is found."""
    for columns in fleet.devices:
        count = sum(found.values[column] for column in columns)
        fleet.program.row([(column, 1.0) for column in columns], count, count)
    parts = fleet.parts()
    fleet.program.costs = [parts.get(column, 0.0) for column in range(len(fleet.program.costs))]
    try:
        smaller = fleet.program.solve(time_limit_s, NODES_MAX)
    except InfeasibleError:  # by less than what solvers forgive
        smaller = None
    return replace(smaller, proved=found.proved) if smaller else found
