"""How much of its SLO a batch may take where several replicas answer a model: more than half.

n replicas that work off one queue start batches n times as often. A request waits for the next start, one
n-th of a batch, then for its own batch: l * (1 + 1/n) within the SLO, so l may take n / (n + 1) of it; for
one replica that is Nexus's half (SOSP 2019, section 6.1). Larger batches carry more, so fewer replicas may
do, and with those a batch may take less: `check.faults` holds every placement against those that it has.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from serving.policy.placement.plan import Placement, residents
from serving.policy.placement.problem import SLACK, PlacementProblem

SPARE = 2 * SLACK
"""Of the SLO, what is planned with at all: that with which one replica comes to SLACK."""


def slack_of(replicas: int) -> float:
    """Of the SLO, what a batch may take where so many replicas answer alike."""
    return SPARE * replicas / (replicas + 1)


def pooled(problem: PlacementProblem, placement: Placement) -> PlacementProblem:
    """The problem with the slack that each model has by the replicas of `placement` that are alone on their
    slices. A model with a replica in turns with others keeps its slack, as the others' batches are in its
    way, and so does one whose slack was set to another than SLACK."""
    alone = _alone(placement)
    return replace(
        problem,
        demands=tuple(
            replace(each, slack=slack_of(alone[each.model]))
            if alone.get(each.model, 0) > 1 and each.slack == SLACK
            else each
            for each in problem.demands
        ),
    )


def _alone(placement: Placement) -> Mapping[str, int]:
    """Replicas by model, 0 where one of them shares its slice."""
    found: Counter[str] = Counter()
    sharing: set[str] = set()
    for _, slot, resident in residents(placement):
        found[resident.model] += resident.option.streams
        if len(slot.residents) > 1:
            sharing.add(resident.model)
    return {model: 0 if model in sharing else count for model, count in found.items()}
