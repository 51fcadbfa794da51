"""Models that are not loaded: who asks waits where it can be in time, is told at once where not, and a Miss
says what is wanted."""

import pytest

from serving.scheduler.cold import MISS_EVERY_US
from serving.scheduler.commands import Answer, Miss, RunBatch
from serving.scheduler.scheduler import Scheduler
from serving.scheduler.waiting.requests import Request
from serving.values.specs import BatchingSpec, Limits
from serving.values.vocabulary import (
    COMPLETED,
    DEADLINE_QUEUED,
    DEADLINE_UNMET,
    NEVER_US,
    NO_REPLICA,
    NOT_LOADED,
    WORKER_LOST,
)
from tests.scheduler.values import only, outcomes, replica_of, request_of, rows_of, served_model, started

MISS = Miss("m", "a")


def cold(load_us: int = 500, **limits: int) -> Scheduler:
    """The model "m", of which the variant "a" can be loaded within `load_us`."""
    scheduler = Scheduler([served_model()], Limits(**limits))
    assert not scheduler.cold("m", "a", load_us, 0)
    return scheduler


def load(scheduler: Scheduler, now_us: int, row_us: float = 1.0) -> list[RunBatch]:
    """The batches that start as the variant is live."""
    return only(scheduler.replica_up("s", "m", replica_of(served_model(), row_us=row_us), now_us), RunBatch)


def evict(scheduler: Scheduler, now_us: int, load_us: int = 500) -> list[Answer]:
    """Those who are ended by it, as control evicts: first it says that it can be loaded again."""
    before = scheduler.cold("m", "a", load_us, now_us)
    return only([*before, *scheduler.replica_down("s", "m", "a", "evicted", now_us)], Answer)


def test_a_request_that_can_be_in_time_waits_and_is_answered_when_the_model_is_there() -> None:
    scheduler = cold(load_us=500)
    assert scheduler.arrive(request_of(1, slack_us=500), 0) == (MISS,)
    assert (scheduler.queue_rows("m"), scheduler.open_requests) == (1, 1)
    assert not scheduler.expect("m", "a", 480, 0)
    (batch,) = load(scheduler, 490)
    assert outcomes(scheduler.batch_done(batch.id, 1, 492)) == {1: COMPLETED}


def test_a_request_that_cannot_be_in_time_is_told_at_once_why_and_when_to_come_back() -> None:
    scheduler = cold(load_us=1_400_000)
    answer, miss = scheduler.arrive(request_of(1, slack_us=25_000), 0)
    assert isinstance(answer, Answer)
    assert (answer.outcome, answer.retry_us, miss) == (NOT_LOADED, 1_400_000, MISS)
    assert answer.detail == "m is not loaded, and loading it takes 1.4 s; the request is due in 25 ms"
    assert scheduler.open_requests == scheduler.queue_rows("m") == 0


def test_while_it_is_being_loaded_the_rest_of_the_load_decides() -> None:
    scheduler = cold(load_us=1_400_000)
    scheduler.expect("m", "a", 1_400_000, 0)
    (answer,) = scheduler.arrive(request_of(1, arrived_us=1_000_000, slack_us=25_000), 1_000_000)
    assert isinstance(answer, Answer)
    assert (answer.outcome, answer.retry_us) == (NOT_LOADED, 400_000)
    assert answer.detail == "m is being loaded, for 400 ms more; the request is due in 25 ms"
    assert scheduler.arrive(request_of(2, arrived_us=1_380_000, slack_us=25_000), 1_380_000) == ()


def test_what_a_row_took_when_it_was_last_live_counts() -> None:
    scheduler = cold(load_us=500)
    load(scheduler, 0, row_us=100)
    evict(scheduler, 10)
    late, _ = scheduler.arrive(request_of(1, arrived_us=10, slack_us=599), 10)
    assert isinstance(late, Answer)
    assert late.outcome is NOT_LOADED
    assert scheduler.arrive(request_of(2, arrived_us=10, slack_us=600), 10) == ()
    assert scheduler.queue_rows("m") == 1


def test_a_miss_is_said_once_until_somebody_loads_it_or_a_while_has_passed() -> None:
    scheduler = cold(load_us=500)
    now_us = MISS_EVERY_US - 1
    assert scheduler.arrive(request_of(1, slack_us=600_000), 0) == (MISS,)
    assert scheduler.arrive(request_of(2, slack_us=600_000), 0) == ()
    assert scheduler.arrive(request_of(3, arrived_us=now_us, slack_us=600_000), now_us) == ()
    assert scheduler.arrive(request_of(4, arrived_us=now_us + 1, slack_us=9), now_us + 1)[1:] == (MISS,)
    scheduler.expect("m", "a", 900_000, now_us + 2)
    assert scheduler.arrive(request_of(5, arrived_us=2 * now_us, slack_us=9_000_000), 2 * now_us) == ()


