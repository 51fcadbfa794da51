"""What an answer says of itself: exact to the microsecond, and never earlier than it may be."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.explanation import completed_lines, failure_fields, retry_ms, separate
from serving.ports import Reply
from serving.vocabulary import (
    BAD_INPUT,
    COMPLETED,
    DEADLINE_QUEUED,
    DEADLINE_RUNNING,
    DRAINING,
    MODEL_ERROR,
    QUEUE_FULL,
    Outcome,
)

spans_us = st.integers(0, 3000) | st.integers(0, 1 << 40)


def reply_of(outcome: Outcome, queue_us: int = 0, batch_us: int = 0, compute_us: int = 0) -> Reply:
    reply = Reply(outcome)
    reply.queue_us, reply.batch_us, reply.compute_us = queue_us, batch_us, compute_us
    return reply


@given(spans_us, spans_us, spans_us)
def test_a_completed_call_tells_all_three_phases_to_the_microsecond(
    queue_us: int, batch_us: int, compute_us: int
) -> None:
    told = separate(completed_lines(reply_of(COMPLETED, queue_us, batch_us, compute_us), 1))["server-timing"]
    found = re.fullmatch(
        r"queue;dur=(\d+)\.(\d{3}), batch;dur=(\d+)\.(\d{3}), infer;dur=(\d+)\.(\d{3})", told
    )
    assert found
    assert [int(found[i] + found[i + 1]) for i in (1, 3, 5)] == [queue_us, batch_us, compute_us]


@pytest.mark.parametrize(
    ("cache", "age_us", "told"),
    [
        ("", 0, {}),
        ("miss", 0, {"x-cache": "miss"}),
        ("join", 0, {"x-cache": "join"}),
        ("hit", 999_999, {"x-cache": "hit", "age": "0"}),
        ("hit", 61_000_000, {"x-cache": "hit", "age": "61"}),
    ],
)
def test_a_completed_call_tells_what_the_cache_did_and_a_kept_answer_its_age(
    cache: str, age_us: int, told: dict[str, str]
) -> None:
    reply = reply_of(COMPLETED)
    reply.cache, reply.age_us = cache, age_us
    fields = separate(completed_lines(reply, 1))
    assert {name: fields[name] for name in fields if name in ("x-cache", "age")} == told


@pytest.mark.parametrize(
    ("accuracy", "told"),
    [(None, None), (0.0, "0"), (1.0, "1"), (0.99837, "0.9984"), (0.9, "0.9"), (1e-7, "1e-07")],
)
def test_the_accuracy_is_told_in_four_digits_where_it_is_known(
    accuracy: float | None, told: str | None
) -> None:
    reply = reply_of(COMPLETED)
    for _ in range(2):
        reply.accuracy = accuracy
        assert separate(completed_lines(reply, 1)).get("x-penstock-accuracy") == told


@pytest.mark.parametrize(
    ("reply", "timing"),
    [
        (reply_of(QUEUE_FULL), None),
        (reply_of(DEADLINE_QUEUED, 20_100), "queue;dur=20.100"),
        (reply_of(DEADLINE_RUNNING, 0, 250), "batch;dur=0.250"),
        (reply_of(MODEL_ERROR, 1_204, 350, 2_871), "queue;dur=1.204, batch;dur=0.350, infer;dur=2.871"),
    ],
)
def test_a_call_that_failed_tells_its_reason_and_the_phases_that_it_saw(
    reply: Reply, timing: str | None
) -> None:
    fields = failure_fields(reply)
    assert fields.pop("x-penstock-reason") == reply.outcome.reason.value
    assert fields == ({} if timing is None else {"server-timing": timing})


@pytest.mark.parametrize(
    ("due_us", "told"),
    [(1, "0.001"), (999, "0.999"), (250_000, "250"), (250_500, "250.500"), (3_600_000_000, "3600000")],
)
def test_any_answer_of_a_call_tells_when_it_was_due(due_us: int, told: str) -> None:
    assert separate(completed_lines(reply_of(COMPLETED), due_us))["x-penstock-deadline-ms"] == told
    assert failure_fields(reply_of(QUEUE_FULL), due_us)["x-penstock-deadline-ms"] == told
    assert "x-penstock-deadline-ms" not in failure_fields(reply_of(BAD_INPUT))


@given(st.integers(1, 5000) | st.integers(1, 1 << 40))
def test_nobody_is_told_to_come_back_too_early_or_a_millisecond_too_late(retry_us: int) -> None:
    reply = Reply(QUEUE_FULL)
    reply.retry_us = retry_us
    assert 0 <= retry_ms(reply) * 1000 - retry_us < 1000
    assert retry_ms(reply) >= 1


@pytest.mark.parametrize("outcome", [COMPLETED, BAD_INPUT, DRAINING, MODEL_ERROR])
def test_where_another_try_fares_no_better_nothing_is_told(outcome: Outcome) -> None:
    reply = Reply(outcome)
    reply.retry_us = 5_000
    assert retry_ms(reply) == 0
    assert retry_ms(Reply(QUEUE_FULL)) == 0  # the core cannot say
