"""What an answer says of itself: exact to the microsecond, and never earlier than it may be."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.protocol.explanation import completed_lines, failure_fields, retry_ms, separate
from serving.ports import Reply
from serving.values.vocabulary import (
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


PHASES = ("request", "queue", "batch", "input", "infer", "output", "answer")
CAME_US, DUE_US = 1_000, 250_000


def told(reply: Reply, answered_us: int = CAME_US) -> dict[str, str]:
    """What the answer to a call says that came at CAME_US."""
    return separate(completed_lines(reply, DUE_US, CAME_US, answered_us))


def phases(timing: str) -> dict[str, int]:
    """Microseconds by phase, of a Server-Timing as it must be spelled."""
    found = [re.fullmatch(r"(\w+);dur=(\d+)\.(\d{3})", each) for each in timing.split(", ")]
    return {each[1]: int(each[2] + each[3]) for each in found if each}


@given(st.tuples(*[spans_us] * 7))
def test_the_phases_of_a_completed_call_add_up_to_the_microsecond(spans: tuple[int, ...]) -> None:
    reply = reply_of(COMPLETED, spans[1], spans[2], spans[4])
    reply.input_us, reply.output_us = spans[3], spans[5]
    reply.ready_us = CAME_US + sum(spans[:6])
    timing = phases(told(reply, reply.ready_us + spans[6])["server-timing"])
    assert timing == dict(zip(PHASES, spans, strict=True))


def test_a_kept_answer_took_what_its_request_took() -> None:
    reply = reply_of(COMPLETED)
    reply.cache = "hit"
    timing = phases(told(reply, CAME_US + 70)["server-timing"])
    assert timing == dict.fromkeys(PHASES, 0) | {"request": 70}


def test_batches_that_ran_at_once_leave_no_phase_below_nothing() -> None:
    reply = reply_of(COMPLETED, compute_us=500)
    reply.ready_us = CAME_US + 300
    assert phases(told(reply, CAME_US + 310)["server-timing"])["request"] == 0


@pytest.mark.parametrize(
    ("cache", "age_us", "said"),
    [
        ("", 0, {}),
        ("miss", 0, {"x-cache": "miss"}),
        ("join", 0, {"x-cache": "join"}),
        ("hit", 999_999, {"x-cache": "hit", "age": "0"}),
        ("hit", 61_000_000, {"x-cache": "hit", "age": "61"}),
    ],
)
def test_a_completed_call_tells_what_the_cache_did_and_a_kept_answer_its_age(
    cache: str, age_us: int, said: dict[str, str]
) -> None:
    reply = reply_of(COMPLETED)
    reply.cache, reply.age_us = cache, age_us
    fields = told(reply)
    assert {name: fields[name] for name in fields if name in ("x-cache", "age")} == said


@pytest.mark.parametrize(
    ("accuracy", "said"),
    [(None, None), (0.0, "0"), (1.0, "1"), (0.99837, "0.9984"), (0.9, "0.9"), (1e-7, "1e-07")],
)
def test_the_accuracy_is_told_in_four_digits_where_it_is_known(
    accuracy: float | None, said: str | None
) -> None:
    reply = reply_of(COMPLETED)
    for _ in range(2):
        reply.accuracy = accuracy
        assert told(reply).get("x-penstock-accuracy") == said


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
    assert separate(completed_lines(reply_of(COMPLETED), due_us, 0, 0))["x-penstock-deadline-ms"] == told
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
