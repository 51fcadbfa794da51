"""From one placement to another, make before break: which slices change in which order. Pure.

As in MIG-Serving (arXiv 2109.11067, section 6): exchange, so that what is new is there before what it
replaces goes, then compact. What stands in the way of something new is taken away first where the others
carry its load; where they do not, a copy of it stands in meanwhile where there is room.

The order is a heuristic: each round begins at least one slice of the new placement for good, so there are no
more rounds than slices, but a way that takes another order may be missed. Two ways to be greedy are tried.
"""

from dataclasses import replace

from serving.policy.placement.check import faults
from serving.policy.placement.plan import Placement
from serving.policy.placement.problem import Device, Problem
from serving.policy.transition.exchange import Exchange
from serving.policy.transition.exploration import explore
from serving.policy.transition.ledger import Ledger
from serving.policy.transition.steps import Refused, Transition

IN_FLIGHT = 0.05
"""Of a fleet's devices, how many are changed at a time."""


def transition(
    problem: Problem, old: Placement, new: Placement, devices_in_flight: int | None = None
) -> Transition | Refused:
    """The steps from `old`, which is there, to `new`, with at most so many devices changed at a time (None: a
    twentieth of all, at least one). What holds in between is in `invariants.py`."""
    unknown = sorted({*old, *new} - {*problem.pool_of})
    if unknown:
        return Refused(f"there is no device {unknown[0]}", device=unknown[0])
    wrong = faults(problem, new)
    if wrong:
        return Refused(f"the new placement is none: {wrong[0]}")
    limit = max(1, int(IN_FLIGHT * len(problem.pool_of))) if devices_in_flight is None else devices_in_flight
    found = _found(problem, old, new, limit)
    if isinstance(found, Transition):
        return found
    pool = problem.pool_of[found.device].name
    would = _found(_with_spare(problem, found.device), old, new, limit)
    more = "one more device" if isinstance(would, Transition) else "more than one more device"
    return replace(found, reason=f"{found.reason}; it takes {more} in the pool {pool}")


def _found(problem: Problem, old: Placement, new: Placement, limit: int) -> Transition | Refused:
    ledger = Ledger(problem, old, new)
    found = Exchange(ledger.copy(), limit).run()
    return found if isinstance(found, Transition) else explore(ledger, limit) or found


def _with_spare(problem: Problem, device: str) -> Problem:
    """The same fleet with one more device like that one, beside it."""
    pool = problem.pool_of[device]
    name = max(problem.pool_of, key=len) + "'"
    larger = replace(pool, devices=(*pool.devices, Device(name, problem.domain_of[device])))
    return Problem(problem.demands, tuple(larger if each is pool else each for each in problem.pools))
