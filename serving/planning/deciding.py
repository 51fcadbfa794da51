"""From what is asked to a decision: solve, simulate, give more room to what misses its SLO, and solve again.

A solver plans with medians and a part of the SLO; only the simulator knows queues. So no constant of the
solver has to be right for all traffic: what it places is played, and what is missed is asked for anew with
more room.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import isnan

from serving.planning.predicting import Advance, Prediction, predict
from serving.planning.task import PlanningTask
from serving.policy.placement.solve import Task, plans
from serving.policy.placement.terms.check import shortfalls
from serving.policy.placement.terms.moves import Moves, Verdict, accept, moves
from serving.policy.placement.terms.plan import PlacementPlan
from serving.policy.placement.terms.pooling import pooled
from serving.policy.placement.terms.problem import PlacementProblem
from serving.policy.transition.planning import transition
from serving.policy.transition.steps import Transition, TransitionRefused

Solve = Callable[[Task], PlacementPlan]
"""Return the best plan that was found in the time of the task."""

ROUNDS = 5
MORE_RATE, LESS_SLACK = 1.15, 0.85
"""What a model that misses its SLO is given in the next round: room for more rows, and shorter batches. The
last round has 1.7 times the rate and half of the slack, beyond which it is no matter of room."""


@dataclass(frozen=True, slots=True)
class DecisionTerms:
    """What is asked of a decision: `attainment` of each model by prediction; a saving counts for `horizon_s`;
    a solver gets `limit_s`; a prediction plays `seconds` where that is affordable, and starts from `seed`;
    `in_flight`: devices that are changed at a time, None for a twentieth."""

    attainment: float = 0.99
    horizon_s: float = 3600.0
    limit_s: float = 10.0
    seconds: float = 20.0
    seed: int = 1
    in_flight: int | None = None


@dataclass(frozen=True)
class Decision:
    """`plan`: the best that was found, with its `prediction`. `verdict`: whether it takes the place of what
    is there, and why. `moves` and `transition`: from here to there.

    `before`: the prediction of what is there, None if nothing is. `tightened`: sentences on which models were
    given more room. `refused`: why the plan must not be carried out, empty if it may be.
    """

    plan: PlacementPlan
    prediction: Prediction
    verdict: Verdict
    moves: Moves
    transition: Transition | TransitionRefused
    before: Prediction | None = None
    tightened: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()

    @property
    def taken(self) -> bool:
        """Whether the plan's placement is the one to have from now on."""
        return self.verdict.taken and not self.refused


def decide(
    task: PlanningTask, terms: DecisionTerms, solve: Solve, advance: Advance | None = None
) -> Decision:
    """Return the decision. Each plan is what `solve` returns."""
    before = predict(task, task.current, terms.seconds, terms.seed, advance) if task.current else None
    plan, prediction, tightened = _search(task, terms, solve, advance)
    found = missed(prediction, terms.attainment)
    refused = (*shortfalls(task.problem, plan.placement), *(_sentence(prediction, each) for each in found))
    verdict = _verdict(task, plan, before, terms)
    return Decision(
        plan,
        prediction,
        verdict,
        moves(task.current, plan.placement),
        transition(pooled(task.problem, plan.placement), task.current, plan.placement, terms.in_flight),
        before,
        tuple(tightened),
        refused,
    )


def _search(
    task: PlanningTask, terms: DecisionTerms, solve: Solve, advance: Advance | None
) -> tuple[PlacementPlan, Prediction, list[str]]:
    """Return the first plan with which, in the simulator, no model misses its SLO; else the last."""
    problem, tightened = task.problem, list[str]()
    plan = solve(Task(problem, task.current, terms.limit_s))
    prediction = predict(task, plan.placement, terms.seconds, terms.seed, advance)
    for _ in range(1, ROUNDS):
        found = missed(prediction, terms.attainment)
        if not found or shortfalls(task.problem, plan.placement):
            break
        problem = tighten(problem, found)
        roomier = solve(Task(problem, task.current, terms.limit_s))
        told = "; ".join(_sentence(prediction, each) for each in found)
        if shortfalls(problem, roomier.placement):
            tightened.append(f"{told}: these devices have no more room")
            break
        tightened.append(f"{told}: given more room")
        plan = replace(roomier, bound=min(plan.bound, roomier.bound), optimal=False)
        prediction = predict(task, plan.placement, terms.seconds, terms.seed, advance)
    return plan, prediction, tightened


def solve_here(task: Task) -> PlacementPlan:
    """Return the last plan, computed in this process: the caller is a job, or has the time."""
    *_, best = plans(task)
    return best


def missed(prediction: Prediction, aim: float) -> list[str]:
    """Return the models with fewer than `aim` of their requests predicted to be in time."""
    return [
        name
        for name, each in prediction.models.items()
        if not isnan(each.attainment) and each.attainment < aim
    ]


def tighten(problem: PlacementProblem, models: list[str]) -> PlacementProblem:
    """Return the problem with more room for these models."""
    return replace(
        problem,
        demands=tuple(
            replace(each, rate=each.rate * MORE_RATE, slack=each.slack * LESS_SLACK)
            if each.model in models
            else each
            for each in problem.demands
        ),
    )


def _verdict(
    task: PlanningTask, plan: PlacementPlan, before: Prediction | None, terms: DecisionTerms
) -> Verdict:
    if before is None:
        return Verdict(True, "nothing is in place yet")
    if late := missed(before, terms.attainment):
        return Verdict(True, f"as it is today, {_sentence(before, late[0])}")
    return accept(task.problem, task.current, plan.placement, terms.horizon_s)


def _sentence(prediction: Prediction, model: str) -> str:
    share = prediction.models[model].attainment
    return f"{model} is predicted to answer {share * 100:.4g} % in time"
