"""Promises of the scheduler told one by one; `test_any_history.py` has them all at once."""

from collections.abc import Callable

import pytest

from serving.policy.estimates.latency import TRY_US
from serving.policy.limits.memory import SMALL_BYTES
from serving.scheduler.commands import Answer, RunBatch
from serving.scheduler.scheduler import Scheduler
from serving.values.specs import BatchingSpec, Limits
from serving.values.vocabulary import (
    CLIENT_GONE,
    COMPLETED,
    DEADLINE_QUEUED,
    DEADLINE_RUNNING,
    DEADLINE_UNMET,
    MEMORY_FULL,
    NEVER_US,
)
from tests.scheduler.values import (
    allow,
    only,
    replica_of,
    request_of,
    rows_of,
    scheduler_on,
    send,
    served_model,
    started,
)

SLO = BatchingSpec("slo", guard_us=0)


def test_arrivals_of_one_instant_share_a_batch() -> None:
    scheduler = scheduler_on("s")
    for request_id in (1, 2, 3):
        assert scheduler.arrive(request_of(request_id), 10) == ()
        assert scheduler.wake_us == 10
    assert [batch.rows for batch in started(scheduler, 10)] == [3]


def test_a_request_above_the_largest_batch_is_split_and_completed_by_its_last_piece() -> None:
    scheduler = scheduler_on("s", "t")
    request = request_of(rows=10)
    scheduler.arrive(request, 9)
    first, second = started(scheduler, 9)
    assert [(p.first_row, p.rows) for p in request.pieces] == [(0, 4), (4, 4), (8, 2)]
    (third,) = only(scheduler.batch_done(first.id, 1, 11), RunBatch)
    assert not only(scheduler.batch_done(third.id, 1, 12), Answer)
    (answer,) = only(scheduler.batch_done(second.id, 1, 13), Answer)
    assert (answer.request, answer.outcome, answer.batch) == (request, COMPLETED, second)
    assert request.started_us == 9


def test_an_answer_that_is_late_by_the_slo_alone_is_delivered() -> None:
    scheduler = scheduler_on("s")
    scheduler.arrive(request_of(slack_us=5), 0)
    (batch,) = started(scheduler)
    assert only(scheduler.batch_done(batch.id, 1, 900), Answer)[0].outcome is COMPLETED


@pytest.mark.parametrize(("now_us", "outcome"), [(49, None), (50, DEADLINE_RUNNING)])
def test_a_clients_deadline_fires_on_time_while_the_model_runs(now_us: int, outcome: object) -> None:
    scheduler = scheduler_on("s")
    scheduler.arrive(request_of(expires_us=50), 0)
    (batch,) = started(scheduler)
    assert scheduler.wake_us == 50
    answers = only(scheduler.wake(now_us), Answer)
    assert [answer.outcome for answer in answers] == ([outcome] if outcome else [])
    late = only(scheduler.batch_done(batch.id, 1, 60), Answer)
    assert [answer.outcome for answer in late] == ([] if outcome else [DEADLINE_RUNNING])


def test_a_deadline_that_passed_frees_what_waits() -> None:
    scheduler = scheduler_on("s")
    scheduler.arrive(request_of(1), 0)
    started(scheduler)
    scheduler.arrive(request_of(2, rows=3, expires_us=50), 0)
    assert scheduler.queue_rows("m") == 3
    assert only(scheduler.wake(50), Answer)[0].outcome is DEADLINE_QUEUED
    assert scheduler.queue_rows("m") == 0


Event = Callable[[Scheduler, int], object]
PLANNING: dict[str, Event] = {
    "batch_failed": lambda scheduler, batch_id: scheduler.batch_failed(batch_id, "why", 50),
    "batch_done": lambda scheduler, batch_id: scheduler.batch_done(batch_id, 1, 50),
    "replica_up": lambda scheduler, _: scheduler.replica_up("t", "m", replica_of(served_model()), 50),
    "release": lambda scheduler, _: scheduler.release("s", 50),
}


@pytest.mark.parametrize("event", PLANNING)
def test_no_event_starts_a_request_whose_deadline_has_passed(event: str) -> None:
    scheduler = scheduler_on("s")
    scheduler.arrive(request_of(1), 0)
    (batch,) = started(scheduler)
    scheduler.hold("s")
    scheduler.arrive(request_of(2, expires_us=50), 0)
    commands = PLANNING[event](scheduler, batch.id)
    assert isinstance(commands, list)
    assert not only(commands, RunBatch)
    assert DEADLINE_QUEUED in [answer.outcome for answer in only(commands, Answer)]


