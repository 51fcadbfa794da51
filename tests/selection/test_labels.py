"""Labels on the answers of a model with a candidate: whose they are, which count, and what is refused."""

from dataclasses import replace
from itertools import count

import pytest

from serving.policy.rollouts.evidence import Trials
from serving.policy.rollouts.labelled import NO_PAIRS, LabelBlock, Pairs
from serving.selection.feedback import Feedback, FeedbackError
from serving.selection.labels import CANDIDATE, KEEP_US, PRESENT, LabelBook
from serving.values.specs import TensorSpec
from tests.builders import model_spec, served
from tests.selection.panels import answer, selecting_model

ASKED = "shop", 0


class Desk:
    """A book for a model whose second output names one of four classes."""

    def __init__(self) -> None:
        numbers = count()
        self.book = LabelBook(selecting_model("exp3"), lambda: f"q{next(numbers)}")

    def answered(self, member: int, *named: int) -> str:
        return self.book.answered(member, answer("a", [*named], len(named)), len(named), ASKED)

    def copied(self, query: str, *named: int) -> None:
        self.book.copied(query, answer("b", [*named], len(named)))

    def said(self) -> LabelBlock:
        """All labels since the last time, with two that are wrong, so that they say something of both."""
        for member in (PRESENT, CANDIDATE):
            self.learn(Feedback(self.answered(member, 0), labels=(3,)))
        return sum(self.book.drain(), LabelBlock())

    def learn(self, *given: Feedback, now_us: int = 1, tenant: str = "shop") -> None:
        self.book.learn(given, now_us, tenant)


def labels(
    present: tuple[int, int] = (0, 0), candidate: tuple[int, int] = (0, 0), pairs: Pairs = NO_PAIRS
) -> LabelBlock:
    """These, and the two that `said` adds."""
    return LabelBlock(Trials(*present) + Trials(0, 1), Trials(*candidate) + Trials(0, 1), pairs)


def test_a_label_counts_for_the_model_that_answered() -> None:
    desk = Desk()
    for member, named, label in [(PRESENT, 1, 1), (CANDIDATE, 2, 1), (CANDIDATE, 3, 3), (CANDIDATE, 0, 1)]:
        desk.learn(Feedback(desk.answered(member, named), labels=(label,)))
    assert desk.said() == labels((1, 1), (1, 3))
    assert desk.said() == labels()


def test_an_answer_is_right_on_all_rows_or_by_a_small_loss() -> None:
    desk = Desk()
    desk.learn(Feedback(desk.answered(PRESENT, 1, 2), labels=(1, 2)))
    desk.learn(Feedback(desk.answered(PRESENT, 1, 2), labels=(1, 3)))
    desk.learn(Feedback(desk.answered(CANDIDATE, 1, 2), losses=(0.0, 0.9)))
    desk.learn(Feedback(desk.answered(CANDIDATE, 1, 2), losses=(1.0, 0.0)))
    assert desk.said() == labels((1, 2), (1, 2))


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (1, 1, Pairs(both=1)),
        (1, 2, Pairs(worse=1)),
        (2, 1, Pairs(better=1)),
        (2, 3, Pairs(neither=1)),
    ],
)
def test_a_label_on_a_copied_request_is_a_pair(old: int, new: int, expected: Pairs) -> None:
    desk = Desk()
    query = desk.answered(PRESENT, old)
    desk.copied(query, new)
    desk.copied(query, new)  # there is one copy of a request
    desk.learn(Feedback(query, labels=(1,)))
    assert desk.said() == labels(pairs=expected)


def test_a_loss_is_of_the_answer_that_the_client_had() -> None:
    desk = Desk()
    query = desk.answered(PRESENT, 1)
    desk.copied(query, 2)
    desk.learn(Feedback(query, losses=(1.0,)))
    assert desk.said() == labels((0, 1))


def test_a_copy_that_comes_after_the_label_or_of_nothing_is_passed_over() -> None:
    desk = Desk()
    query = desk.answered(PRESENT, 1)
    desk.learn(Feedback(query, labels=(1,)))
    desk.copied(query, 2)
    desk.copied("never", 2)
    desk.copied("", 2)
    assert desk.said() == labels((1, 1))


def test_all_feedback_is_taken_or_none() -> None:
    desk = Desk()
    first, second = desk.answered(PRESENT, 1), desk.answered(CANDIDATE, 1)
    good = Feedback(first, labels=(1,))
    for bad, words in [
        (Feedback("q9", labels=(1,)), "unknown, or too long ago"),
        (good, "occurs twice"),
        (Feedback(second, labels=(4,)), "labels are classes from 0 to 3"),
        (Feedback(second, labels=(1, 1)), "the answer has 1 rows"),
    ]:
        with pytest.raises(FeedbackError, match=words):
            desk.learn(good, bad)
    assert desk.said() == labels()
    desk.learn(good, Feedback(second, labels=(1,)))
    with pytest.raises(FeedbackError, match="was taken before"):
        desk.learn(good)


def test_another_tenant_and_late_feedback_find_nothing() -> None:
    desk = Desk()
    query = desk.answered(PRESENT, 1)
    for tenant, now_us in (("other", 1), ("shop", KEEP_US + 1)):
        with pytest.raises(FeedbackError, match="unknown, or too long ago"):
            desk.learn(Feedback(query, labels=(1,)), tenant=tenant, now_us=now_us)


def test_what_names_no_class_takes_a_loss_only() -> None:
    spec = replace(model_spec("m"), outputs=(TensorSpec("Y", "INT64", (-1,)),))
    numbers = count()
    book = LabelBook(served(spec), lambda: f"q{next(numbers)}")
    reply = answer("a", [1], 1)
    with pytest.raises(FeedbackError, match="no output of m names a class: expected loss"):
        book.learn([Feedback(book.answered(PRESENT, reply, 1, ASKED), labels=(1,))], 1, "shop")
    book.learn([Feedback("q0", losses=(0.2,))], 1, "shop")
    book.learn([Feedback(book.answered(CANDIDATE, reply, 1, ASKED), losses=(0.7,))], 1, "shop")
    assert book.drain() == [LabelBlock(Trials(1, 1), Trials(0, 1))]


def test_labels_on_one_model_wait_for_one_on_the_other() -> None:
    desk = Desk()
    for _ in range(20):
        desk.learn(Feedback(desk.answered(CANDIDATE, 1), labels=(1,)))
        assert desk.book.drain() == []
    desk.learn(Feedback(desk.answered(PRESENT, 1), labels=(1,)))
    assert desk.book.drain() == [LabelBlock(Trials(1, 1), Trials(20, 20))]
    assert desk.book.drain() == []


def test_many_labels_at_once_are_a_few_blocks_in_their_order() -> None:
    desk = Desk()
    given = [Feedback(desk.answered(n % 2, 1), labels=(int(n < 5000),)) for n in range(10_000)]
    for start in range(0, 10_000, 250):
        desk.learn(*given[start : start + 250])
    blocks = desk.book.drain()
    assert sum(blocks, LabelBlock()) == LabelBlock(Trials(2500, 5000), Trials(2500, 5000))
    assert len(blocks) < 80
    seen = 0
    for block in blocks:
        assert block.count <= max(seen / 7, 8)  # it ends at an eighth of all before its last
        seen += block.count
    rates = [block.candidate.rate for block in blocks]
    assert rates == sorted(rates, reverse=True)


def test_an_answer_of_another_shape_has_no_name() -> None:
    desk = Desk()
    assert desk.book.answered(PRESENT, answer("a", [1, 1], 2), 1, ASKED) == ""
