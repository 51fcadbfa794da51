"""From one placement to another, make before break: which slices change in which order. Pure.

As in MIG-Serving (arXiv 2109.11067): exchange, so that what is new is there before what it replaces goes,
then compact. What stands in the way of something new is taken away first where the rest carries its load;
where it does not, a copy of it stands in meanwhile, wherever there is room (GSLICE's standby, SoCC 2020).

In which order slices change decides whether there is a way, and there may be many orders: rounds that never
take anything back find one in nearly all cases, and where they do not, small fleets are searched.
"""

from dataclasses import replace

from serving.policy.placement.terms.check import faults
from serving.policy.placement.terms.plan import Placement
from serving.policy.placement.terms.problem import PlacementDevice, PlacementProblem
from serving.policy.transition.exchange import RoundPlanner
from serving.policy.transition.exploration import TRIALS_MAX, explore
from serving.policy.transition.ledger import TransitionLedger
from serving.policy.transition.steps import Transition, TransitionRefused

IN_FLIGHT = 0.05
"""Of a fleet's devices, how many are changed at a time."""


def transition(
    problem: PlacementProblem,
    old: Placement,
    new: Placement,
    devices_in_flight: int | None = None,
    trials: int = TRIALS_MAX,
) -> Transition | TransitionRefused:
    """Return the steps from `old`, which is there, to `new`; what holds in between is in `invariants.py`. At
    most `devices_in_flight` devices are changed at a time, None for a twentieth of all, at least one;
    ValueError where that is below one. `trials`: how many ways are looked at in a small fleet before it is
    refused."""
    if devices_in_flight is not None and devices_in_flight < 1:
        raise ValueError(f"at least one device has to change at a time, not {devices_in_flight}")
    unknown = sorted({*old, *new} - {*problem.pool_of})
    if unknown:
        return TransitionRefused(f"there is no device {unknown[0]}", device=unknown[0])
    wrong = faults(problem, new)
    if wrong:
        return TransitionRefused(f"the new placement cannot be: {wrong[0]}")
    limit = devices_in_flight or max(1, int(IN_FLIGHT * len(problem.pool_of)))
    found = _found(TransitionLedger.of(problem, old, new), limit, trials)
    if isinstance(found, Transition):
        return found
    pool = problem.pool_of[found.device].name
    would = _found(TransitionLedger.of(_with_spare(problem, found.device), old, new), limit, trials)
    verb = "would" if isinstance(would, Transition) else "would not"
    return replace(found, reason=f"{found.reason}; one more device in the pool {pool} {verb} do")


def _found(ledger: TransitionLedger, limit: int, trials: int) -> Transition | TransitionRefused:
    found = RoundPlanner(ledger.copy(), limit).run()
    return found if isinstance(found, Transition) else explore(ledger, limit, trials) or found


def _with_spare(problem: PlacementProblem, device: str) -> PlacementProblem:
    """Return the same fleet with one more device like that one, beside it."""
    pool = problem.pool_of[device]
    name = max(problem.domain_of, key=len) + "'"
    larger = replace(pool, devices=(*pool.devices, PlacementDevice(name, problem.domain_of[device])))
    return PlacementProblem(
        problem.demands, tuple(larger if each is pool else each for each in problem.pools)
    )
