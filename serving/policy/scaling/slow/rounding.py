"""The slow plan for thousands of models: each takes one whole cover of its rows, by prices that clear.

A corner of the linear program of `clearing.py` splits no more models than it has rows that bind, a handful
out of thousands. Those are planned by the integer program of `program.py`. To make room for them, models
whose second best cover costs hardly more at the clearing prices may take another in it; all others keep
theirs.
"""

from dataclasses import dataclass

import numpy as np

from serving.policy.scaling.slow.clearing import Cleared, clear
from serving.policy.scaling.slow.covers import Covers, make_covers, thin
from serving.policy.scaling.slow.problem import ScalingProblem
from serving.policy.scaling.slow.program import Left, ProgramDraft, Size, useful
from serving.policy.scaling.slow.tables import Ints

YIELDING = 30
COVERS = 3
"""So many models make room, with up to so many covers each."""
OFFERS = 6
"""Of a model that is split: those of its best covers."""
NODES_MAX = 10
"""Branches of the program: whatever is found by then does."""
AROUND = (0.0, 0.75, 1.0, 1.25)
"""Where classes of pools begin, in multiples of the pool that a model has in the mixture."""
_WHOLE = 1 - 1e-6


@dataclass(frozen=True, slots=True)
class Rounded:
    """`replicas` by offer; `bound`: what covers cost at least where models may be split among them."""

    replicas: Ints
    bound: float


def round_covers(problem: ScalingProblem) -> Rounded:
    """Return whole replicas for every claim. Deterministic."""
    every = thin(problem, make_covers(problem))
    nothing = np.zeros(len(problem.offers.keys), np.int64)
    if not len(every.claim):
        return Rounded(nothing, 0.0)
    cleared = clear(problem, every)
    whole = np.flatnonzero(cleared.shares > _WHOLE)
    split = np.setdiff1d(every.claim, every.claim[whole])
    yielding = _yielding(every, cleared, whole) if len(split) else split
    kept = whole[~np.isin(every.claim[whole], yielding)]
    replicas = nothing.copy()
    np.add.at(replicas, every.main[kept], every.count[kept])
    np.add.at(replicas, every.side[kept], every.beside[kept])
    if len(split):
        replicas += _settle(problem, every, cleared, split, yielding, replicas)
    return Rounded(replicas, cleared.bound)


def _yielding(every: Covers, cleared: Cleared, whole: Ints) -> Ints:
    """Return the claims that lose least by taking their second best cover, of those that are not split."""
    others = np.setdiff1d(np.arange(len(every.claim)), whole)
    order = others[np.lexsort((cleared.reduced[others], every.claim[others]))]
    owners, firsts = np.unique(every.claim[order], return_index=True)
    second = dict(zip(owners.tolist(), cleared.reduced[order[firsts]].tolist(), strict=True))
    loss = {
        claim: second[claim] - best
        for claim, best in zip(every.claim[whole].tolist(), cleared.reduced[whole].tolist(), strict=True)
        if claim in second
    }
    return np.array(sorted(loss, key=lambda claim: (loss[claim], claim))[:YIELDING], np.int64)


def _settle(
    problem: ScalingProblem, every: Covers, cleared: Cleared, split: Ints, yielding: Ints, kept: Ints
) -> Ints:
    """Return the replicas of those that are split and of those that make room, beside what the others
    keep."""
    mixed = np.bincount(every.claim, cleared.shares * (every.count + every.beside), len(problem.claims.each))
    draft = ProgramDraft(problem, _left(problem, kept))
    for claim in split.tolist():
        near = _best(every, cleared, claim, OFFERS)
        offers = np.unique(np.concatenate([every.main[near], every.side[near]]))
        draft.add(claim, _sizes(float(mixed[claim]), useful(problem, claim)), offers)
    for claim in yielding.tolist():
        draft.pick(every, _best(every, cleared, claim, COVERS))
    found = draft.solve(NODES_MAX)
    return np.zeros(len(kept), np.int64) if found is None else found


def _best(every: Covers, cleared: Cleared, claim: int, count: int) -> Ints:
    """Return the covers of a claim that cost least at the clearing prices."""
    places = np.flatnonzero(every.claim == claim)
    return np.asarray(places[np.argsort(cleared.reduced[places], kind="stable")[:count]])


def _sizes(mixed: float, most: int) -> list[Size]:
    """Return classes of sizes, narrow near the mixture. Each has the pace of its least, so what is planned is
    carried."""
    begins = sorted({min(max(round(part * mixed), 1), max(most, 1)) for part in AROUND})
    ends = [*(begin - 1 for begin in begins[1:]), max(most, begins[-1])]
    return [Size(least, last, least) for least, last in zip(begins, ends, strict=True)]


def _left(problem: ScalingProblem, replicas: Ints) -> Left:
    kind, kinds = problem.offers.kind, problem.kinds
    used = np.bincount(kind, replicas, minlength=len(kinds.names)).astype(np.int64)
    return Left(kinds.count - used, max(problem.cost_max - float((kinds.paid * used).sum()), 0.0))
