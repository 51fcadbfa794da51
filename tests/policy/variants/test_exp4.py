"""Exp4's weights find the best members within the bound, follow them, and wait for those who say nothing."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.policy.variants.exp4 import Exp4, exp4_regret_max
from tests.seeds import drawn

RATES = (0.5, 0.4, 0.1, 0.45)


@pytest.mark.slow
@pytest.mark.parametrize("spiteful", [False, True])
@pytest.mark.parametrize("rounds", [500, 10_000])
def test_regret_stays_within_the_bound(spiteful: bool, rounds: int) -> None:
    policy, numbers = Exp4(4), Random(3)
    own, fixed = 0.0, [0.0] * 4
    for round_ in range(rounds):
        loss = [float(numbers.random() < rate) for rate in RATES]
        if spiteful:  # whoever weighs the most is wrong
            weights = policy.weights()
            loss = [float(weight == max(weights)) for weight in weights]
        own += sum(share * each for share, each in zip(policy.weights(), loss, strict=True))
        fixed = [sum(each) for each in zip(fixed, loss, strict=True)]
        policy.learn(dict(enumerate(loss)))
        assert own - min(fixed) <= exp4_regret_max(round_ + 1, 4) + 1e-6
    assert policy.rounds == rounds


def test_a_member_that_degrades_loses_its_weight_and_gets_it_back() -> None:
    policy = Exp4(3)

    def teach(losses: tuple[float, ...], rounds: int) -> list[float]:
        for _ in range(rounds):
            policy.learn(dict(enumerate(losses)))
        return policy.weights()

    assert teach((0.0, 0.3, 0.5), 1000)[0] > 0.9
    assert teach((0.9, 0.3, 0.5), 1000)[1] > 0.9
    assert teach((0.0, 0.3, 0.5), 1000)[0] > 0.9


@settings(max_examples=drawn(30))
@given(st.lists(st.dictionaries(st.integers(0, 3), st.floats(0, 1), max_size=4), max_size=8))
def test_weights_are_shares_and_a_missing_vote_is_not_judged(given_: list[dict[int, float]]) -> None:
    policy = Exp4(4)
    for losses in given_:
        before = policy.weights()
        policy.learn(losses)
        after = policy.weights()
        assert sum(after) == pytest.approx(1)
        assert min(after) > 0
        for member in set(range(4)) - losses.keys():
            assert after[member] == pytest.approx(before[member], abs=0.02)  # but for the share that all get


def test_who_was_right_more_often_weighs_more_among_those_that_took_part() -> None:
    policy = Exp4(3)
    for _ in range(20):
        policy.learn({0: 1.0, 1: 0.0})
    first, second, absent = policy.weights()
    assert first < absent < second
