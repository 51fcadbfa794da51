"""Answers are kept for feedback as long as was said, and never more of them than the bound."""

import numpy as np
import pytest

from serving.runtime.calls.selecting import name_answer
from serving.selection import feedback
from serving.selection.feedback import AnsweredPoll, Feedback, FeedbackError, Queries

ONE = AnsweredPoll((0,), np.array([[3]], np.int32), 0.5)


def test_a_name_tells_nothing_of_another() -> None:
    first, second = Queries(10, name_answer), Queries(10, name_answer)
    names = [kept.keep(ONE, 0) for kept in (first, second) for _ in range(500)]
    assert {len(each) for each in names} == {32}
    for place in range(0, 32, 8):  # no part of it is shared or counts on: 124,750 pairs out of 2^32
        assert len({each[place : place + 8] for each in names}) > 990
    assert first.find(names[0], 5) is ONE
    with pytest.raises(FeedbackError, match="unknown"):
        second.find(names[0], 5)  # as after a restart


def test_feedback_is_taken_of_the_tenant_that_asked_alone() -> None:
    queries = Queries(10, name_answer)
    query = queries.keep(ONE, 0, "gold")
    with pytest.raises(FeedbackError) as none:
        queries.find("0" * 32, 5, "silver")
    for other in ("silver", "default"):
        with pytest.raises(FeedbackError) as told:
            queries.find(query, 5, other)
        assert str(told.value).replace(query, "0" * 32) == str(none.value)  # not even that it is there
    queries.take(query)
    with pytest.raises(FeedbackError, match="unknown"):
        queries.find(query, 5, "silver")
    with pytest.raises(FeedbackError, match="taken before"):
        queries.find(query, 5, "gold")


def test_the_oldest_go_first_beyond_the_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feedback, "ANSWERS_MAX", 3)
    monkeypatch.setattr(feedback, "ROWS_MAX", 8)
    queries = Queries(1000, name_answer)
    names = [queries.keep(ONE, 0) for _ in range(4)]
    assert len(queries) == 3
    with pytest.raises(FeedbackError, match="unknown"):
        queries.find(names[0], 0)
    queries.take(names[1])
    wide = queries.keep(AnsweredPoll((0, 1), np.zeros((2, 4), np.int32)), 0)
    assert len(queries) == 1
    assert queries.find(wide, 0).named.shape == (2, 4)


def test_what_is_over_its_time_is_forgotten() -> None:
    queries = Queries(1000, name_answer)
    old = queries.keep(ONE, 0)
    assert queries.find(old, 1000) is ONE
    with pytest.raises(FeedbackError, match="too long ago"):
        queries.find(old, 1001)
    queries.keep(ONE, 2000)
    assert len(queries) == 1


def test_a_loss_is_the_share_of_rows_that_were_named_wrong_or_what_was_said_of_them() -> None:
    both = AnsweredPoll((0, 1), np.array([[1, 2], [1, 1]], np.int32))
    assert both.losses(Feedback("q", labels=(1, 1)), 3) == [0.5, 0.0]
    assert ONE.losses(Feedback("q", losses=(0.25,)), 5) == [0.25]