def test_cancelling_frees_the_rows_that_wait_and_forgets_those_that_run() -> None:
    scheduler = scheduler_on("s")
    request = request_of(rows=10)
    scheduler.arrive(request, 0)
    (batch,) = started(scheduler)
    (answer,) = only(scheduler.cancel(1), Answer)
    assert answer.outcome is CLIENT_GONE
    assert (scheduler.open_requests, scheduler.queue_rows("m")) == (0, 0)
    assert scheduler.cancel(1) == ()
    assert scheduler.batch_done(batch.id, 1, 5) == []


def test_who_is_turned_away_is_told_why() -> None:
    scheduler = scheduler_on("s", limits=Limits(queue_requests=3))
    scheduler.hold("s")
    for request_id in (1, 2, 3):
        scheduler.arrive(request_of(request_id, rows=2), 0)
    (full,) = only(scheduler.arrive(request_of(4), 0), Answer)
    assert full.detail == "the queue of m is full: 3 requests of 6 rows wait"
    (absent,) = only(scheduler.arrive(request_of(5, variants=("b", "c")), 0), Answer)
    assert absent.detail == "no replica of m b or c is ready"


def test_deadlines_of_answered_requests_are_not_kept_without_bound() -> None:
    scheduler = scheduler_on("s")
    for request_id in range(400):
        (batch,) = send(scheduler, request_of(request_id, expires_us=10**9))
        scheduler.batch_done(batch.id, 1, 0)
        assert len(scheduler._accepted._expiries) <= 2 * 1 + 65 + 1
    assert scheduler.open_requests == 0


def test_who_expires_in_the_queue_is_told_when_it_may_be_shorter() -> None:
    scheduler = scheduler_on("s")
    send(scheduler, request_of(1, rows=4))
    scheduler.arrive(request_of(2, expires_us=50), 0)
    (answer,) = only(scheduler.wake(50), Answer)
    assert answer.outcome is DEADLINE_QUEUED
    assert answer.retry_us > 0


def test_a_request_that_expired_on_its_way_in_is_answered_at_once_and_makes_no_wake_up_late() -> None:
    """Its body may take seconds to decode: counted as lateness, they would become every batch's guard."""
    scheduler = scheduler_on("s")
    send(scheduler, request_of(1))
    for request_id in range(2, 40):
        scheduler.arrive(request_of(request_id, arrived_us=100, expires_us=150), 9_000)
        assert scheduler.wake_us == 9_000
        assert [answer.outcome for answer in only(scheduler.wake(9_000), Answer)] == [DEADLINE_QUEUED]
    assert scheduler._lateness.value_us == 0


def test_wake_ups_are_late_by_what_passes_after_an_instant_that_was_asked_for_ahead() -> None:
    scheduler = scheduler_on("s")
    now_us = 0
    for request_id in range(40):
        now_us += 1000
        assert scheduler.arrive(request_of(request_id, arrived_us=now_us), now_us) == ()
        (batch,) = started(scheduler, now_us + 700)
        scheduler.arrive(request_of(100 + request_id, expires_us=now_us + 800), now_us + 700)
        scheduler.wake(scheduler.wake_us + 60)
        scheduler.batch_done(batch.id, 1, now_us + 900)
    assert scheduler._lateness.value_us == 60, "what waited for a busy driver is not a late timer"


def test_an_idle_scheduler_asks_for_no_wake() -> None:
    scheduler = scheduler_on("s")
    scheduler.arrive(request_of(), 0)
    (batch,) = started(scheduler)
    scheduler.batch_done(batch.id, 1, 1)
    assert scheduler.wake_us == NEVER_US
    assert scheduler.is_idle("s")
    assert not scheduler.is_idle("elsewhere")


def test_a_batch_that_left_others_behind_says_so() -> None:
    scheduler = scheduler_on("s")
    (first,) = send(scheduler, *(request_of(number) for number in range(6)))
    (second,) = only(scheduler.batch_done(first.id, 1, 1), RunBatch)
    assert [(batch.rows, batch.full) for batch in (first, second)] == [(4, True), (2, False)]


def test_what_a_request_waits_while_its_slice_is_free_is_the_filling_of_its_batch() -> None:
    delayed = served_model(batching=BatchingSpec("static", delay_us=200))
    scheduler = scheduler_on("s", model=delayed)
    alone, early, late, measured = (request_of(number, arrived_us=100) for number in range(4))
    (batch,) = send(scheduler, alone, now_us=100) or started(scheduler, 300)
    scheduler.arrive(early, 100)
    scheduler.batch_done(batch.id, 1, 250)
    scheduler.arrive(late, 260)
    (batch,) = started(scheduler, 300)
    scheduler.hold("s")
    scheduler.batch_done(batch.id, 1, 310)
    scheduler.arrive(measured, 320)
    assert only(scheduler.release("s", 500), RunBatch)
    waits_us = [(each.started_us, each.filling_us) for each in (alone, early, late, measured)]
    assert waits_us == [(300, 200), (300, 50), (300, 50), (500, 0)]


