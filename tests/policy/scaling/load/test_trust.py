"""What makes a table doubtful: misses where it says that rows fit; and nothing else does."""

import pytest

from serving.policy.scaling.load.trust import FORGET_S, LIFE_S, Claimed, Trust


def looked(seconds: int, offered: int, missed: int, claimed: float, crowd: float = 1.0) -> Trust:
    trust = Trust()
    for _ in range(seconds):
        trust.look(offered, missed, 1.0, Claimed(claimed, 0.01), crowd)
    return trust


def test_a_table_that_promises_twice_what_there_is_is_halved() -> None:
    """Of 90 a second 60 are answered, where 120 are said to fit."""
    assert looked(30, 90, 30, 120.0, 20.0).factor == pytest.approx(0.5)


def test_misses_that_are_allowed_are_no_lie() -> None:
    assert looked(600, 100, round(100 * 0.01), 120.0).factor == 1


def test_one_crowd_that_is_missed_is_no_evidence() -> None:
    trust = looked(60, 100, 0, 120.0, 40.0)
    trust.look(100, 40, 1.0, Claimed(120.0, 0.01), 40.0)
    assert trust.factor == 1


def test_crowd_after_crowd_is() -> None:
    trust = looked(60, 100, 0, 120.0, 40.0)
    for _ in range(10):
        trust.look(100, 40, 1.0, Claimed(120.0, 0.01), 40.0)
    assert trust.factor < 1


def test_that_nothing_is_missed_raises_nothing() -> None:
    assert looked(1000, 1000, 0, 10.0).factor == 1


def test_a_verdict_is_forgotten_slowly_and_evidence_at_once_when_what_answers_is_another() -> None:
    trust = looked(30, 90, 30, 120.0)
    told = trust.factor
    trust.doubt()
    assert trust.factor == told
    trust.forget(FORGET_S)
    assert told < trust.factor < 1
    trust.forget(20 * FORGET_S)
    assert trust.factor == pytest.approx(1)


def test_evidence_of_an_hour_ago_counts_no_more() -> None:
    young, old = looked(120, 100, 2, 120.0, 20.0), looked(120, 100, 2, 120.0, 20.0)
    for _ in range(round(5 * LIFE_S)):
        old.look(100, 1, 1.0, Claimed(120.0, 0.01), 20.0)
    for trust in (young, old):
        trust.look(100, 100, 1.0, Claimed(120.0, 0.01), 20.0)
    assert young.factor < old.factor == 1
