"""Promises of the scheduler told one by one; `test_any_history.py` has them all at once."""

from collections.abc import Callable

import pytest

from serving.scheduler.commands import Answer, ReplaceWorker, RunBatch
from serving.scheduler.scheduler import Scheduler
from serving.specs import BatchingSpec, Limits
from serving.vocabulary import (
    CLIENT_GONE,
    COMPLETED,
    DEADLINE_QUEUED,
    DEADLINE_RUNNING,
    MEMORY_FULL,
    MODEL_ERROR,
    NEVER_US,
    WORKER_LOST,
)
from tests.scheduler.values import replica_of, request_of, served_model
from tests.scheduler.witness import only

LIMITS = Limits(queue_requests=3, stall_us=1000)


def scheduler_on(
    *slices: str, batch_max: int = 4, batching: BatchingSpec | None = None, limits: Limits = LIMITS
) -> Scheduler:
    """The model "m" as variant "a" on each of these slices."""
    model = served_model(batch_max=batch_max, batching=batching)
    scheduler = Scheduler([model], limits)
    for name in slices:
        scheduler.replica_up(name, "m", replica_of(model), 0)
    return scheduler


def started(scheduler: Scheduler, now_us: int = 0) -> list[RunBatch]:
    return only(scheduler.wake(now_us), RunBatch)


def test_arrivals_of_one_instant_share_a_batch() -> None:
    scheduler = scheduler_on("s")
    for request_id in (1, 2, 3):
        assert scheduler.arrive(request_of(request_id), 10) == ()
        assert scheduler.wake_us == 10
    assert [batch.rows for batch in started(scheduler, 10)] == [3]


def test_a_request_above_the_largest_batch_is_split_and_completed_by_its_last_piece() -> None:
    scheduler = scheduler_on("s", "t", batch_max=4)
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
    scheduler = scheduler_on("s", batch_max=4)
    request = request_of(rows=10)
    scheduler.arrive(request, 0)
    (batch,) = started(scheduler)
    (answer,) = only(scheduler.cancel(1), Answer)
    assert answer.outcome is CLIENT_GONE
    assert (scheduler.open_requests, scheduler.queue_rows("m")) == (0, 0)
    assert scheduler.cancel(1) == ()
    assert scheduler.batch_done(batch.id, 1, 5) == []


def test_a_model_that_raises_fails_its_batch_and_nothing_else() -> None:
    scheduler = scheduler_on("s", batch_max=2)
    for request_id, rows in ((1, 1), (2, 1), (3, 1)):
        scheduler.arrive(request_of(request_id, rows), 0)
    (batch,) = started(scheduler)
    commands = scheduler.batch_failed(batch.id, "shape mismatch", 5)
    assert [(a.request.id, a.outcome, a.detail) for a in only(commands, Answer)] == [
        (1, MODEL_ERROR, "shape mismatch"),
        (2, MODEL_ERROR, "shape mismatch"),
    ]
    assert [p.request.id for batch in only(commands, RunBatch) for p in batch.pieces] == [3]


def test_a_lost_batch_runs_again_elsewhere_before_what_came_later() -> None:
    scheduler = scheduler_on("s", "t", batch_max=1)
    for request_id in (1, 2, 3):
        scheduler.arrive(request_of(request_id), 0)
    first, second = started(scheduler)
    assert [batch.pieces[0].request.id for batch in (first, second)] == [1, 2]
    assert not scheduler.slice_down(first.slice, "killed", 2)
    (again,) = only(scheduler.batch_done(second.id, 1, 3), RunBatch)
    assert again.pieces == first.pieces, "of equal deadlines the one that came first, though it was away"
    assert scheduler.batch_done(first.id, 1, 4) == (), "the dead worker's report counts for nothing"


def test_a_request_that_took_two_workers_with_it_is_failed_whichever_piece_it_was() -> None:
    scheduler = scheduler_on("s", "t", "u", batch_max=1)
    scheduler.arrive(request_of(rows=3), 0)
    first, second, _ = started(scheduler)
    assert not only(scheduler.slice_down(first.slice, "killed", 1), Answer)
    (answer,) = only(scheduler.slice_down(second.slice, "killed again", 2), Answer)
    assert (answer.outcome, answer.detail) == (WORKER_LOST, "killed again")
    assert scheduler.queue_rows("m") == 0


def test_two_pieces_in_one_lost_batch_are_one_loss() -> None:
    scheduler = scheduler_on("s", "t", batch_max=4, batching=BatchingSpec(size=4, delay_us=100))
    scheduler.hold("t")
    model = served_model(batch_max=4)
    small = replica_of(model, latency_us={1: 1.0, 2: 900.0, 4: 5000.0})
    for name in ("s", "t"):
        scheduler.replica_up(name, "m", small, 0)
    scheduler.hold("s")
    scheduler.arrive(request_of(rows=5), 0)
    scheduler.replica_up("s", "m", replica_of(model), 0)
    (batch,) = only(scheduler.release("s", 0), RunBatch)
    assert len({piece.request.id for piece in batch.pieces}) == 1
    assert len(batch.pieces) == 2
    assert not only(scheduler.slice_down("s", "killed", 1), Answer)


def test_a_batch_that_hangs_is_named_once_a_stall_and_its_worker_replaced() -> None:
    scheduler = scheduler_on("s")
    scheduler.arrive(request_of(), 0)
    started(scheduler)
    assert scheduler.wake_us == 1000
    assert not scheduler.wake(999)
    assert scheduler.wake(1000) == [ReplaceWorker("s", "a m batch of 1 rows ran for over 0.001 s")]
    assert not scheduler.wake(1001)
    assert scheduler.wake_us == 2000


def test_who_is_turned_away_is_told_why() -> None:
    scheduler = scheduler_on("s")
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
        scheduler.arrive(request_of(request_id, expires_us=10**9), 0)
        (batch,) = started(scheduler)
        scheduler.batch_done(batch.id, 1, 0)
        assert len(scheduler._expiries) <= 2 * 1 + 65 + 1
    assert scheduler.open_requests == 0


def test_an_idle_scheduler_asks_for_no_wake() -> None:
    scheduler = scheduler_on("s")
    scheduler.arrive(request_of(), 0)
    (batch,) = started(scheduler)
    scheduler.batch_done(batch.id, 1, 1)
    assert scheduler.wake_us == NEVER_US
    assert scheduler.is_idle("s")
    assert not scheduler.is_idle("elsewhere")


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
