"""MIG-Serving's greedy: the configuration that completes most, then the tail."""

from itertools import product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from loadtests.virtual.baselines.mig_serving import Greedy, solve
from serving.policy.placement.terms.geometry import A100_80, maximal_multisets
from tests.loadtests.virtual.baselines.models import asks, cut, on_mig

NAMES = tuple(each.name for each in A100_80)
MULTISETS = [each for each in maximal_multisets(A100_80) if len(each) <= 4]
UTILITIES = st.lists(
    st.lists(st.sampled_from((0.0, 0.05, 0.1, 0.3, 0.7)), min_size=len(NAMES), max_size=len(NAMES)),
    min_size=1,
    max_size=3,
)


@given(UTILITIES)
@settings(max_examples=15)
def test_each_whole_gpu_is_the_best_for_at_most_two_models(utilities: list[list[float]]) -> None:
    """Against every way to give every instance to one of all models."""
    greedy = Greedy(NAMES, MULTISETS, np.array(utilities))
    lacking = [1.0] * len(utilities)
    for _ in range(3):
        gpu = greedy.whole()
        best = max(
            (_score(utilities, lacking, multiset, who) for multiset, who in _ways(len(utilities))),
            default=0.0,
        )
        assert _score(utilities, lacking, *_as_way(gpu)) >= best - 1e-9
        for model, name in gpu:
            lacking[model] -= utilities[model][NAMES.index(name)]


def _ways(models: int) -> list[tuple[tuple[str, ...], tuple[int, ...]]]:
    return [
        (each, who)
        for each in MULTISETS
        for who in product(range(models), repeat=len(each))
        if len(set(who)) <= 2
    ]


def _as_way(gpu: list[tuple[int, str]]) -> tuple[tuple[str, ...], tuple[int, ...]]:
    return tuple(name for _, name in gpu), tuple(model for model, _ in gpu)


def _score(
    utilities: list[list[float]], lacking: list[float], names: tuple[str, ...], who: tuple[int, ...]
) -> float:
    """0 where a model would get more than it lacks or what it cannot run on."""
    parts = [0.0] * len(utilities)
    for name, model in zip(names, who, strict=True):
        part = utilities[model][NAMES.index(name)]
        parts[model] += part
        if not part:
            return 0.0
    if any(part > left + 1e-9 for part, left in zip(parts, lacking, strict=True)):
        return 0.0
    return sum(part * left for part, left in zip(parts, lacking, strict=True))


def test_two_models_that_fill_a_gpu_have_it_whole() -> None:
    problem = on_mig(asks("a", 40, {4: 40.0, 7: 60.0}), asks("b", 30, {3: 30.0, 7: 60.0}))
    (gpu,) = cut(solve(problem))
    assert sorted(gpu) == [("a", 4), ("b", 3)]


def test_the_tail_mixes_as_many_models_as_there_are_instances() -> None:
    problem = on_mig(*(asks(name, 1, {1: 10.0}) for name in "abcdefg"))
    assert cut(solve(problem)) == [[(name, 1) for name in "abcdefg"]]


def test_the_tail_has_no_instance_that_nobody_needs() -> None:
    assert cut(solve(on_mig(asks("a", 25, {1: 10.0})))) == [[("a", 1)] * 3]
