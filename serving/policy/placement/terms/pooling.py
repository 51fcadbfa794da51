"""The part of its SLO that a batch may take if several replicas answer a model: more than half.

n replicas that take work from one queue start batches n times as often. A request waits for the next start,
one n-th of a batch, then for its own batch. That is l * (1 + 1/n) within the SLO, so l may take n / (n + 1)
of the SLO. For one replica, that is Nexus's half (SOSP 2019, section 6.1).

Larger batches carry more, so fewer replicas may be enough. With fewer replicas, a batch may take less. So
`check.faults` checks every placement by the replicas that it has.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from serving.policy.placement.terms.plan import Placement, residents
from serving.policy.placement.terms.problem import SLACK, PlacementProblem

SPARE = 2 * SLACK
"""The part of the SLO that is planned with at all. With it, `slack_of(1)` is SLACK."""


def slack_of(replicas: int) -> float:
    """Return the part of the SLO that a batch may take if `replicas` replicas answer a model."""
    return SPARE * replicas / (replicas + 1)


def pooled(problem: PlacementProblem, placement: Placement) -> PlacementProblem:
    """Return the problem with the slack that each model gets from its replicas in `placement`.

    Only replicas that are alone on their slices count. A model with a replica in turns with others keeps its
    slack, because the others' batches are in its way. A model with a slack other than SLACK keeps it too.
    """
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
    """Return the number of replicas of each model, or 0 if one of them shares its slice."""
    found: Counter[str] = Counter()
    sharing: set[str] = set()
    for _, slot, resident in residents(placement):
        found[resident.model] += resident.option.processes
        if len(slot.residents) > 1:
            sharing.add(resident.model)
    return {model: 0 if model in sharing else count for model, count in found.items()}
