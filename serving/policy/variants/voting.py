"""One answer out of several members': a weighted majority, and which members it takes.

After Cocktail (NSDI 2022): a member's vote weighs what the member is worth on the class that it names. What
members are worth together is measured by letting them vote on validation rows; the binomial formula of the
paper takes their errors for independent, which they never are, and promises too much.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import sqrt

import numpy as np
import numpy.typing as npt

from serving.values.specs import Validation

MEMBERS_MAX = 8  # all their subsets are measured, 255; a ninth would double what a start takes
_ROUNDING = 1e-9

Classes = npt.NDArray[np.int64]
Weights = npt.NDArray[np.float64]
Subset = tuple[int, ...]
"""Places of members in their panel, ascending."""


@dataclass(frozen=True, slots=True, eq=False)
class Vote:
    """`named` `[rows]`: the classes decided on; `confidence` `[rows]`: the share of all weight that agrees.
    `totals` `[rows, classes]`: the weight of each class, 1 in all. `heaviest` `[rows]`: the member with the
    vote that prevailed, by its place."""

    named: Classes
    confidence: Weights
    totals: Weights
    heaviest: npt.NDArray[np.intp]


def vote(named: Classes, weights: Weights, classes: int, absent: float = 0.0) -> Vote:
    """Count the votes of members on rows: both arrays are `[members, rows]`, weights above 0. `absent`: the
    weight of members that were asked and did not vote; it agrees with no class.

    Ties go to the class with the largest single weight, then to the class of the earliest member.
    """
    places = np.arange(named.shape[1])
    totals = np.zeros((len(places), classes))
    for each, weight in zip(named, weights, strict=True):
        totals[places, each] += weight
    leads = totals[places, named] == totals.max(1)
    heaviest = np.where(leads, weights, -1.0).argmax(0)  # the first of equals
    decided = named[heaviest, places]
    cast = totals.sum(1)
    confidence = totals[places, decided] / (cast + absent)
    return Vote(decided, confidence, totals / cast[:, None], heaviest)


def weigh(labels: Classes, named: Classes, classes: int) -> Weights:
    """Return the weight of members by class, `[members, classes]`: the share of the rows of a class that the
    member names right. The member's share over all classes counts as one more row of each class: little is
    known of a class that hardly occurs."""
    right = named == labels
    overall = (right.sum(1) + 1) / (len(labels) + 2)  # Laplace's rule: never 0
    of_class = labels == np.arange(classes)[:, None]  # [classes, rows]
    hits = right.astype(float) @ of_class.T.astype(float)
    worth: Weights = (hits + overall[:, None]) / (of_class.sum(1) + 1)
    return worth


@dataclass(frozen=True, slots=True, eq=False)
class Panel:
    """Members that vote. `weights` as of `weigh`, fitted on all validation rows; `accuracy`: of every subset,
    the joint one, of votes on rows that their weights were not fitted on; `whole`: the subset that answers
    where nothing presses; `error`: the standard error of its accuracy."""

    members: tuple[str, ...]
    weights: Weights
    accuracy: Mapping[Subset, float]
    whole: Subset
    error: float

    @property
    def accuracy_max(self) -> float:
        """The highest floor that it can keep."""
        return max(self.accuracy.values())

    def best(self, floor: float = 0.0) -> Subset:
        """Return the members that answer if nothing presses: `whole` if it keeps the floor, else as `within`
        all members."""
        if self._keeps(self.whole, floor):
            return self.whole
        return self.within(tuple(range(len(self.members))), floor)

    def cheapest(self, floor: float, costs: Sequence[float]) -> Subset:
        """Return the members that answer under pressure: the cheapest of the subsets that keep the floor, of
        equals the most accurate. Return () if none does. Without a floor (0), one standard error below
        `whole` is kept. `costs`: of each member."""
        least = floor or self.accuracy[self.whole] - self.error
        kept = [subset for subset in self.accuracy if self._keeps(subset, least)]
        return min(kept, key=lambda each: (sum([costs[m] for m in each]), -self.accuracy[each]), default=())

    def within(self, voted: Subset, floor: float = 0.0) -> Subset:
        """Return the members that count if only those in `voted` have voted: all, if they keep the floor
        together. Else return the most accurate of their subsets, the smallest of equals; () if none keeps the
        floor."""
        if self._keeps(voted, floor):
            return voted
        subsets = [each for each in self.accuracy if set(each) <= set(voted)]
        top = max(subsets, key=lambda subset: (self.accuracy[subset], -len(subset)))
        return top if self._keeps(top, floor) else ()

    def _keeps(self, subset: Subset, floor: float) -> bool:
        return self.accuracy[subset] >= floor - _ROUNDING


def convene(validation: Validation, members: Sequence[str], classes: int) -> Panel:
    """Return the panel of these variants, which tell `classes` classes apart. Raises ValueError if they are
    too many, or the validation data does not fit them.

    Rows with an odd place are judged by rows with an even one, and the other way round. The panel of all
    members is preferred to a subset, with two exceptions. One is that the subset is more accurate by over a
    standard error of the difference. (Of 255 measured subsets one always looks better.) The other is that one
    member alone is more accurate.
    """
    told = dict(validation.predictions)
    missing = [name for name in members if name not in told]
    if missing or not members or len(members) > MEMBERS_MAX or not validation.labels:
        wanted = f"an ensemble takes 1 to {MEMBERS_MAX} members, each with predictions of validation rows"
        raise ValueError(f"{wanted}; got {len(members)}, and none of {', '.join(missing) or 'any'}")
    labels = np.array(validation.labels)
    named = np.array([told[name] for name in members])
    if max(labels.max(), named.max()) >= classes:
        what = f"class {max(labels.max(), named.max())}"
        raise ValueError(f"validation data names {what}; the output tells {classes} classes, from 0 on")
    right = _judge(labels, named, classes)
    accuracy = {subset: float(each.mean()) for subset, each in right.items()}
    every = tuple(range(len(members)))
    whole = max(accuracy, key=lambda subset: (accuracy[subset], -len(subset)))
    alone = max(accuracy[(member,)] for member in every)
    if accuracy[every] >= alone and _surplus(right[whole], right[every]) <= 0:
        whole = every
    error = sqrt(accuracy[whole] * (1 - accuracy[whole]) / len(labels))
    return Panel(tuple(members), weigh(labels, named, classes), accuracy, whole, error)


def _judge(labels: Classes, named: Classes, classes: int) -> dict[Subset, npt.NDArray[np.bool_]]:
    """Return, for every subset, which rows it names right; smaller subsets first."""
    halves = np.arange(len(labels)) % 2 == 0
    weights = np.empty(named.shape)
    for judged in (halves, ~halves):
        fitted = weigh(labels[~judged], named[:, ~judged], classes)
        weights[:, judged] = np.take_along_axis(fitted, named[:, judged], 1)
    subsets = [
        subset for size in range(1, len(named) + 1) for subset in combinations(range(len(named)), size)
    ]
    return {each: vote(named[[*each]], weights[[*each]], classes).named == labels for each in subsets}


def _surplus(right: npt.NDArray[np.bool_], other: npt.NDArray[np.bool_]) -> float:
    """Return by how much the accuracy is above the other's, less a standard error of the (paired)
    difference."""
    difference = right.astype(float) - other
    return float(difference.mean() - difference.std() / sqrt(len(difference)))
