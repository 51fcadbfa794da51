"""What is promised when batches fail or are lost: who did no harm is answered, nothing is tried for ever."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.policy.isolation import FAILURES_MAX
from serving.scheduler.commands import Answer, RunBatch
from serving.scheduler.scheduler import Scheduler
from serving.scheduler.waiting.requests import Request
from serving.values.specs import BatchingSpec, Limits
from serving.values.vocabulary import (
    BAD_INPUT,
    CLIENT_GONE,
    COMPLETED,
    DEADLINE_QUEUED,
    DRAINING,
    MODEL_ERROR,
    WORKER_LOST,
    Outcome,
)
from tests.scheduler.values import (
    only,
    outcomes,
    replica_of,
    request_of,
    rows_of,
    scheduler_on,
    send,
    served_model,
    started,
)

ROOMY = served_model(batch_max=64)
SLO = BatchingSpec("slo", guard_us=0)


def played_out(
    scheduler: Scheduler, batches: list[RunBatch], raises: Callable[[RunBatch], bool], now_us: int = 1
) -> tuple[dict[int, Outcome], int]:
    """How all requests ended, and how many batches it took, where the model raises on some of them."""
    ended: dict[int, Outcome] = {}
    count = 0
    while batches:
        batch = batches.pop(0)
        count += 1
        if raises(batch):
            commands = scheduler.batch_failed(batch.id, "why", now_us)
        else:
            commands = scheduler.batch_done(batch.id, 1, now_us)
        ended |= outcomes(commands)
        batches += only(commands, RunBatch)
    return ended, count


# batches in which the model raised


@given(st.integers(1, 40), st.sets(st.integers(0, 39), max_size=3), st.integers(1, 3))
def test_only_what_the_model_raises_on_fails(requests: int, poison: set[int], slices: int) -> None:
    scheduler = scheduler_on(*"stu"[:slices], model=ROOMY)
    batches = send(scheduler, *(request_of(number) for number in range(requests)))
    ended, count = played_out(scheduler, batches, lambda batch: not poison.isdisjoint(rows_of(batch)))
    assert ended == {number: MODEL_ERROR if number in poison else COMPLETED for number in range(requests)}
    levels = (requests - 1).bit_length()
    assert count <= 1 + 2 * levels * len(poison & set(range(requests)))
    assert scheduler.open_requests == scheduler.queue_rows("m") == 0


def test_a_model_that_raises_on_everything_is_not_tried_row_by_row() -> None:
    scheduler = scheduler_on("s", model=ROOMY)
    batches = send(scheduler, *(request_of(number) for number in range(64)))
    ended, count = played_out(scheduler, batches, lambda batch: True)
    assert set(ended.values()) == {MODEL_ERROR}
    assert len(ended) == 64
    assert count <= 2 * FAILURES_MAX + 1
    for request_id in (100, 200):
        batches = send(scheduler, request_of(request_id), request_of(request_id + 1))
        assert played_out(scheduler, batches, lambda batch: True)[1] == 1


def test_after_one_batch_that_worked_batches_are_tried_in_halves_again() -> None:
    scheduler = scheduler_on("s", model=ROOMY)
    batches = send(scheduler, *(request_of(number) for number in range(64)))
    played_out(scheduler, batches, lambda batch: True)
    played_out(scheduler, send(scheduler, request_of(65)), lambda batch: False)
    ended, _ = played_out(
        scheduler, send(scheduler, *(request_of(number) for number in (1, 2, 3))), lambda b: 2 in rows_of(b)
    )
    assert ended == {1: COMPLETED, 2: MODEL_ERROR, 3: COMPLETED}


def test_failures_count_on_for_a_better_profile_and_not_for_a_new_worker() -> None:
    scheduler = scheduler_on("s", model=ROOMY)
    replica = scheduler._slices["s"].queues["m"].replicas["a"]
    replica.failures = FAILURES_MAX
    scheduler.replica_up("s", "m", replica_of(ROOMY), 0)
    (batch,) = send(scheduler, request_of(1), request_of(2))
    assert outcomes(scheduler.batch_failed(batch.id, "why", 1)) == {1: MODEL_ERROR, 2: MODEL_ERROR}
    scheduler.slice_down("s", "ended", 1)
    scheduler.replica_up("s", "m", replica_of(ROOMY), 1)
    (batch,) = send(scheduler, request_of(3), request_of(4), now_us=1)
    assert not outcomes(scheduler.batch_failed(batch.id, "why", 2))


PATIENT = (
    BatchingSpec("static", delay_us=500),
    BatchingSpec("aimd", delay_us=500),
    BatchingSpec("slo", guard_us=0, mode="consolidate"),
)


@pytest.mark.parametrize("spec", PATIENT, ids=lambda spec: spec.policy)
@pytest.mark.parametrize("company", [False, True])
def test_halves_take_nobody_in_and_wait_for_nobody(spec: BatchingSpec, company: bool) -> None:
    scheduler = scheduler_on("s", model=served_model(slo_us=50_000, batching=spec), row_us=100)
    requests = [request_of(number, slack_us=40_000) for number in (1, 2, 3)]
    batches = send(scheduler, *requests) or started(scheduler, scheduler.wake_us)
    now_us = batches[0].started_us
    while len(batches[-1].pieces) < 2:  # aimd begins with one row
        batches += only(scheduler.batch_done(batches[-1].id, 100, now_us), RunBatch)
    first, *others = rows_of(batches[-1])
    if company:
        scheduler.arrive(request_of(4, arrived_us=now_us, slack_us=45_000), now_us)
    seen = only(scheduler.batch_failed(batches[-1].id, "why", now_us), RunBatch)
    for batch in seen:  # it grows
        seen += only(scheduler.batch_done(batch.id, 100, now_us), RunBatch)
    halves = [[first], others] if len(others) == 1 else [[first, others[0]], others[1:]]
    assert [rows for rows in map(rows_of, seen) if rows != [4]] == halves


def test_the_last_batch_of_a_request_fails_it_with_what_the_model_said() -> None:
    scheduler = scheduler_on("s")
    (batch,) = send(scheduler, request_of(1))
    (answer,) = only(scheduler.batch_failed(batch.id, "shape mismatch", 5), Answer)
    assert (answer.outcome, answer.detail) == (MODEL_ERROR, "shape mismatch")


def test_a_request_whose_input_the_model_blames_ends_alone_with_bad_input() -> None:
    scheduler = scheduler_on("s")
    (batch,) = send(scheduler, request_of(1), request_of(2))
    (first,) = only(scheduler.batch_failed(batch.id, "no picture", 5, True), RunBatch)
    commands = scheduler.batch_failed(first.id, "no picture", 6, True)
    (answer,) = only(commands, Answer)
    assert (answer.outcome, answer.detail) == (BAD_INPUT, "no picture")
    (second,) = only(commands, RunBatch)
    assert outcomes(scheduler.batch_done(second.id, 1, 7)) == {2: COMPLETED}


def test_blamed_inputs_say_nothing_against_the_replica() -> None:
    scheduler = scheduler_on("s")
    for number in range(2 * FAILURES_MAX):
        (batch,) = send(scheduler, request_of(10 + number), now_us=number)
        assert outcomes(scheduler.batch_failed(batch.id, "why", number, True)) == {10 + number: BAD_INPUT}
    (batch,) = send(scheduler, request_of(1), request_of(2), now_us=50)
    assert not outcomes(scheduler.batch_failed(batch.id, "why", 51))  # tried in halves


def several_pieces_in_a_batch() -> tuple[Scheduler, RunBatch, Request]:
    """A request whose two pieces are in one batch: the replica takes more now than when it was split."""
    scheduler = scheduler_on()
    slow = replica_of(served_model(), latency_us={1: 1.0, 2: 450.0, 4: 5000.0})
    scheduler.replica_up("s", "m", slow, 0)
    scheduler.hold("s")
    request = request_of(1, rows=4)
    scheduler.arrive(request, 0)
    scheduler.replica_up("s", "m", replica_of(served_model()), 0)
    (batch,) = only(scheduler.release("s", 0), RunBatch)
    assert rows_of(batch) == [1, 1]
    return scheduler, batch, request


@pytest.mark.parametrize("poison", [None, 0, 1])
def test_a_request_with_several_pieces_in_a_failed_batch_ends_once(poison: int | None) -> None:
    scheduler, batch, request = several_pieces_in_a_batch()
    bad = request.pieces[poison] if poison is not None else None
    commands = scheduler.batch_failed(batch.id, "why", 1)
    assert not outcomes(commands)
    assert [[piece.first_row for piece in b.pieces] for b in only(commands, RunBatch)] == [[0]]
    ended, _ = played_out(scheduler, only(commands, RunBatch), lambda batch: bad in batch.pieces)
    assert ended == {1: COMPLETED if poison is None else MODEL_ERROR}
    assert scheduler.queue_rows("m") == scheduler.open_requests == 0


@pytest.mark.parametrize("how", ["failed", "lost"])
def test_a_request_whose_pieces_come_back_waits_as_one(how: str) -> None:
    scheduler, batch, _ = several_pieces_in_a_batch()
    scheduler.replica_up("t", "m", replica_of(served_model()), 0)
    for name in "st":
        scheduler.hold(name)
    if how == "failed":
        scheduler.batch_failed(batch.id, "why", 1)
    else:
        scheduler.slice_down("s", "killed", 1)
    backlog = scheduler._models["m"].queue.backlog
    assert (backlog.requests, backlog.rows) == (1, 4)


def test_who_left_or_expired_while_a_batch_ran_is_not_tried_again() -> None:
    scheduler = scheduler_on("s")
    requests = [request_of(1), request_of(2, expires_us=50), request_of(3), request_of(4)]
    (batch,) = send(scheduler, *requests)
    scheduler.cancel(1)
    commands = scheduler.batch_failed(batch.id, "why", 60)
    assert list(outcomes(commands)) == [2]
    (half,) = only(commands, RunBatch)
    (other,) = only(scheduler.batch_done(half.id, 1, 60), RunBatch)
    assert [rows_of(half), rows_of(other)] == [[4], [3]] or [rows_of(half), rows_of(other)] == [[3], [4]]


def apart(scheduler: Scheduler, *requests: Request, now_us: int = 0) -> None:
    """These wait, each half apart, while the slices "s" is held."""
    (batch,) = send(scheduler, *requests, now_us=now_us)
    scheduler.hold("s")
    assert not scheduler.batch_failed(batch.id, "why", now_us)


def test_who_waits_apart_expires_leaves_and_is_counted_as_everybody() -> None:
    scheduler = scheduler_on("s", limits=Limits(queue_requests=4))
    apart(scheduler, request_of(1, expires_us=50), request_of(2), request_of(3), request_of(4))
    assert scheduler.queue_rows("m") == 4
    assert list(outcomes(scheduler.arrive(request_of(5), 1))) == [5], "the queue is full"
    assert outcomes(scheduler.cancel(3)) == {3: CLIENT_GONE}
    assert scheduler.wake_us <= 50
    assert outcomes(scheduler.wake(50)) == {1: DEADLINE_QUEUED}
    (batch,) = only(scheduler.release("s", 50), RunBatch)
    ended, _ = played_out(scheduler, [batch], lambda batch: False, 51)
    assert ended == {2: COMPLETED, 4: COMPLETED}
    assert not list(scheduler._models["m"].queue.lanes)


def test_who_waits_apart_is_lost_with_the_last_replica_that_could_answer() -> None:
    scheduler = scheduler_on("s")
    apart(scheduler, request_of(1), request_of(2))
    scheduler.replica_up("t", "m", replica_of(served_model(), "b"), 1)
    ended = outcomes(scheduler.replica_down("s", "m", "a", "gone", 2))
    assert ended == {1: WORKER_LOST, 2: WORKER_LOST}
    assert scheduler.queue_rows("m") == 0


def test_who_waits_apart_runs_on_another_replica() -> None:
    scheduler = scheduler_on("s")
    apart(scheduler, *(request_of(number, variants=("a", "b")) for number in (1, 2)))
    assert not scheduler.replica_up("s", "m", replica_of(served_model(), "b"), 1)
    assert not scheduler.replica_down("s", "m", "a", "gone", 2)
    ended, count = played_out(scheduler, only(scheduler.release("s", 3), RunBatch), lambda batch: False, 3)
    assert (ended, count) == ({1: COMPLETED, 2: COMPLETED}, 2)


def test_what_can_no_longer_be_in_time_is_not_tried_again() -> None:
    scheduler = scheduler_on("s", row_us=100)
    (batch,) = send(scheduler, request_of(1, slack_us=1000), request_of(2, slack_us=900))
    commands = scheduler.batch_failed(batch.id, "why", 801)
    assert outcomes(commands) == {2: MODEL_ERROR}
    assert [rows_of(batch) for batch in only(commands, RunBatch)] == [[1]]


def test_in_time_means_on_a_replica_that_is_still_there() -> None:
    """What the quickest takes is remembered for those that arrive: it may have gone since."""
    model = served_model(slo_us=100_000, batching=SLO)
    scheduler = scheduler_on("quick", model=model, row_us=100)
    scheduler.replica_up("slow", "m", replica_of(model, row_us=9000), 0)
    scheduler.hold("quick")
    for request_id in (1, 2):
        scheduler.arrive(request_of(request_id, slack_us=60_000), 0)
    batches: list[RunBatch] = []
    while not batches:
        batches = started(scheduler, max(scheduler.wake_us, 1))
    assert [rows_of(batch) for batch in batches] == [[1, 2]]
    scheduler.replica_down("quick", "m", "a", "gone", 55_000)
    ended = outcomes(scheduler.batch_failed(batches[0].id, "why", 55_000))
    assert ended == {1: MODEL_ERROR, 2: MODEL_ERROR}


# batches that were lost with their worker


def test_a_lost_batch_runs_again_elsewhere_before_what_came_later() -> None:
    scheduler = scheduler_on("s", "t", model=served_model(batch_max=1))
    first, second = send(scheduler, request_of(1), request_of(2), request_of(3))
    assert [rows_of(batch) for batch in (first, second)] == [[1], [2]]
    assert not scheduler.slice_down(first.slice, "killed", 2)
    (again,) = only(scheduler.batch_done(second.id, 1, 3), RunBatch)
    assert again.pieces == first.pieces, "of equal deadlines the one that came first, though it was away"
    assert scheduler.batch_done(first.id, 1, 4) == (), "the dead worker's report counts for nothing"


def test_a_lost_batch_has_waited_since_its_requests_arrived() -> None:
    delayed = served_model(batching=BatchingSpec("static", delay_us=100))
    scheduler = scheduler_on("s", "t", model=delayed)
    scheduler.arrive(request_of(1), 0)
    (batch,) = started(scheduler, 100)
    scheduler.arrive(request_of(2, arrived_us=120), 120)
    (again,) = only(scheduler.slice_down(batch.slice, "killed", 150), RunBatch)
    assert rows_of(again) == [1, 2]


@pytest.mark.parametrize(("now_us", "lost"), [(900, False), (901, True)])
def test_a_lost_batch_is_tried_again_only_where_it_can_still_be_in_time(now_us: int, lost: bool) -> None:
    scheduler = scheduler_on("s", "t", row_us=100)
    (batch,) = send(scheduler, request_of(1, slack_us=1000))
    commands = scheduler.slice_down(batch.slice, "killed", now_us)
    assert outcomes(commands) == ({1: WORKER_LOST} if lost else {})
    assert len(only(commands, RunBatch)) == (not lost)


def test_a_request_that_took_two_workers_with_it_is_failed_whichever_piece_it_was() -> None:
    scheduler = scheduler_on("s", "t", "u", model=served_model(batch_max=1))
    first, second, _ = send(scheduler, request_of(rows=3))
    assert not only(scheduler.slice_down(first.slice, "killed", 1), Answer)
    (answer,) = only(scheduler.slice_down(second.slice, "killed again", 2), Answer)
    assert (answer.outcome, answer.detail) == (WORKER_LOST, "killed again")
    assert scheduler.queue_rows("m") == 0


def test_a_request_that_is_known_to_have_ended_its_worker_is_not_tried_on_the_next() -> None:
    scheduler = scheduler_on("s", "t", "u", model=served_model(batch_max=1))
    first, second = send(scheduler, request_of(1), request_of(2))
    commands = scheduler.slice_down(first.slice, "exited with 1", 1, blamed=True)
    assert outcomes(commands) == {1: WORKER_LOST}
    assert only(commands, RunBatch) == []
    assert outcomes(scheduler.batch_done(second.id, 1, 2)) == {2: COMPLETED}


def test_two_pieces_in_one_lost_batch_are_one_loss() -> None:
    scheduler, _, _ = several_pieces_in_a_batch()
    scheduler.replica_up("t", "m", replica_of(served_model()), 0)
    assert not outcomes(scheduler.slice_down("s", "killed", 1))


def test_a_half_that_is_lost_with_its_worker_is_tried_again_apart() -> None:
    scheduler = scheduler_on("s")
    (batch,) = send(scheduler, request_of(1), request_of(2), request_of(3))
    (half,) = only(scheduler.batch_failed(batch.id, "why", 1), RunBatch)
    (other,) = only(scheduler.replica_up("t", "m", replica_of(served_model()), 2), RunBatch)
    scheduler.slice_down("s", "killed", 2)
    scheduler.arrive(request_of(4), 2)
    (again,) = only(scheduler.batch_done(other.id, 1, 3), RunBatch)
    assert again.pieces == half.pieces
    assert outcomes(scheduler.slice_down("t", "killed", 3)) == dict.fromkeys((1, 2, 4), WORKER_LOST)


def test_a_batch_that_fails_after_it_was_lost_fails_for_what_the_model_said() -> None:
    scheduler = scheduler_on("s", "t", row_us=100)
    (batch,) = send(scheduler, request_of(1), request_of(2))
    (again,) = only(scheduler.slice_down(batch.slice, "killed", 1), RunBatch)
    (answer, _) = only(scheduler.batch_failed(again.id, "shape mismatch", 999), Answer)
    assert (answer.outcome, answer.detail) == (MODEL_ERROR, "shape mismatch")


@pytest.mark.parametrize("how", ["failed", "lost"])
def test_what_was_accepted_is_tried_again_while_draining(how: str) -> None:
    scheduler = scheduler_on("s", "t")
    (batch,) = send(scheduler, request_of(1), request_of(2))
    scheduler.drain()
    if how == "failed":
        commands = scheduler.batch_failed(batch.id, "why", 1)
    else:
        commands = scheduler.slice_down("s", "killed", 1)
    assert outcomes(scheduler.arrive(request_of(3), 1)) == {3: DRAINING}
    ended, _ = played_out(scheduler, only(commands, RunBatch), lambda batch: False)
    assert ended == {1: COMPLETED, 2: COMPLETED}
