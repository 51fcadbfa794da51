"""Another plan for a gateway that cannot reach its desired state: what to do without, and what to do."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from serving.control.reconciling import START_TRIES
from serving.control.state.replicas import SliceRecord, WorkerStatus
from serving.planning.deciding import Decision, DecisionTerms, Solve, decide, solve_here
from serving.planning.task import PlanningTask
from serving.policy.placement.terms.check import shortfalls
from serving.values.slice_specs import place_of

NOTHING_ASKED = "no model was asked for anything, so there is no load to plan for"
NOTHING_LEFT = "all devices are lost"
_NAMED_MAX = 3  # models or shortfalls in a sentence


@dataclass(frozen=True, slots=True)
class Proposal:
    """Another plan. `reason`: why control asked for it; `decision`: the plan and its prediction."""

    reason: str
    decision: Decision

    @property
    def verdict(self) -> str:
        """Why the plan takes the place of what is there, as a sentence."""
        return self.decision.verdict.reason

    @property
    def refused(self) -> tuple[str, ...]:
        """Which promises the plan breaks, as sentences."""
        return self.decision.refused

    @property
    def attainment(self) -> Mapping[str, float]:
        """By model, the predicted share of its requests that are answered in time."""
        return {name: each.attainment for name, each in self.decision.prediction.models.items()}


def propose(
    task: PlanningTask, reason: str, terms: DecisionTerms, solve: Solve = solve_here
) -> Proposal | str:
    """Return another plan for what is left, or a sentence that says why there is none.

    `task`: its problem and its placement of today are without what is lost and without loads that fail.
    """
    if not any(rate.requests for rate in task.rates.values()):
        return NOTHING_ASKED
    if not task.problem.pools:
        return NOTHING_LEFT
    if homeless := _homeless(task):
        return f"nothing that is left can run {_named(homeless, ', ')}"
    decision = decide(task, terms, solve)
    if short := shortfalls(task.problem, decision.plan.placement):
        return f"what is left has too little room: {_named(short, '; ')}"
    if not decision.verdict.taken and not decision.refused:
        return f"what is left in place stays: {decision.verdict.reason}"
    return Proposal(reason, decision)


def _homeless(task: PlanningTask) -> list[str]:
    """Return the models with a load that fit on no device that is left."""
    problem = task.problem
    return [
        demand.model
        for demand in problem.demands
        if demand.rate and not any(pool.fits(each) for each in demand.options for pool in problem.pools)
    ]


def _named(texts: Sequence[str], between: str) -> str:
    more = f"{between}and {len(texts) - _NAMED_MAX} more" if len(texts) > _NAMED_MAX else ""
    return f"{between.join(texts[:_NAMED_MAX])}{more}"


def lost_slices(slices: Mapping[str, SliceRecord], failing: Collection[tuple[str, str]]) -> frozenset[str]:
    """Return the slices that no plan can use: slices of lost devices, and slices with workers that never
    start.

    `failing`: (slice, model) of loads that fail. A slice with such a load is not lost: its other models may
    load.
    """
    loads = {place_of(name) for name, _ in failing}
    return frozenset(
        name
        for name, record in slices.items()
        if name == place_of(name)
        and (record.status is WorkerStatus.LOST or (_never_starts(record) and name not in loads))
    )


def _never_starts(record: SliceRecord) -> bool:
    return record.failures >= START_TRIES and record.status is not WorkerStatus.READY
