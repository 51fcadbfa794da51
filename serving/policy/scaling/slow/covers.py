"""Covers: n replicas of one offer, as many as carry all rows of a model off one queue, by the table.

Pooling and whole replicas are in a cover, so that nobody has to guess a pace. Where `least` replicas are to
be on slices that are not spot, a cover of spot slices has these beside it.
"""

from dataclasses import dataclass
from math import inf

import numpy as np

from serving.policy.scaling.slow.objective_value import NOTHING
from serving.policy.scaling.slow.problem import ScalingProblem
from serving.policy.scaling.slow.tables import NEAR, Floats, Ints


@dataclass(frozen=True, slots=True)
class Covers:
    """By cover, sorted by claim: `count` replicas of the offer `main` and `beside` of the offer `side`, the
    kinds of these, the accuracy that is lost, and what all that costs in the plan's currency (`worth`)."""

    claim: Ints
    main: Ints
    count: Ints
    side: Ints
    beside: Ints
    main_kind: Ints
    side_kind: Ints
    loss: Floats
    cost: Floats

    def at(self, places: Ints) -> "Covers":
        """Return the covers at `places`."""
        return Covers(
            self.claim[places],
            self.main[places],
            self.count[places],
            self.side[places],
            self.beside[places],
            self.main_kind[places],
            self.side_kind[places],
            self.loss[places],
            self.cost[places],
        )

    def used(self, problem: ScalingProblem) -> Floats:
        """Return what of each kind a cover uses, and what it is paid for an hour in the last column."""
        kinds = problem.kinds
        found = np.zeros((len(self.claim), len(kinds.names) + 1))
        rows = np.arange(len(self.claim))
        found[rows, self.main_kind] = self.count
        found[rows, self.side_kind] += self.beside
        found[:, -1] = found[:, :-1] @ kinds.paid
        return found


def make_covers(problem: ScalingProblem) -> Covers:
    """Return one cover by each offer. For each claim that has an offer, add one cover of its least replicas
    and one of none."""
    offers, claims = problem.offers, problem.claims
    base = _bases(problem)
    main = np.arange(len(offers.keys))
    held = np.where(claims.firm, claims.least, 0)[offers.claim]
    beside = np.where(problem.kinds.spot[offers.kind], held, 0)
    side = np.where(beside > 0, base[offers.claim], main)
    least = np.where(beside > 0, 0, claims.least[offers.claim])
    count = np.clip(_count(problem, main, side, beside), least, claims.most[offers.claim] - beside)
    owners = np.flatnonzero(base >= 0)
    none = np.zeros(len(owners), np.int64)
    main = np.concatenate([main, base[owners], base[owners]])
    count = np.concatenate([count, claims.least[owners], none])
    side = np.concatenate([side, base[owners], base[owners]])
    beside = np.concatenate([beside, none, none])
    order = np.argsort(offers.claim[main], kind="stable")
    return _weighed(problem, main[order], count[order], side[order], beside[order])


def thin(problem: ScalingProblem, every: Covers) -> Covers:
    """Return the covers without those that have another of the same claim that is as good. It is no dearer,
    and on no more slices of the same kind, or on kinds with enough slices for all."""
    most = np.zeros((len(problem.claims.each), len(problem.kinds.names)))
    np.maximum.at(most, (every.claim, every.main_kind), every.count)
    np.maximum.at(most, (every.claim, every.side_kind), every.beside)
    plenty = (most.sum(axis=0) <= problem.kinds.count) & (problem.cost_max == inf)
    free = plenty[every.main_kind] & (plenty[every.side_kind] | (every.beside == 0))
    group = np.where(free, -1, every.main_kind * 2 + (every.beside > 0))
    count = np.where(free, 0, every.count)
    order = np.lexsort((count, every.cost, group, every.claim))
    first = np.flatnonzero(_changes(every.claim[order]) | _changes(group[order]))
    size = np.diff(np.append(first, len(order)))
    fewest = np.full(len(first), inf)
    kept = np.zeros(len(order), bool)
    for rank in range(int(size.max(initial=0))):
        here = np.flatnonzero(size > rank)
        number = count[order[first[here] + rank]]
        kept[first[here] + rank] = number < fewest[here]
        fewest[here] = np.minimum(fewest[here], number)
    return every.at(order[kept])


def _changes(values: Ints) -> Ints:
    return np.concatenate([[True], values[1:] != values[:-1]])


def _bases(problem: ScalingProblem) -> Ints:
    """Return, by claim, the cheapest offer, on a kind that is not spot if there is one; -1 for none."""
    offers, kinds = problem.offers, problem.kinds
    order = np.lexsort((offers.loss, kinds.price[offers.kind], kinds.spot[offers.kind], offers.claim))
    found = np.full(len(problem.claims.each), -1, np.int64)
    owners, firsts = np.unique(offers.claim[order], return_index=True)
    found[owners] = order[firsts]
    return found


def _count(problem: ScalingProblem, main: Ints, side: Ints, beside: Ints) -> Ints:
    """Return how many of the main offer carry what those beside do not."""
    rate = problem.claims.rate[problem.offers.claim[main]]
    count = problem.offers.needed(main, rate)
    mixed = np.flatnonzero(beside > 0)
    for _ in range(2):  # too few, at the pace of a pool too large; then, at the pace of that, enough
        pool = count[mixed] + beside[mixed]
        rest = rate[mixed] - beside[mixed] * problem.offers.pace(side[mixed], pool)
        count[mixed] = np.clip(np.ceil(rest / problem.offers.pace(main[mixed], pool) - NEAR), 0, None)
    return count


def _weighed(problem: ScalingProblem, main: Ints, count: Ints, side: Ints, beside: Ints) -> Covers:
    """Return the covers with what they cost, as `objective_value.worth` has it."""
    offers, claims, kinds = problem.offers, problem.claims, problem.kinds
    claim, main_kind, side_kind = offers.claim[main], offers.kind[main], offers.kind[side]
    asked = np.where(claims.rate[claim] > 0, 1.0, 0.0)
    rate = np.where(asked > 0, claims.rate[claim], 1.0)
    pool = count + beside
    room = count * offers.pace(main, pool) / rate
    room_beside = beside * offers.pace(side, pool) / rate
    first = offers.loss[main] <= offers.loss[side]
    better = np.minimum(np.where(first, room, room_beside), asked)
    worse = np.minimum(np.where(first, room_beside, room), asked - better)
    losses = offers.loss[main], offers.loss[side]
    loss = np.minimum(*losses) * better + np.maximum(*losses) * worse
    shed = np.where(asked - better - worse > NOTHING, asked - better - worse, 0.0)
    kept = np.where(kinds.spot[main_kind] & claims.firm[claim], 0, count) + beside
    lacking = np.maximum(claims.least[claim] - kept, 0)
    cost = claims.loss_price[claim] * loss + claims.shed_price[claim] * (shed + 2 * lacking)
    for kind, number in ((main_kind, count), (side_kind, beside)):
        more = np.where(number > 0, np.maximum(number - claims.current[claim, kind], 0), 0)
        cost += kinds.price[kind] * (number + claims.load[claim] * more)
    return Covers(claim, main, count, side, beside, main_kind, side_kind, loss, cost)
