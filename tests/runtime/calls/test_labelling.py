"""Answers of a model with a candidate have names; feedback by these counts for the model that answered."""

from dataclasses import replace

import pytest

from serving.policy.rollouts.labelled import LabelBlock, Pairs
from serving.ports import Reply
from serving.runtime.calls.rating import RatedServing
from serving.runtime.calls.splitting import Shadow, Split
from serving.selection.feedback import Feedback, FeedbackError
from serving.values.specs import ServedModel
from serving.values.vocabulary import OVERLOAD
from tests.router.rpc_edge import Core
from tests.selection.panels import answer, ask, selecting_model

PRESENT = replace(selecting_model("exp3"), selection=None)
CANDIDATE = replace(PRESENT, spec=replace(PRESENT.spec, name="m-2"))


class Desk:
    """The present model names class 1, the candidate class 2."""

    def __init__(self, share: float, margin: bool = True) -> None:
        self.core = Core()
        self.core.answer = lambda call: answer("a", [1 if call.model is PRESENT else 2])
        self.core.models = {"m": PRESENT, "m-2": CANDIDATE}
        self.serving = RatedServing(self.core, seed=1)
        self.splits = self.serving.splits
        if share:
            self.splits.by_model["m"] = Split(CANDIDATE, share, "none")
        if margin:
            self.splits.labels.follow({"m": (PRESENT, CANDIDATE)})

    def ask(self, model: ServedModel = PRESENT) -> Reply:
        replies: list[Reply] = []
        self.serving.submit(ask(model), replies.append)
        return replies[0]

    def said(self) -> LabelBlock:
        """All labels since the last time."""
        return sum(self.splits.labels.books["m"].drain(), LabelBlock())


async def test_labels_count_for_the_model_that_answered() -> None:
    desk = Desk(0.5)
    queries = [desk.ask().query for _ in range(40)]
    assert len(set(queries)) == 40
    assert desk.serving.feedback("m", [Feedback(each, labels=(1,)) for each in queries]) == 40
    said = desk.said()
    present, candidate = said.present, said.candidate
    assert present.good == present.count
    assert candidate.good == 0
    assert present.count + candidate.count == 40
    assert 10 < candidate.count < 30


async def test_without_a_margin_answers_have_no_name_and_feedback_is_refused() -> None:
    desk = Desk(0.5, margin=False)
    assert desk.ask().query == ""
    with pytest.raises(FeedbackError, match=r"m takes no feedback: .* no candidate a margin `accuracy`"):
        desk.serving.feedback("m", [Feedback("q", labels=(1,))])
    other = Desk(0.5)
    assert other.ask(CANDIDATE).query == ""  # what clients ask of the candidate itself


async def test_what_has_no_answer_has_no_name() -> None:
    desk = Desk(0.0)
    desk.core.answer = lambda _call: Reply(OVERLOAD)
    assert desk.ask().query == ""


async def test_a_copy_makes_a_pair() -> None:
    desk = Desk(0.0)
    desk.splits.shadows["m"] = Shadow(CANDIDATE, 1.0)
    queries = [desk.ask().query for _ in range(5)]
    desk.serving.feedback("m", [Feedback(each, labels=(1,)) for each in queries])
    assert desk.said() == LabelBlock(pairs=Pairs(worse=5))


async def test_a_book_goes_on_for_the_same_files_and_ends_with_the_rollout() -> None:
    desk = Desk(0.0)
    labels = desk.splits.labels
    first, query = desk.ask().query, desk.ask().query
    labels.follow({"m": (PRESENT, replace(CANDIDATE, slo_us=1))})
    assert desk.serving.feedback("m", [Feedback(first, labels=(1,))]) == 1
    labels.follow({"m": (PRESENT, replace(CANDIDATE, revision="other"))})
    with pytest.raises(FeedbackError, match="unknown"):
        desk.serving.feedback("m", [Feedback(query, labels=(1,))])
    query = desk.ask().query
    labels.follow({})
    assert desk.ask().query == ""
    with pytest.raises(FeedbackError):
        desk.serving.feedback("m", [Feedback(query, labels=(1,))])
