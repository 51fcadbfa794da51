"""The cheapest placement, by integer programs (`formulation/fleet.py`).

The programs are solved one after the other. What is missing comes before what is paid, and that before how
much of the devices is taken. In one program for all three, the weights would have to differ by more than
solvers tell apart.

If price-and-round has an answer, the result is no worse, and the answer is often known to be the cheapest.
"""

from collections.abc import Mapping
from dataclasses import replace
from math import inf

from serving.policy.placement.formulation.bundling import carries, cost, needed
from serving.policy.placement.formulation.fleet import Bundles, FleetProgram
from serving.policy.placement.programs import InfeasibleError, Solution
from serving.policy.placement.solvers.bound import lower_bound
from serving.policy.placement.solvers.rounding import round_prices
from serving.policy.placement.terms.plan import ROUNDING, Draft
from serving.policy.placement.terms.problem import Instances, PlacementProblem

METHOD = "exact"
NODES_MAX = 100
"""The node limit of the last program, which only makes the placement smaller."""


def solve_exact(
    problem: PlacementProblem, patterns: Mapping[str, Bundles], time_limit_s: float
) -> Draft | None:
    """Return the cheapest draft of whole replicas on MIG instances and of `patterns`.

    `patterns`: by the name of each pool that is divided by amounts. Raise KeyError if such a pool has none.

    If the devices do not suffice, return the cheapest of the drafts with the least missing. Missing are, over
    all demands, the parts that are not carried and the failure domains that they are not in.

    `optimal` is True if the draft is proved to be this. Return None if the limit passed before there was any
    draft. `time_limit_s` holds for each of up to four programs.
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
    """Return the cheapest draft, or `known`, which carries all. Nothing costs less than `least`."""
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
    """Return the cheapest solution, or None if the limit passed first.

    If devices fall `short`, or turn out to, the solution has as little missing as can be.
    """
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
    except InfeasibleError:  # infeasible by less than the solver's tolerance
        cheapest = None
    return replace(cheapest or least, proved=cheapest is not None and cheapest.proved and least.proved)


def _smaller(fleet: FleetProgram, found: Solution, time_limit_s: float) -> Solution:
    """Return a solution with as many devices, and with replicas on as little of them as is found."""
    for columns in fleet.devices:
        count = sum(found.values[column] for column in columns)
        fleet.program.row([(column, 1.0) for column in columns], count, count)
    parts = fleet.parts()
    fleet.program.costs = [parts.get(column, 0.0) for column in range(len(fleet.program.costs))]
    try:
        smaller = fleet.program.solve(time_limit_s, NODES_MAX)
    except InfeasibleError:  # infeasible by less than the solver's tolerance
        smaller = None
    return replace(smaller, proved=found.proved) if smaller else found
