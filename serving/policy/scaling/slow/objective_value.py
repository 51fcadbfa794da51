"""What replicas carry of each model's rows, by the tables themselves, and what that costs in the plan's
currency: every draft is held against this, whoever made it."""

from dataclasses import dataclass

import numpy as np

from serving.policy.scaling.slow.problem import ScalingProblem
from serving.policy.scaling.slow.tables import Floats, Ints

NOTHING = 1e-6
"""Of a model's rows: to shed less is none, as solvers are no more exact than that."""


@dataclass(frozen=True, slots=True)
class CarriedShares:
    """`shares` of its claim's rows by offer; `shed`, what is left of each claim's; `lacking` of its least
    replicas."""

    shares: Floats
    shed: Floats
    lacking: Ints


def carry(problem: ScalingProblem, replicas: Ints) -> CarriedShares:
    """Return the most accurate answer as many rows as they can, then the next. `replicas` by offer."""
    offers, claims = problem.offers, problem.claims
    pool = np.bincount(offers.claim, replicas, minlength=len(claims.each))
    pace = offers.pace(np.arange(len(offers.keys)), pool[offers.claim])
    rate = claims.rate[offers.claim]
    room = np.where(rate > 0, replicas * pace / np.where(rate > 0, rate, 1.0), 0.0)
    order = np.lexsort((offers.loss, offers.claim))
    filled = np.minimum(_running(room[order], offers.claim[order], problem.begins), 1.0)
    before = np.concatenate([[0.0], filled[:-1]])
    before[problem.begins[:-1][problem.begins[:-1] < len(order)]] = 0.0
    shares = np.zeros(len(order))
    shares[order] = filled - before
    shed = np.where(claims.rate > 0, 1.0 - np.bincount(offers.claim, shares, minlength=len(pool)), 0.0)
    kept = ~claims.firm[offers.claim] | ~problem.kinds.spot[offers.kind]
    counted = np.bincount(offers.claim, np.where(kept, replicas, 0), minlength=len(pool)).astype(np.int64)
    return CarriedShares(shares, np.where(shed > NOTHING, shed, 0.0), np.maximum(claims.least - counted, 0))


def worth(problem: ScalingProblem, replicas: Ints, carried: CarriedShares | None = None) -> float:
    """Return what the program minimises: the less the better."""
    offers, claims, kinds = problem.offers, problem.claims, problem.kinds
    carried = carried or carry(problem, replicas)
    lost = claims.loss_price[offers.claim] * offers.loss * carried.shares
    missing = claims.shed_price * (carried.shed + 2 * carried.lacking)
    more = np.maximum(by_kind(problem, replicas) - claims.current, 0)
    loads = (more * kinds.price).sum(axis=1) * claims.load
    return float((kinds.price[offers.kind] * replicas).sum() + lost.sum() + missing.sum() + loads.sum())


def by_kind(problem: ScalingProblem, replicas: Ints) -> Ints:
    """Return the replicas by claim and kind."""
    found = np.zeros((len(problem.claims.each), len(problem.kinds.names)), np.int64)
    np.add.at(found, (problem.offers.claim, problem.offers.kind), replicas)
    return found


def _running(values: Floats, claim: Ints, begins: Ints) -> Floats:
    """Return the sums up to each place, from the beginning of its claim."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    return np.asarray(sums[1:] - sums[begins[claim]])