def test_a_declined_miss_is_said_again_for_what_waits_and_not_at_once() -> None:
    scheduler = cold(load_us=500)
    scheduler.arrive(request_of(1, slack_us=600_000), 0)
    assert not scheduler.cold("m", "a", 700, 5), "control declines: nothing may ask within its own call"
    assert scheduler.wake_us == MISS_EVERY_US
    assert scheduler.wake(scheduler.wake_us) == [MISS]
    assert scheduler.wake_us == 2 * MISS_EVERY_US


def test_what_waits_for_a_load_that_was_given_up_is_asked_for_again_at_once() -> None:
    scheduler = cold(load_us=500)
    scheduler.arrive(request_of(1, slack_us=600_000), 0)
    scheduler.expect("m", "a", 500, 0)
    assert scheduler.cold("m", "a", 700, 100) == [MISS]


def test_who_waits_in_vain_is_told_as_soon_as_that_is_known() -> None:
    scheduler = cold(load_us=500)
    scheduler.arrive(request_of(1, slack_us=500), 0)
    scheduler.arrive(request_of(2, slack_us=900), 0)
    (answer,) = scheduler.expect("m", "a", 800, 0)
    assert isinstance(answer, Answer)
    assert (answer.request.id, answer.outcome, answer.retry_us) == (1, DEADLINE_UNMET, 1000)
    assert answer.detail.startswith("m is being loaded, for 1 ms more")
    assert scheduler.queue_rows("m") == 1


def test_a_load_that_is_late_is_believed_in_less_and_less() -> None:
    """100 us late it is expected after 100 us more: from then on the deadline, at 1,000, is out of reach."""
    scheduler = cold(load_us=500)
    scheduler.arrive(request_of(1, slack_us=1000), 0)
    scheduler.expect("m", "a", 800, 0)
    assert scheduler.wake_us == 901
    assert not scheduler.wake(900)
    assert outcomes(scheduler.wake(901)) == {1: DEADLINE_UNMET}


def test_a_load_that_nobody_begins_is_waited_for_as_long_as_it_could_be_in_time() -> None:
    scheduler = cold(load_us=500)
    scheduler.arrive(request_of(1, slack_us=1000), 0)
    assert scheduler.wake_us == 501
    assert outcomes(scheduler.wake(501)) == {1: DEADLINE_UNMET}


def test_it_can_no_longer_be_loaded_and_what_waits_for_it_ends() -> None:
    scheduler = cold()
    scheduler.arrive(request_of(1), 0)
    (answer,) = scheduler.cold("m", "a", NEVER_US, 5)
    assert isinstance(answer, Answer)
    assert (answer.outcome, answer.detail) == (WORKER_LOST, "m a cannot be loaded")
    assert outcomes(scheduler.arrive(request_of(2, arrived_us=6), 6)) == {2: NO_REPLICA}


def test_an_eviction_ends_nobody_who_can_wait() -> None:
    scheduler = cold(load_us=500)
    load(scheduler, 0)
    scheduler.hold("s")
    for number, slack_us in ((1, 499), (2, 2000)):
        assert scheduler.arrive(request_of(number, slack_us=slack_us), 0) == ()
    assert {answer.request.id: answer.outcome for answer in evict(scheduler, 10)} == {1: DEADLINE_UNMET}
    assert scheduler.queue_rows("m") == 1
    scheduler.expect("m", "a", 500, 10)
    scheduler.replica_up("t", "m", replica_of(served_model()), 520)
    assert [batch.slice for batch in started(scheduler, 520)] in ([], ["t"])


def test_what_was_lost_with_its_worker_waits_for_a_model_that_can_be_loaded_in_time() -> None:
    scheduler = cold(load_us=500)
    load(scheduler, 0)
    scheduler.arrive(request_of(1, slack_us=2000), 0)
    scheduler.arrive(request_of(2, slack_us=300), 0)
    (batch,) = started(scheduler, 0)
    assert rows_of(batch) == [2, 1]
    scheduler.cold("m", "a", 500, 10)
    assert outcomes(scheduler.slice_down("s", "died", 10)) == {2: WORKER_LOST}
    assert scheduler.queue_rows("m") == 1
    (again,) = load(scheduler, 600)
    assert rows_of(again) == [1]


def test_a_client_deadline_ends_what_waits_for_a_load_too() -> None:
    scheduler = cold(load_us=500)
    scheduler.arrive(request_of(1, slack_us=800, expires_us=700), 0)
    scheduler.expect("m", "a", 750, 0)
    assert outcomes(scheduler.wake(scheduler.wake_us)) == {1: DEADLINE_QUEUED}


