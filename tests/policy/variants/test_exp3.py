"""Exp3 finds the best arm within its bound, leaves it when it turns bad, and never plays what it must not."""

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.policy.variants.exp3 import Exp3, exp3_regret_max
from tests.seeds import drawn

Losses = Callable[[int, Random], list[float]]


def steady(round_: int, numbers: Random) -> list[float]:
    """Five arms that fail by chance; the third the least."""
    return [float(numbers.random() < rate) for rate in (0.5, 0.4, 0.1, 0.45, 0.6)]


def spiteful(round_: int, numbers: Random) -> list[float]:
    """Whoever follows the leader is always wrong; one arm is a little better than a coin."""
    turn = round_ % 2
    return [float(turn), float(1 - turn), 0.45, 1.0, 1.0]


def failing(round_: int, numbers: Random) -> list[float]:
    """Clipper's figure 8: the best arm fails from 5000 on, and is well again from 10,000 on."""
    first = 0.9 if 5000 <= round_ < 10_000 else 0.05
    return [float(numbers.random() < rate) for rate in (first, 0.2, 0.4, 0.5, 0.6)]


def played(losses: Losses, rounds: int, seed: int) -> tuple[float, list[float], list[int]]:
    """The loss of the plays, of each arm had it been played always, and the arms played."""
    policy, numbers = Exp3(5), Random(seed)
    own, fixed, arms = 0.0, [0.0] * 5, []
    for round_ in range(rounds):
        loss = losses(round_, numbers)
        arm, probability = policy.play(numbers.random())
        policy.learn(arm, loss[arm], probability)
        own += loss[arm]
        fixed = [sum(each) for each in zip(fixed, loss, strict=True)]
        arms.append(arm)
    return own, fixed, arms


@pytest.mark.slow
@pytest.mark.parametrize("losses", [steady, spiteful])
@pytest.mark.parametrize("rounds", [500, 5000])
def test_regret_stays_within_the_bound(losses: Losses, rounds: int) -> None:
    regrets = []
    for seed in range(5):
        own, fixed, _ = played(losses, rounds, seed)
        regrets.append(own - min(fixed))
    assert sum(regrets) / len(regrets) <= exp3_regret_max(rounds, 5)
    assert exp3_regret_max(100_000, 5) < 0.2 * 100_000


@pytest.mark.slow
def test_the_best_arm_gets_most_of_the_plays_and_loses_them_when_it_fails() -> None:
    _, _, arms = played(failing, 16_000, 1)

    def share(arm: int, begin: int, end: int) -> float:
        return arms[begin:end].count(arm) / (end - begin)

    assert share(0, 3000, 5000) > 0.8
    assert share(0, 6500, 10_000) < 0.2
    assert share(1, 8000, 10_000) > 0.5
    assert share(0, 13_000, 16_000) > 0.6


@settings(max_examples=drawn(40))
@given(st.data(), st.integers(2, 6), st.floats(0, 1, exclude_max=True))
def test_masked_arms_are_never_played_and_probabilities_are_of_those_allowed(
    data: st.DataObject, arms: int, u: float
) -> None:
    policy = Exp3(arms)
    for _ in range(data.draw(st.integers(0, 6))):
        arm, probability = policy.play(data.draw(st.floats(0, 1, exclude_max=True)))
        policy.learn(arm, data.draw(st.floats(0, 1)), probability)
    allowed = data.draw(st.lists(st.booleans(), min_size=arms, max_size=arms).filter(any))
    shares, told = policy.probabilities(), policy.probabilities(allowed)
    whole = sum(share for share, may in zip(shares, allowed, strict=True) if may)
    assert sum(told) == pytest.approx(1)
    for share, own, may in zip(shares, told, allowed, strict=True):
        assert own == pytest.approx(share / whole if may else 0)
    arm, probability = policy.play(u, allowed)
    assert allowed[arm]
    assert probability == told[arm]


def test_estimates_are_unbiased_as_arms_are_played_as_often_as_told() -> None:
    policy = Exp3(3)
    policy.learn(0, 1.0, 0.01)
    allowed = [True, False, True]
    told = policy.probabilities(allowed)
    below = [policy.play(draw / 1000, allowed)[0] for draw in range(1000)]
    assert below.count(0) / 1000 == pytest.approx(told[0], abs=0.002)


def test_weights_survive_the_rarest_of_plays() -> None:
    policy = Exp3(3)
    for _ in range(50):
        policy.learn(1, 1.0, 1e-9)
    assert sum(policy.probabilities()) == pytest.approx(1)
    assert min(policy.probabilities()) > 0


def test_no_arms_and_none_allowed_are_refused() -> None:
    with pytest.raises(ValueError, match="an arm"):
        Exp3(0)
    with pytest.raises(ValueError, match="none of the arms"):
        Exp3(2).play(0.5, [False, False])


def test_an_arm_that_may_not_be_played_sleeps_and_takes_nothing_from_those_that_may() -> None:
    policy, numbers, allowed = Exp3(3), Random(5), [True, True, False]
    bad = 0
    for round_ in range(3000):
        arm, probability = policy.play(numbers.random(), allowed)
        policy.learn(arm, (0.1, 0.6)[arm], probability, allowed)
        bad += arm == 1 and round_ >= 2000
    assert bad < 50
    assert policy.probabilities()[2] < 0.5
