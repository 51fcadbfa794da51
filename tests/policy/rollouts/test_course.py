"""The course of a rollout: its steps, what ends it, and the sentences why."""

from dataclasses import replace

import pytest

from serving.policy.rollouts.course import Course, CourseState, Totals, slow_from
from serving.policy.rollouts.evidence import Trials
from serving.policy.rollouts.labelled import LabelBlock, Pairs
from serving.values.rollouts import ACCURACY, AGREEMENT, ATTAINMENT, ERRORS, LATENCY, RolloutSpec

S = 1_000_000
SPEC = RolloutSpec("m", (0.1, 0.5, 1.0), 5 * S, margins={ATTAINMENT: 0.02, ERRORS: 0.02, LATENCY: 0.05})
QUICK, SLOW = (95, 5, 0), (10, 10, 80)


class Pair:
    """Two models, and a clock of whole seconds."""

    def __init__(self, spec: RolloutSpec = SPEC) -> None:
        self.course = Course(spec)
        self.present, self.candidate, self.at_s = Totals(), Totals(), 0

    def second(
        self,
        good: int = 100,
        failed: int = 0,
        durations: tuple[int, ...] = QUICK,
        ready: bool = True,
        agreed: int = 100,
        right: tuple[int, int, int] = (0, 0, 0),
    ) -> bool:
        """One second: 100 requests of each; those of the candidate as it is said. `right`: so many of the
        candidate's have a label, so many of these are right, and so many pairs are alike."""
        self.at_s += 1
        self.present = more(self.present, 100, 0, QUICK)
        self.candidate = more(self.candidate, good, failed, durations, agreed)
        labelled, of_these, pairs = right
        block = LabelBlock(Trials(labelled, labelled), Trials(of_these, labelled), Pairs(both=pairs))
        self.course.label([block])
        return self.course.look(self.at_s * S, ready, self.present, self.candidate)


def more(totals: Totals, good: int, failed: int, durations: tuple[int, ...], agreed: int = 0) -> Totals:
    was = totals.durations or (0,) * len(durations)
    added = tuple(old + new for old, new in zip(was, durations, strict=True))
    return Totals(
        totals.offered + 100,
        totals.good + good,
        totals.ended + 100,
        totals.failed + failed,
        added,
        totals.agreed + Trials(agreed, 100),
    )


def test_without_a_step_before_all_it_is_promoted_when_it_is_ready() -> None:
    pair = Pair(replace(SPEC, steps=(1.0,)))
    assert not pair.second(ready=False)
    assert pair.second()
    assert (pair.course.state, pair.course.share) == (CourseState.PROMOTED, 1.0)
    assert "no step comes before 100 %" in pair.course.why


@pytest.mark.parametrize(("agreed", "state"), [(100, CourseState.PROMOTED), (50, CourseState.ROLLED_BACK)])
def test_copies_alone_can_validate_it(agreed: int, state: CourseState) -> None:
    margins = {ERRORS: 0.02, AGREEMENT: 0.02}
    pair = Pair(replace(SPEC, steps=(1.0,), shadow=1.0, margins=margins))
    for _ in range(60):
        pair.second(agreed=agreed)
        assert pair.course.share in (0.0, 1.0)
    assert pair.course.state is state
    if state is CourseState.PROMOTED:
        assert pair.course.why == "no margin was broken by copies"


def test_it_waits_until_the_candidate_is_ready() -> None:
    pair = Pair()
    assert not pair.second(ready=False)
    assert (pair.course.state, pair.course.share) == (CourseState.WAITING, 0.0)
    assert pair.second()
    assert (pair.course.state, pair.course.share) == (CourseState.CANARY, 0.1)


def test_an_equal_candidate_takes_each_step_after_its_hold_and_is_promoted() -> None:
    pair, shares = Pair(), []
    while pair.course.state in (CourseState.WAITING, CourseState.CANARY):
        pair.second()
        shares.append(pair.course.share)
        assert pair.at_s < 100
    assert sorted(set(shares)) == [0.1, 0.5, 1.0]
    assert shares == sorted(shares)
    assert shares.count(0.1) >= 5
    assert pair.course.state is CourseState.PROMOTED
    assert pair.course.why == "no margin was broken at 50% of the requests"


@pytest.mark.parametrize(
    ("second", "said"),
    [
        ({"good": 60}, "it answers in time for"),
        ({"failed": 30}, "it does not fail for"),
        ({"durations": SLOW}, "it is as quick for"),
    ],
)
def test_a_broken_guard_rolls_back_before_the_hold_is_over(second: dict[str, int], said: str) -> None:
    pair = Pair()
    for _ in range(3):
        pair.second()  # a history, which says what is slow
    pair.course.restart()
    while pair.course.state is not CourseState.ROLLED_BACK:
        pair.second(**second)  # type: ignore[arg-type]  # by name
        assert pair.at_s < 9
    assert pair.course.share == 0.0
    assert pair.course.why.startswith(said)
    assert "the odds against chance are" in pair.course.why


