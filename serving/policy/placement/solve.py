"""Placements of a problem, better and better: a quick one first, then what takes longer to find.

It runs as a job beside the gateway (`serving/runtime/job.py`), and who waits takes the last that has come by
the time limit. Every placement is held against `check.faults` before it is given out.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations

from serving.policy.placement.assign import assign
from serving.policy.placement.bound import lower_bound
from serving.policy.placement.check import faults
from serving.policy.placement.exact import solve_exact
from serving.policy.placement.headroom_fill import fill
from serving.policy.placement.moves import lacking
from serving.policy.placement.packing import pack
from serving.policy.placement.patterns import patterns
from serving.policy.placement.plan import Draft, Placement, PlacementPlan, Slot, cost, short
from serving.policy.placement.pooling import pooled
from serving.policy.placement.problem import Instances, Parts, PlacementProblem, Pool
from serving.policy.placement.rounding import price_and_round

DEMANDS_MAX = 300
"""Above this the integer program takes up to 9 s where price-and-round takes one, and that is within 0.01 %
of what whole replicas need at least (`python -m loadtests.placement`)."""
PATTERNS_MAX = 4_000
"""Bundles of one device that the integer program may choose from, for each pool."""
POOLINGS = 3
"""How often a plan is sought with the slack that the replicas of the last one give."""


class PlacementError(Exception):
    """A solver gave a placement that breaks a rule: its fault, not the operator's. The text says which."""


@dataclass(frozen=True)
class Task:
    """What is to be solved, and what is in place; the exact solver gets at most `limit_s` at a time."""

    problem: PlacementProblem
    current: Placement = field(default_factory=dict)
    limit_s: float = 10.0


def plans(task: Task) -> Iterator[PlacementPlan]:
    """Plans, each better than the one before: less that cannot be placed, then cheaper. At least one, even
    where the fleet is too small (`PlacementPlan.short`). PlacementError where a solver is at fault.

    A plan's bound is that of the batches that its replicas may run (`pooling.py`): the last may have a lower.
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
    """A solver's draft on named devices, with as little moved as can be. PlacementError as above."""
    filled = replace(draft, bundles=fill(problem, draft.bundles))
    placement = assign(problem, filled, current)
    if wrong := faults(problem, placement):
        raise PlacementError(f"{draft.method}: {wrong[0]}")
    lacks = short(problem, placement)
    return PlacementPlan(placement, cost(problem, placement), draft.bound, draft.method, draft.optimal, lacks)


def rank(problem: PlacementProblem, plan: PlacementPlan) -> tuple[float, float, bool]:
    """The less the better: what is lacking of the demands, then the cost, then what is not proved."""
    return round(lacking(problem, plan.placement), 6), plan.cost, not plan.optimal


def _drafts(problem: PlacementProblem, limit_s: float) -> Iterator[Draft]:
    """At least one, each with the bound of this problem."""
    bound = lower_bound(problem)
    for draft in _greedy(problem):
        yield replace(draft, bound=bound)
    found = _patterns(problem)
    if found is not None and len(problem.demands) <= DEMANDS_MAX:
        exact = solve_exact(problem, found, limit_s)
        if exact is not None:
            yield replace(exact, bound=bound, optimal=exact.optimal and not _pressed(problem))


def _pressed(problem: PlacementProblem) -> bool:
    """Whether neighbours may slow each other down. What replicas then leave of a rate is not among the pieces
    that `patterns` tries, so that packing is cheaper now and then: nothing is proved."""
    kinds = {pool.kind for pool in problem.pools if isinstance(pool.division, Parts)}
    options = [option for demand in problem.demands for option in demand.options if option.kind in kinds]
    return any(each.pressure for each in options) and any(each.sensitivity for each in options)


def _patterns(problem: PlacementProblem) -> dict[str, Sequence[tuple[Slot, ...]]] | None:
    """Of every pool that is divided by amounts; None where one has too many."""
    found: dict[str, Sequence[tuple[Slot, ...]]] = {}
    for pool in problem.pools:
        if isinstance(pool.division, Parts):
            here = patterns(problem, pool, PATTERNS_MAX)
            if here is None:
                return None
            found[pool.name] = here
    return found


def _greedy(problem: PlacementProblem) -> Iterator[Draft]:
    """Price-and-round where devices are divided into instances, packing where by amounts. Of a mixed fleet
    each kind in turn comes first, and the other carries what is left."""
    kinds = sorted({type(pool.division) for pool in problem.pools}, key=lambda kind: kind.__name__)
    if len(kinds) < 2:  # what is proved of one kind is proved of all
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
    """What a draft leaves for other pools to carry."""
    carried: dict[str, float] = {}
    for bundle in draft.bundles:
        for slot in bundle.slots:
            for each in slot.residents:
                carried[each.model] = carried.get(each.model, 0.0) + each.capacity
    demands = tuple(
        replace(each, rate=max(each.rate - carried.get(each.model, 0.0), 0.0)) for each in problem.demands
    )
    return PlacementProblem(demands, pools)
