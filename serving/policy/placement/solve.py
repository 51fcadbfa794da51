"""Plans for a problem, each better than the one before: a quick one first, then slower methods.

The solver runs as a job beside the gateway (`serving/runtime/job.py`). Its caller takes the last plan that
came by the time limit. Every placement passes `check.faults` before it is given out.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations

from serving.policy.placement.assignment.assign import assign
from serving.policy.placement.packing.headroom_fill import fill
from serving.policy.placement.packing.packing import pack
from serving.policy.placement.packing.patterns import patterns
from serving.policy.placement.solvers.bound import lower_bound
from serving.policy.placement.solvers.exact import solve_exact
from serving.policy.placement.solvers.rounding import price_and_round
from serving.policy.placement.terms.check import faults
from serving.policy.placement.terms.moves import lacking
from serving.policy.placement.terms.plan import Draft, Placement, PlacementPlan, Slot, cost, short
from serving.policy.placement.terms.pooling import pooled
from serving.policy.placement.terms.problem import Instances, Parts, PlacementProblem, Pool

DEMANDS_MAX = 300
"""The most demands that the integer program is used for. Above this it takes up to 9 s, and price-and-round
takes one. Price-and-round is within 0.01 % of what whole replicas need at least
(`python -m loadtests.placing.placement`)."""
PATTERNS_MAX = 4_000
"""The most bundles of one device that the integer program may choose from, for each pool."""
POOLINGS = 3
"""How often the solver plans again with the slack that the replicas of its last plan give."""


class PlacementError(Exception):
    """A solver gave a placement that breaks a rule. The text says which rule.

    It is the solver's fault, not the operator's.
    """


@dataclass(frozen=True)
class Task:
    """What the solver gets: the problem, and the placement that is in force now (`current`).

    The exact solver gets at most `limit_s` at a time.
    """

    problem: PlacementProblem
    current: Placement = field(default_factory=dict)
    limit_s: float = 10.0


def plans(task: Task) -> Iterator[PlacementPlan]:
    """Yield plans, each better than the one before: less that cannot be placed, then cheaper.

    There is at least one plan, even if the fleet is too small (`PlacementPlan.short`). Raise PlacementError
    if a solver is at fault.

    A plan's bound assumes the batches that its replicas may run (`pooling.py`), so the last plan may have a
    lower bound.
    """
    problem = task.problem
    best: PlacementPlan | None = None
    for draft in _drafts(problem, task.limit_s):
        plan = make_plan(problem, draft, task.current)
        if best is None or rank(problem, plan) < rank(problem, best):
            best = plan
            yield plan
    eased = pooled(problem, best.placement) if best else problem
    for _ in range(POOLINGS):
        if best is None or eased == problem:
            return
        plan = make_plan(eased, list(_drafts(eased, task.limit_s))[-1], task.current)
        if not faults(problem, plan.placement) and rank(problem, plan) < rank(problem, best):
            yield plan
            return
        eased = pooled(problem, plan.placement)


def make_plan(problem: PlacementProblem, draft: Draft, current: Placement) -> PlacementPlan:
    """Return a solver's draft as a plan on named devices, with as few moves as possible.

    Raise PlacementError if the placement breaks a rule.
    """
    filled = replace(draft, bundles=fill(problem, draft.bundles))
    placement = assign(problem, filled, current)
    if wrong := faults(problem, placement):
        raise PlacementError(f"{draft.method}: {wrong[0]}")
    lacks = short(problem, placement)
    return PlacementPlan(placement, cost(problem, placement), draft.bound, draft.method, draft.optimal, lacks)


def rank(problem: PlacementProblem, plan: PlacementPlan) -> tuple[float, float, bool]:
    """Return a sort key, least is best: what the demands lack, then the cost, then whether the proof is
    missing."""
    return round(lacking(problem, plan.placement), 6), plan.cost, not plan.optimal


def _drafts(problem: PlacementProblem, limit_s: float) -> Iterator[Draft]:
    """Yield at least one draft, each with the bound of this problem."""
    bound = lower_bound(problem)
    for draft in _greedy(problem):
        yield replace(draft, bound=bound)
    found = _patterns(problem)
    if found is not None and len(problem.demands) <= DEMANDS_MAX:
        exact = solve_exact(problem, found, limit_s)
        if exact is not None:
            yield replace(exact, bound=bound, optimal=exact.optimal and not _overloaded(problem))


def _overloaded(problem: PlacementProblem) -> bool:
    """Return whether colocated replicas may slow each other down.

    Slowed replicas leave parts of a rate that are not among the pieces that `patterns` tries. Packing is then
    cheaper now and then, so the integer program proves nothing.
    """
    kinds = {pool.kind for pool in problem.pools if isinstance(pool.division, Parts)}
    options = [option for demand in problem.demands for option in demand.options if option.kind in kinds]
    return any(each.pressure for each in options) and any(each.sensitivity for each in options)


def _patterns(problem: PlacementProblem) -> dict[str, Sequence[tuple[Slot, ...]]] | None:
    """Return the patterns of every pool that is divided by amounts; None if a pool has too many."""
    found: dict[str, Sequence[tuple[Slot, ...]]] = {}
    for pool in problem.pools:
        if isinstance(pool.division, Parts):
            here = patterns(problem, pool, PATTERNS_MAX)
            if here is None:
                return None
            found[pool.name] = here
    return found


def _greedy(problem: PlacementProblem) -> Iterator[Draft]:
    """Yield drafts by price-and-round for devices divided into instances, and by packing for the others.

    In a mixed fleet, each of the two kinds comes first in one draft. The other kind then carries what is
    left.
    """
    kinds = sorted({type(pool.division) for pool in problem.pools}, key=lambda kind: kind.__name__)
    if len(kinds) < 2:  # with one kind only, its proof holds for the whole fleet
        yield _solve_kind(problem) if kinds else Draft((), "nothing")
        return
    for order in permutations(kinds):
        draft = Draft((), "")
        for kind in order:
            pools = tuple(pool for pool in problem.pools if isinstance(pool.division, kind))
            part = _solve_kind(_rest(problem, draft, pools))
            method = f"{draft.method}, {part.method}" if draft.method else part.method
            draft = Draft((*draft.bundles, *part.bundles), method)
        yield draft


def _solve_kind(problem: PlacementProblem) -> Draft:
    instances = any(isinstance(pool.division, Instances) for pool in problem.pools)
    return price_and_round(problem) if instances else pack(problem)


def _rest(problem: PlacementProblem, draft: Draft, pools: tuple[Pool, ...]) -> PlacementProblem:
    """Return the problem that a draft leaves for other pools to carry."""
    carried: dict[str, float] = {}
    for bundle in draft.bundles:
        for slot in bundle.slots:
            for each in slot.residents:
                carried[each.model] = carried.get(each.model, 0.0) + each.capacity
    demands = tuple(
        replace(each, rate=max(each.rate - carried.get(each.model, 0.0), 0.0)) for each in problem.demands
    )
    return PlacementProblem(demands, pools)