def test_little_traffic_holds_a_step_and_says_what_is_missing() -> None:
    pair = Pair(replace(SPEC, margins={ATTAINMENT: 0.0001}))
    for _ in range(20):
        pair.second()
    assert pair.course.share == 0.1
    assert pair.course.why.startswith("held: it answers in time for 100.00% of 1,9")
    assert pair.course.why.endswith("of the evidence that it is not worse is there")


def test_a_candidate_that_is_lost_is_rolled_back() -> None:
    pair = Pair()
    pair.second()
    assert pair.second(ready=False)
    assert pair.course.state is CourseState.ROLLED_BACK
    assert pair.course.why == "the candidate has no replica that is ready"


def test_an_end_is_an_end_until_it_is_started_again() -> None:
    pair = Pair()
    pair.second()
    pair.course.abort()
    assert not pair.second()
    assert (pair.course.state, pair.course.share) == (CourseState.ABORTED, 0.0)
    pair.course.restart()
    pair.second()
    assert pair.course.share == 0.1
    pair.course.promote()
    assert pair.course.share == 1.0


SHADOWED = replace(SPEC, shadow=0.1, margins={**SPEC.margins, AGREEMENT: 0.05})


def test_a_candidate_that_agrees_on_copies_goes_on_with_a_share() -> None:
    pair = Pair(SHADOWED)
    pair.second()
    assert (pair.course.state, pair.course.share) == (CourseState.SHADOW, 0.0)
    assert pair.course.evidence.keys() == {AGREEMENT, ERRORS}
    for _ in range(6):
        pair.second(good=0)  # copies are late as they like
    assert (pair.course.state, pair.course.share) == (CourseState.CANARY, 0.1)
    assert AGREEMENT not in pair.course.evidence


@pytest.mark.parametrize(
    ("second", "said"), [({"agreed": 80}, "it agrees on 80.00% of"), ({"failed": 40}, "it does not fail for")]
)
def test_one_that_disagrees_or_fails_on_copies_never_gets_a_request(
    second: dict[str, int], said: str
) -> None:
    pair = Pair(SHADOWED)
    while pair.course.state is not CourseState.ROLLED_BACK:
        pair.second(**second)  # type: ignore[arg-type]  # by name
        assert pair.course.share == 0
        assert pair.at_s < 9
    assert pair.course.why.startswith(said)


def test_a_rollout_of_one_step_is_promoted_after_it() -> None:
    pair = Pair(replace(SPEC, steps=(0.5, 1.0)))
    for _ in range(40):
        pair.second()
    assert pair.course.state is CourseState.PROMOTED


def test_a_request_is_slow_beyond_what_99_of_100_take() -> None:
    assert slow_from((50, 40, 9, 1)) == 3
    assert slow_from((100, 0, 0)) == 1
    assert slow_from((0, 0)) == 2
    assert slow_from(()) == 0


LABELLED = replace(SPEC, margins={**SPEC.margins, ACCURACY: 0.05})


def test_wrong_answers_roll_back() -> None:
    pair = Pair(LABELLED)
    while pair.course.state is not CourseState.ROLLED_BACK:
        pair.second(right=(20, 12, 0))
        assert pair.at_s < 9
    assert pair.course.why.startswith("it is right for 60.00% of")


def test_a_stated_margin_waits_for_labels_and_says_so() -> None:
    pair = Pair(LABELLED)
    for _ in range(60):
        pair.second()
    assert pair.course.share == 0.1
    assert pair.course.why.startswith(
        "held: labels on answers of both models are missing; 0% of the evidence"
    )
    without = Pair()
    for _ in range(60):
        without.second()
    assert without.course.state is CourseState.PROMOTED


def test_labels_of_one_step_count_for_the_next() -> None:
    pair = Pair(LABELLED)
    while pair.course.share != 0.5:
        pair.second(right=(20, 20, 0))
        assert pair.at_s < 99
    for _ in range(60):
        pair.second()  # no label any more
    assert pair.course.share == 1.0
    pair.course.restart()
    for _ in range(60):
        pair.second()
    assert pair.course.share == 0.1


def test_copies_with_labels_count_and_their_step_does_not_wait_for_them() -> None:
    shadowed = replace(SHADOWED, margins={**SHADOWED.margins, ACCURACY: 0.05})
    pair = Pair(shadowed)
    for _ in range(7):
        pair.second()
    assert pair.course.state is CourseState.CANARY
    pair = Pair(shadowed)
    for _ in range(7):
        pair.second(right=(0, 0, 40))
    assert pair.course.state is CourseState.CANARY
    assert pair.course.evidence[ACCURACY].candidate == Trials(240, 240)
    for _ in range(60):
        pair.second()
    assert pair.course.share == 1.0


def test_accuracy_is_one_test_more_whatever_the_steps() -> None:
    assert LABELLED.tests == SPEC.tests + 1
