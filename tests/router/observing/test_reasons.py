"""Each code that the core gives a reason has one sentence, and no two codes share it."""

from router.observing.reasons import DOWNGRADES, ENDINGS, LATE, downgrade, ending
from serving.simulation.results import series
from serving.values.vocabulary import Downgrade, Reason


def test_each_ending_has_a_sentence_of_its_own() -> None:
    assert set(ENDINGS) == {*Reason, LATE}
    assert len(set(ENDINGS.values())) == len(ENDINGS)


def test_each_downgrade_has_a_sentence_of_its_own() -> None:
    assert set(DOWNGRADES) == set(Downgrade)
    assert len(set(DOWNGRADES.values())) == len(DOWNGRADES)


def test_each_ending_of_the_simulator_but_the_good_one_has_a_sentence() -> None:
    assert {*series.ENDINGS} - {*ENDINGS} == {series.IN_TIME}


def test_a_code_of_a_newer_gateway_stands_for_itself() -> None:
    assert (ending("eclipsed"), downgrade("eclipsed")) == ("eclipsed", "eclipsed")
