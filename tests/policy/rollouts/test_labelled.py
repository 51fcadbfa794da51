"""Evidence of labels: a pair's bet is fair, pairs tell more than single answers, and both add up."""

from math import exp, log
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.policy.rollouts.evidence import Trials
from serving.policy.rollouts.labelled import LabelledEvidence, Pairs, best_bet

counts = st.integers(0, 40)
some_pairs = st.builds(Pairs, counts, counts, counts, counts)
margins = st.sampled_from([0.0, 0.02, 0.3])


@given(some_pairs, margins, st.floats(0, 1), st.floats(0, 1))
def test_the_mean_of_the_next_factor_is_at_most_one_within_the_claim(
    seen: Pairs, margin: float, first: float, second: float
) -> None:
    """Exactly: over the three outcomes of the next pair. On both sides of the margin."""
    worse, better = first * 0.5, second * 0.5
    outcomes = ((Pairs(worse=1), worse), (Pairs(better=1), better), (Pairs(both=1), 1 - worse - better))
    means = {"worse": 0.0, "fine": 0.0}
    for pair, probability in outcomes:
        found = LabelledEvidence(margin)
        found.add_pairs(seen)
        before = {"worse": found.worse, "fine": found.fine}
        found.add_pairs(pair)
        for side in means:
            means[side] += probability * exp(getattr(found, side) - before[side])
    claims = {"worse": worse - better <= margin, "fine": worse - better >= margin}
    assert all(means[side] <= 1 + 1e-9 for side, holds in claims.items() if holds)


@given(st.lists(st.tuples(some_pairs, counts, counts, counts, counts), max_size=8), margins)
def test_no_history_breaks_it_and_all_answers_are_counted(
    blocks: list[tuple[Pairs, int, int, int, int]], margin: float
) -> None:
    found = LabelledEvidence(margin)
    for pairs, good, bad, better, worse in blocks:
        found.add(Trials(good, good + bad), Trials(better, better + worse))
        found.add_pairs(pairs)
    assert found.worse == found.worse  # not nan
    assert found.fine == found.fine
    assert found.pairs.count == sum(pairs.count for pairs, *_ in blocks)
    singles = sum(better + worse for *_, better, worse in blocks)
    assert found.candidate.count == singles + found.pairs.count


@given(some_pairs)
def test_pairs_add_up_and_are_answers_of_both(pairs: Pairs) -> None:
    more = pairs + Pairs(1, 2, 3, 4)
    assert (more.worse - pairs.worse, more.neither - pairs.neither, more.count - pairs.count) == (1, 4, 10)
    assert pairs.present.count == pairs.candidate.count == pairs.count
    assert pairs.present.good - pairs.candidate.good == pairs.worse - pairs.better


def test_the_bet_goes_by_what_was_seen() -> None:
    assert best_bet(Pairs(worse=30, both=70), 0.02) > 0
    assert best_bet(Pairs(better=30, both=70), 0.02) < 0
    assert best_bet(Pairs(both=1000), 0.02) < 0


def labels_until(paired: bool, right: tuple[float, float], seed: int) -> int:
    """How many answers of the candidate take a label until there is evidence; a third of the requests is
    hard for both models, which are then wrong half of the time, alike."""
    draw, found = Random(seed), LabelledEvidence(0.02)
    while max(found.worse, found.fine) < -log(0.05):
        hard, luck = draw.random() < 1 / 3, draw.random()
        old, new = (luck < (0.5 if hard else rate) for rate in right)
        if paired:
            found.add_pairs(Pairs(old and not new, new and not old, old and new, not (old or new)))
        else:
            other = draw.random() < (0.5 if draw.random() < 1 / 3 else right[0])
            found.add(Trials(int(other), 1), Trials(int(new), 1))
        assert found.candidate.count < 50_000
    return found.candidate.count


@pytest.mark.slow
@pytest.mark.parametrize("right", [(0.98, 0.98), (0.98, 0.85)])
def test_pairs_take_fewer_labels(right: tuple[float, float]) -> None:
    seeds = range(5)
    pairs = sum(labels_until(True, right, seed) for seed in seeds)
    singles = sum(labels_until(False, right, seed) for seed in seeds)
    assert pairs * 2 < singles


def test_single_answers_and_pairs_speak_together() -> None:
    alone, both = LabelledEvidence(0.02), LabelledEvidence(0.02)
    for _ in range(30):
        for each in (alone, both):
            each.add(Trials(10, 10), Trials(7, 10))
        both.add_pairs(Pairs(worse=1, both=2))
    assert both.worse > alone.worse > log(100)