def test_who_was_hurried_for_others_is_due_as_before_where_the_model_comes_too_late_for_them() -> None:
    scheduler = cold(load_us=500)
    scheduler.arrive(request_of(1, slack_us=2000), 0)
    scheduler.tighten(1, 300, 0)
    scheduler.wake(0)
    assert scheduler.queue_rows("m") == 1
    (batch,) = load(scheduler, 1500)
    assert batch.pieces[0].deadline_us == 2000


def test_a_pinned_variant_is_asked_for_while_another_is_live() -> None:
    model = served_model()
    scheduler = Scheduler([model], Limits())
    scheduler.cold("m", "b", 500, 0)
    scheduler.replica_up("s", "m", replica_of(model), 0)
    assert scheduler.arrive(request_of(1, variants=("b",)), 0) == (Miss("m", "b"),)
    assert scheduler.arrive(request_of(2, variants=("a", "b")), 0) == ()
    assert [rows_of(batch) for batch in started(scheduler, 0)] == [[2]]


def test_a_model_that_can_be_loaded_is_ready_to_be_asked() -> None:
    scheduler = cold()
    assert scheduler.can_answer("m", "a")
    assert not scheduler.can_answer("m", "b")
    scheduler.expect("m", "a", 500, 0)
    assert scheduler.can_answer("m", "a")
    load(scheduler, 10)
    assert scheduler.can_answer("m", "a")
    scheduler.replica_down("s", "m", "a", "gone for good", 20)
    assert not scheduler.can_answer("m", "a")


def test_the_bounds_of_the_queue_hold_while_a_model_is_not_loaded() -> None:
    scheduler = cold(queue_requests=2)
    answers = [scheduler.arrive(request_of(number), 0) for number in (1, 2, 3)]
    assert [len(only(commands, Answer)) for commands in answers] == [0, 0, 1]


@pytest.mark.parametrize("expires_us", [NEVER_US, 900])
def test_a_large_request_is_cut_as_if_the_model_had_been_there(expires_us: int) -> None:
    """A batch of 2 rows is what could run twice within the SLO."""
    model = served_model(batch_max=8, slo_us=1000)
    slow = {1: 100.0, 2: 200.0, 4: 1000.0, 8: 2000.0}

    def request() -> Request:
        return request_of(1, rows=7, slack_us=900, expires_us=expires_us)

    asked = request()
    live = Scheduler([model], Limits())
    live.replica_up("s", "m", replica_of(model, latency_us=slow), 0)
    live.arrive(asked, 0)
    waiting = request()
    late = Scheduler([model], Limits())
    late.cold("m", "a", 100, 0)
    late.arrive(waiting, 0)
    assert [piece.rows for piece in waiting.pieces] == [7]
    late.replica_up("s", "m", replica_of(model, latency_us=slow), 50)
    assert [(p.first_row, p.rows, p.deadline_us) for p in waiting.pieces] == [
        (p.first_row, p.rows, p.deadline_us) for p in asked.pieces
    ]
    assert (
        (waiting.open_pieces, waiting.deadline_us)
        == (asked.open_pieces, asked.deadline_us)
        == (4, asked.deadline_us)
    )


def test_those_who_wait_keep_their_turn_when_they_are_cut() -> None:
    model = served_model(batch_max=8, slo_us=1000, batching=BatchingSpec("static"))
    scheduler = Scheduler([model], Limits())
    scheduler.cold("m", "a", 100, 0)
    for number, rows in ((1, 5), (2, 1), (3, 5), (4, 1)):
        scheduler.arrive(request_of(number, rows, slack_us=900, expires_us=900), 0)
    (batch,) = only(
        scheduler.replica_up("s", "m", replica_of(model, latency_us={1: 100.0, 2: 200.0, 8: 3000.0}), 50),
        RunBatch,
    )
    order = rows_of(batch)
    while order and scheduler.queue_rows("m"):
        (batch,) = only(scheduler.batch_done(batch.id, 1, 60), RunBatch)
        order += rows_of(batch)
    assert order == [1, 1, 1, 2, 3, 3, 3, 4]


def test_what_cannot_be_loaded_is_refused_with_the_reason_and_no_time_to_come_back() -> None:
    scheduler = cold(100)
    reason = "it takes 198 MB, and its slice has 150 MB for models (memory_mb)"
    assert not scheduler.cold("m", "a", NEVER_US, 5, reason)
    (answer,) = scheduler.arrive(request_of(1, arrived_us=10), 10)
    assert isinstance(answer, Answer)
    assert (answer.outcome, answer.retry_us) == (NO_REPLICA, 0)
    assert answer.detail == f"m a cannot be loaded: {reason}"
    scheduler.cold("m", "a", 100, 20)
    assert not scheduler.models["m"].hopeless
