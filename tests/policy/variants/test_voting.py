"""Votes are counted as they say, and panels are worth what is measured of them, also where errors agree."""

from fractions import Fraction
from itertools import combinations
from math import sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import betaincinv

from serving.policy.variants.voting import MEMBERS_MAX, Panel, convene, vote, weigh
from serving.values.specs import Validation

CLASSES = 4


def decide_by_hand(labels: list[int], weights: list[int]) -> tuple[int, Fraction]:
    """One row: most weight; of equals the largest single weight; of equals who comes first."""
    totals: dict[int, int] = {}
    single: dict[int, tuple[int, int]] = {}
    for place, (label, weight) in enumerate(zip(labels, weights, strict=True)):
        totals[label] = totals.get(label, 0) + weight
        single[label] = max(single.get(label, (0, 0)), (weight, -place))
    won = max(totals, key=lambda label: (totals[label], single[label]))
    return won, Fraction(totals[won], sum(weights))


BALLOTS = st.integers(1, 5).flatmap(
    lambda members: st.lists(
        st.tuples(
            st.lists(st.integers(0, CLASSES - 1), min_size=members, max_size=members),
            st.lists(st.integers(1, 4), min_size=members, max_size=members),
        ),
        min_size=1,
        max_size=5,
    )
)


@given(BALLOTS)
def test_votes_are_counted_as_by_hand_ties_included(rows: list[tuple[list[int], list[int]]]) -> None:
    named = np.array([labels for labels, _ in rows]).T
    weights = np.array([weights for _, weights in rows], float).T
    counted = vote(named, weights, CLASSES)
    for row, (labels, weight) in enumerate(rows):
        won, share = decide_by_hand(labels, weight)
        assert counted.named[row] == won
        assert counted.confidence[row] == pytest.approx(float(share))
        assert counted.totals[row].sum() == pytest.approx(1)
        assert labels[counted.heaviest[row]] == won


@given(st.lists(st.integers(0, 2), min_size=1, max_size=7))
def test_equal_weights_are_a_plain_majority(labels: list[int]) -> None:
    counted = vote(np.array(labels)[:, None], np.full((len(labels), 1), 0.7), 3)
    most = max(labels.count(label) for label in labels)
    assert counted.named[0] == next(label for label in labels if labels.count(label) == most)


def test_a_missing_vote_takes_confidence_and_changes_no_decision() -> None:
    named, weights = np.array([[1], [1], [2]]), np.array([[0.5], [0.5], [0.5]])
    whole, part = vote(named, weights, 3), vote(named, weights, 3, absent=0.5)
    assert (whole.named[0], part.named[0]) == (1, 1)
    assert whole.confidence[0] == pytest.approx(2 / 3)
    assert part.confidence[0] == pytest.approx(1 / 2)


def test_a_weight_is_the_share_of_its_class_that_is_named_right() -> None:
    labels, named = np.array([0] * 50 + [1] * 50), np.array([[0] * 90 + [1] * 10])
    right, wrong, never = weigh(labels, named, 3)[0]
    assert right == pytest.approx(1, abs=0.02)
    assert wrong == pytest.approx(0.2, abs=0.02)
    assert never == pytest.approx(0.6, abs=0.02)  # of all: nothing else is known


def drawn(seed: int, accuracies: list[float], rho: float, rows: int, classes: int = 5) -> Validation:
    """Members whose errors agree: of each row all share the quantile of how easy it is, so that of equally
    accurate members the number that is right is beta-binomial with the correlation `rho`."""
    numbers = np.random.default_rng(seed)
    labels = numbers.integers(0, classes, rows)
    mean = np.array(accuracies)[:, None]
    easy = mean
    if rho:
        easy = betaincinv(mean * (1 / rho - 1), (1 - mean) * (1 / rho - 1), numbers.random(rows))
    right = numbers.random((len(accuracies), rows)) < easy
    wrong = (labels + numbers.integers(1, classes, (len(accuracies), rows))) % classes
    named = np.where(right, labels, wrong)
    told = tuple((f"m{place}", tuple(map(int, each))) for place, each in enumerate(named))
    return Validation(tuple(map(int, labels)), told)


def split(whole: Validation, first: int) -> tuple[Validation, Validation]:
    def part(rows: slice) -> Validation:
        return Validation(whole.labels[rows], tuple((name, each[rows]) for name, each in whole.predictions))

    return part(slice(0, first)), part(slice(first, None))


