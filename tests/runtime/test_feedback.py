"""Answers are kept for feedback as long as was said, and never more of them than the bound."""

import numpy as np
import pytest

from serving.runtime import feedback
from serving.runtime.feedback import Answered, Feedback, FeedbackError, Queries

ONE = Answered((0,), np.array([[3]], np.int32), 0.5)


def test_names_are_of_one_answer_each_and_cannot_be_told_from_those_of_another_start() -> None:
    first, second = Queries(10), Queries(10)
    names = [kept.keep(ONE, 0) for kept in (first, first, second)]
    assert len({*names}) == 3
    assert names[0].partition("-")[0] != names[2].partition("-")[0]
    assert first.find(names[0], 5) is ONE


def test_the_oldest_go_first_beyond_the_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feedback, "ANSWERS_MAX", 3)
    monkeypatch.setattr(feedback, "ROWS_MAX", 8)
    queries = Queries(1000)
    names = [queries.keep(ONE, 0) for _ in range(4)]
    assert len(queries) == 3
    with pytest.raises(FeedbackError, match="unknown"):
        queries.find(names[0], 0)
    queries.take(names[1])
    wide = queries.keep(Answered((0, 1), np.zeros((2, 4), np.int32)), 0)
    assert len(queries) == 1
    assert queries.find(wide, 0).named.shape == (2, 4)


def test_what_is_over_its_time_is_forgotten() -> None:
    queries = Queries(1000)
    old = queries.keep(ONE, 0)
    assert queries.find(old, 1000) is ONE
    with pytest.raises(FeedbackError, match="too long ago"):
        queries.find(old, 1001)
    queries.keep(ONE, 2000)
    assert len(queries) == 1


def test_a_loss_is_the_share_of_rows_that_were_named_wrong_or_what_was_said_of_them() -> None:
    both = Answered((0, 1), np.array([[1, 2], [1, 1]], np.int32))
    assert both.losses(Feedback("q", labels=(1, 1)), 3) == [0.5, 0.0]
    assert ONE.losses(Feedback("q", losses=(0.25,)), 5) == [0.25]