def test_a_better_profile_does_not_forget_what_batches_taught() -> None:
    model = served_model()
    scheduler = scheduler_on("s", model=model)
    (batch,) = send(scheduler, request_of(1))
    scheduler.batch_done(batch.id, 1, 5000)
    better = replica_of(model, row_us=2.0)
    scheduler.replica_up("s", "m", better, 5000)
    assert better.residuals.overhead_us == 4999


def test_accepted_requests_together_hold_no_more_bytes_than_the_limit_and_give_them_back() -> None:
    scheduler = scheduler_on("s", limits=Limits(held_bytes=100))

    def arrive(request_id: int, payload_bytes: int) -> list[Answer]:
        request = request_of(request_id)
        request.payload_bytes = payload_bytes
        return only(scheduler.arrive(request, 10), Answer)

    assert not arrive(1, 60)
    assert [answer.outcome for answer in arrive(2, 41)] == [MEMORY_FULL]
    assert not arrive(3, 40)
    scheduler.cancel(3)
    assert not arrive(4, 40)
    (batch,) = started(scheduler, 10)
    scheduler.batch_done(batch.id, 1, 11)
    assert not arrive(5, 500)  # alone it may: its own bound is limits.body_mb


def test_the_last_of_the_memory_for_calls_is_kept_for_small_requests() -> None:
    limit = 100 * SMALL_BYTES
    scheduler = scheduler_on("s", limits=Limits(held_bytes=limit))

    def arrive(request_id: int, payload_bytes: int) -> list[Answer]:
        request = request_of(request_id)
        request.payload_bytes = payload_bytes
        return only(scheduler.arrive(request, 10), Answer)

    assert not arrive(1, 90 * SMALL_BYTES)
    assert not arrive(2, 5 * SMALL_BYTES)
    assert [answer.outcome for answer in arrive(3, SMALL_BYTES + 1)] == [MEMORY_FULL]
    assert not any(arrive(4 + number, SMALL_BYTES) for number in range(5))
    assert [answer.outcome for answer in arrive(9, 1)] == [MEMORY_FULL]


@pytest.mark.parametrize("rows", [1, 4, 9])
def test_while_in_doubt_a_request_of_many_pieces_is_tried_as_one_of_a_single_piece_is(rows: int) -> None:
    """Predicted to be late whatever happens, and no batch for a second to say otherwise."""
    scheduler = scheduler_on("s", model=served_model(batching=SLO))
    now_us = TRY_US + 1
    (batch,) = send(scheduler, request_of(1, rows, arrived_us=now_us, slack_us=0), now_us=now_us)
    assert rows_of(batch) == [1]


def test_what_is_hopeless_in_one_lane_takes_nothing_else_out_of_another() -> None:
    """A request may wait in two lanes: in its own, and apart with its part of a batch that failed."""
    scheduler = scheduler_on("s", "t", model=served_model(slo_us=10_000, batching=SLO), row_us=100)
    for request in (request_of(1, rows=5, slack_us=1500), request_of(2, slack_us=9000)):
        scheduler.arrive(request, 0)
    batches: list[RunBatch] = []
    while len(batches) < 2:
        batches += started(scheduler, max(scheduler.wake_us, 1))
    assert [rows_of(batch) for batch in batches] == [[1], [1, 2]]
    scheduler.hold("t")
    scheduler.batch_failed(batches[1].id, "why", 1000)
    scheduler.slice_down("s", "killed", 1000)
    scheduler.arrive(request_of(3, arrived_us=1000, slack_us=8000), 1000)
    commands = [*scheduler.release("t", 1450), *scheduler.wake(1450)]
    assert [(a.request.id, a.outcome) for a in only(commands, Answer)] == [(1, DEADLINE_UNMET)]


def test_no_slice_idles_because_what_it_was_to_run_was_given_up() -> None:
    """Two rows could be in time: not the first piece, of four; and the second alone answers nothing."""
    scheduler = scheduler_on("s", model=served_model(slo_us=1_000_000, batching=SLO), row_us=10_000)
    scheduler.hold("s")
    for request_id in range(10, 30):  # eight times what the slice can do
        scheduler.arrive(request_of(request_id, rows=4, slack_us=1_000_000), 0)
        scheduler.cancel(request_id)
    scheduler.arrive(request_of(1, rows=5, arrived_us=100_000, slack_us=30_000), 100_000)
    other = allow(request_of(2, rows=4, arrived_us=100_000, slack_us=900_000), ("a",), shape="other")
    scheduler.arrive(other, 100_000)
    commands = scheduler.release("s", 100_000)
    assert [answer.request.id for answer in only(commands, Answer)] == [1]
    assert [rows_of(batch) for batch in only(commands, RunBatch)] == [[2]]