def judged(panel: Panel, held: Validation, subset: tuple[int, ...]) -> float:
    """Of a subset's votes, with the panel's weights, on rows that it has never seen."""
    told = dict(held.predictions)
    named = np.array([told[panel.members[place]] for place in subset])
    weights = np.take_along_axis(panel.weights[[*subset]], named, 1)
    return float((vote(named, weights, 5).named == np.array(held.labels)).mean())


MEMBERS = ("m0", "m1", "m2", "m3", "m4")
COSTS = [5.0, 4.0, 3.0, 2.0, 1.0]


@pytest.mark.parametrize("rho", [0.0, 0.3, 0.6])
@pytest.mark.parametrize("seed", range(3))
def test_pruning_keeps_the_accuracy_on_unseen_rows_however_errors_agree(rho: float, seed: int) -> None:
    known, held = split(drawn(seed, [0.82, 0.8, 0.78, 0.76, 0.74], rho, 8000), 2000)
    panel = convene(known, MEMBERS, 5)
    pruned = panel.cheapest(0.0, COSTS)
    assert sum(COSTS[place] for place in pruned) <= sum(COSTS[place] for place in panel.whole)
    noise = 2 * panel.error  # of 2000 rows
    assert judged(panel, held, pruned) >= panel.accuracy[panel.whole] - panel.error - noise
    for subset, accuracy in panel.accuracy.items():
        error = sqrt(accuracy * (1 - accuracy) / 2000)
        assert judged(panel, held, subset) == pytest.approx(accuracy, abs=4 * error)


def test_joint_accuracy_is_measured_for_the_binomial_promises_more_where_errors_agree() -> None:
    three, places = ("m0", "m1", "m2"), (0, 1, 2)
    apart = convene(drawn(1, [0.8] * 3, 0.0, 4000), three, 5).accuracy[places]
    together = convene(drawn(1, [0.8] * 3, 0.6, 4000), three, 5).accuracy[places]
    binomial = 0.8**3 + 3 * 0.8**2 * 0.2
    assert apart >= binomial - 0.02
    assert together < binomial - 0.02


@settings(max_examples=30)
@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.3, 0.6]), st.floats(0.5, 0.95))
def test_who_answers_keeps_the_floor_or_nobody_could(seed: int, rho: float, floor: float) -> None:
    panel = convene(drawn(seed, [0.6, 0.7, 0.8], rho, 100), MEMBERS[:3], 5)
    top = panel.accuracy_max
    for chosen in (panel.best(floor), panel.cheapest(floor, COSTS[:3]), panel.within((0, 2), floor)):
        assert not chosen or panel.accuracy[chosen] >= floor - 1e-9
    assert bool(panel.best(floor)) == bool(panel.cheapest(floor, COSTS[:3])) == (top >= floor - 1e-9)
    assert set(panel.within((0, 2), floor)) <= {0, 2}


@settings(max_examples=30)
@given(st.integers(0, 10_000), st.lists(st.integers(1, 9), min_size=3, max_size=3))
def test_pruned_is_the_cheapest_of_all_subsets_that_keep_the_floor(seed: int, costs: list[int]) -> None:
    panel = convene(drawn(seed, [0.6, 0.7, 0.8], 0.3, 100), MEMBERS[:3], 5)
    chosen = panel.cheapest(0.7, costs)
    prices = [
        sum(costs[place] for place in subset)
        for size in (1, 2, 3)
        for subset in combinations(range(3), size)
        if panel.accuracy[subset] >= 0.7
    ]
    assert (sum(costs[place] for place in chosen) if chosen else None) == min(prices, default=None)


@settings(max_examples=30)
@given(st.integers(0, 10_000))
def test_the_panel_is_never_worse_than_its_best_member_on_validation_data(seed: int) -> None:
    panel = convene(drawn(seed, [0.6, 0.7, 0.9], 0.3, 60), MEMBERS[:3], 5)
    assert panel.accuracy[panel.whole] >= max(panel.accuracy[(place,)] for place in range(3))


def test_members_without_validation_data_and_too_many_are_refused_with_words() -> None:
    known = drawn(0, [0.8] * 2, 0.0, 20)
    with pytest.raises(ValueError, match=r"predictions.*none of nobody"):
        convene(known, ("m0", "nobody"), 5)
    with pytest.raises(ValueError, match=rf"1 to {MEMBERS_MAX} members.*got 9"):
        convene(known, ("m0",) * (MEMBERS_MAX + 1), 5)
    with pytest.raises(ValueError, match="tells 2 classes"):
        convene(known, ("m0",), 2)
