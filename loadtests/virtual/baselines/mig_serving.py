"""MIG-Serving's fast algorithm (Tan et al., arXiv 2109.11067): greedy over whole GPU configurations.

A configuration is a GPU cut in full, with a model on each instance. It carries u of a model, as a share of
the model's rate. If c of each model is carried already, the next configuration is the one with the largest
sum((1 - c) * u). At most two models are on a GPU, because all mixtures are too many.

The tail is packed when every such configuration would carry more of a model than it lacks. Then each instance
goes to the model that it scores most for, with any number of models on a GPU. Instances that no model needs
are left out.

The paper goes on to its slow algorithm, a genetic algorithm over trees searched by Monte Carlo. That takes
minutes for what `exact` proves in seconds, so it is not here. There is no public code, so where the two
phases part is an interpretation of the text.
"""

from collections.abc import Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from loadtests.virtual.baselines.pools import NEAR, each_pool, offers
from loadtests.virtual.baselines.segments import alone
from serving.policy.placement.terms.geometry import Multiset, maximal_multisets
from serving.policy.placement.terms.plan import Draft, Slot
from serving.policy.placement.terms.problem import Instances, PlacementProblem, Pool

Floats = NDArray[np.float64]
Given = list[tuple[int, str]]
"""What a GPU is cut into: (place of the model, profile)."""


def solve(problem: PlacementProblem) -> Draft:
    """Return a draft on pools of MIG devices. Other pools are not used."""
    return each_pool(problem, "mig_serving", _pack)


def _pack(problem: PlacementProblem, pool: Pool) -> Sequence[tuple[Slot, ...]]:
    if not isinstance(pool.division, Instances):
        return []
    best = [{offer.option.share.label: offer for offer in offers(pool, each)} for each in problem.demands]
    geometry = tuple(each for each in pool.division.geometry if any(each.name in found for found in best))
    if not geometry:
        return []
    names = tuple(each.name for each in geometry)
    utility = np.array(
        [
            [found[name].throughput / each.rate if name in found else 0.0 for name in names]
            for each, found in zip(problem.demands, best, strict=True)
        ]
    )
    greedy = Greedy(names, maximal_multisets(geometry), utility)
    gpus: list[Given] = []
    while len(gpus) < len(pool.devices):
        gpu = greedy.whole() or greedy.tail()
        if not gpu:
            break
        gpus.append(gpu)
    return [
        tuple(alone(problem.demands[model].model, best[model][name]) for model, name in gpu) for gpu in gpus
    ]


class Greedy:
    """What each model lacks while GPUs are bought.

    `utility`: by model and profile, what an instance carries as a share of the model's rate. It is 0 if the
    model cannot run there.
    """

    def __init__(self, names: Sequence[str], multisets: Sequence[Multiset], utility: Floats) -> None:
        nobody = np.zeros((1, len(names)))  # paired with it, a model has a GPU alone
        self._names = names
        self._multisets = multisets
        self._utility = np.vstack([utility, nobody])
        self._lacking = np.ones(len(self._utility))
        self._splits = _splits(names, multisets)
        unable = self._utility == 0
        self._able = [unable @ (split > 0).T == 0 for split in self._splits]
        self._parts = [self._utility @ split.T for split in self._splits]
        self._scores = [np.empty_like(part) for part in self._parts]
        self._pairs = np.empty((len(self._utility), len(self._utility)))
        self._refresh(range(len(self._utility)))

    def whole(self) -> Given:
        """Return the next GPU for two models, or for one, that need all of it; empty if there is none."""
        pair = [int(place) for place in np.unravel_index(int(np.argmax(self._pairs)), self._pairs.shape)]
        if self._pairs[pair[0], pair[1]] <= 0:
            return []
        split = int(np.argmax(self._scores[0][pair[0]] + self._scores[1][pair[1]]))
        given: Given = []
        for model, parts, splits in zip(pair, self._parts, self._splits, strict=True):
            for name, count in zip(self._names, splits[split], strict=True):
                given += [(model, name)] * int(count)
            self._lacking[model] = _less(self._lacking[model], parts[model, split])
        self._refresh(pair)
        return given

    def tail(self) -> Given:
        """Return the next GPU for any number of models.

        It is empty if no model lacks anything that it can have.
        """
        packed = [self._filled(multiset) for multiset in self._multisets]
        _, given, lacking = max(packed, key=lambda each: each[0])
        self._lacking = lacking
        return given

    def _filled(self, multiset: Multiset) -> tuple[float, Given, Floats]:
        """Return (its score, the model of each of its instances, what is lacking then)."""
        lacking, given, score = self._lacking.copy(), [], 0.0
        for name in multiset:
            utility = self._utility[:, self._names.index(name)]
            gains = lacking * np.minimum(utility, lacking)
            model = int(np.argmax(gains))
            if gains[model] > 0:
                given.append((model, name))
                score += gains[model]
                lacking[model] = _less(lacking[model], utility[model])
        return score, given, lacking

    def _refresh(self, models: Sequence[int]) -> None:
        """Score again the configurations of these models with each other model.

        A configuration that would carry more than is lacking does not count.
        """
        for scores, parts, able in zip(self._scores, self._parts, self._able, strict=True):
            for model in models:
                lacking = self._lacking[model]
                fits = able[model] & (parts[model] <= lacking + NEAR)
                scores[model] = np.where(fits, lacking * parts[model], -np.inf)
        for model in models:
            self._pairs[model] = (self._scores[0][model] + self._scores[1]).max(axis=1)
            self._pairs[:, model] = self._pairs[model]  # splits come with their mirror images
            self._pairs[model, model] = -np.inf


def _splits(names: Sequence[str], multisets: Sequence[Multiset]) -> tuple[Floats, Floats]:
    """Return every way to deal the instances of a multiset to two models.

    The result is (the first model's, the second model's) instances, each by way and profile.
    """
    found = []
    for multiset in multisets:
        counts = [multiset.count(name) for name in names]
        found += [(one, counts) for one in product(*(range(count + 1) for count in counts))]
    ones = np.array([one for one, _ in found], dtype=np.float64)
    return ones, np.array([counts for _, counts in found], dtype=np.float64) - ones


def _less(lacking: float, carried: float) -> float:
    """Return the demand still lacking after `carried` is taken off; a rest of at most NEAR is 0."""
    left = lacking - carried
    return left if left > NEAR else 0.0
