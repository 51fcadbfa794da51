"""What is promised where others wait for a request's answer: it may go sooner, and never fares worse."""

import pytest

from serving.scheduler.commands import RunBatch
from serving.values.specs import BatchingSpec
from serving.values.vocabulary import CLIENT_GONE, DEADLINE_UNMET, NEVER_US
from tests.scheduler.values import (
    only,
    outcomes,
    request_of,
    rows_of,
    scheduler_on,
    send,
    served_model,
    started,
)

ONE_BY_ONE = served_model(batch_max=1)


def test_a_request_that_others_need_sooner_overtakes_what_is_due_before_it() -> None:
    scheduler = scheduler_on("s", model=ONE_BY_ONE)
    (running,) = send(scheduler, request_of(1))
    send(scheduler, request_of(2, slack_us=500), request_of(3, slack_us=900))
    assert not scheduler.tighten(3, 400, 10)
    assert [rows_of(batch) for batch in only(scheduler.batch_done(running.id, 1, 20), RunBatch)] == [[3]]


@pytest.mark.parametrize("deadline_us", [900, 901, NEVER_US])
def test_one_that_is_due_as_soon_anyway_changes_nothing(deadline_us: int) -> None:
    scheduler = scheduler_on("s", model=ONE_BY_ONE)
    (running,) = send(scheduler, request_of(1))
    send(scheduler, request_of(2, slack_us=800), request_of(3, slack_us=900))
    wake_us = scheduler.wake_us
    assert not scheduler.tighten(3, deadline_us, 10)
    assert scheduler.wake_us == wake_us
    assert [rows_of(batch) for batch in only(scheduler.batch_done(running.id, 1, 20), RunBatch)] == [[2]]


def test_unknown_and_answered_requests_cannot_be_hurried() -> None:
    scheduler = scheduler_on("s", model=ONE_BY_ONE)
    (running,) = send(scheduler, request_of(1))
    scheduler.batch_done(running.id, 1, 5)
    for request_id in (1, 2):
        assert not scheduler.tighten(request_id, 0, 10)
    assert scheduler.wake_us == NEVER_US


def test_the_plan_is_made_anew_at_once_where_a_slice_could_start_the_request() -> None:
    patient = served_model(batch_max=4, batching=BatchingSpec("symphony"), slo_us=100_000)
    scheduler = scheduler_on("s", model=patient, row_us=1000)
    assert not send(scheduler, request_of(1, slack_us=100_000)), "it waits for company"
    assert scheduler.wake_us > 10_000
    assert not scheduler.tighten(1, 2_000, 10)
    assert scheduler.wake_us == 10
    batches = started(scheduler, 10) or started(scheduler, min(scheduler.wake_us, 1_000))
    assert [rows_of(batch) for batch in batches] == [[1]]


def test_one_that_runs_is_hurried_only_if_it_comes_back() -> None:
    scheduler = scheduler_on("s", model=served_model(batch_max=2))
    first, second = request_of(1), request_of(2)
    (running,) = send(scheduler, first, second)
    wake_us = scheduler.wake_us
    assert not scheduler.tighten(2, 700, 10)
    assert scheduler.wake_us == wake_us
    (apart,) = only(scheduler.batch_failed(running.id, "why", 20), RunBatch)
    assert rows_of(apart) == [2]


def test_a_request_is_never_given_up_for_the_sake_of_others() -> None:
    shedding = served_model(batch_max=1, batching=BatchingSpec("slo", admission=False))
    scheduler = scheduler_on("s", model=shedding, row_us=100)
    (running,) = send(scheduler, request_of(1))
    send(scheduler, request_of(2, slack_us=1000))
    assert not scheduler.tighten(2, 150, 0)
    done = scheduler.batch_done(running.id, 100, 100)  # for the others it is too late now
    assert [rows_of(batch) for batch in only(done, RunBatch)] == [[2]]
    assert DEADLINE_UNMET not in outcomes(done).values()


def test_once_it_is_too_late_for_the_others_it_is_due_as_before_and_given_up_as_any() -> None:
    shedding = served_model(batch_max=1, batching=BatchingSpec("slo", admission=False))
    scheduler = scheduler_on("s", model=shedding, row_us=100)
    (running,) = send(scheduler, request_of(1))
    send(scheduler, request_of(2, slack_us=400), request_of(3, slack_us=300))
    assert not scheduler.tighten(2, 150, 0)
    (second,) = only(scheduler.batch_done(running.id, 100, 100), RunBatch)
    assert rows_of(second) == [3], "in the order of what their own clients were promised"
    assert outcomes(scheduler.batch_done(second.id, 250, 350))[2] is DEADLINE_UNMET


def test_all_pieces_of_a_large_request_are_due_when_others_need_it() -> None:
    scheduler = scheduler_on("s", model=served_model(batch_max=2))
    send(scheduler, request_of(1))
    large = request_of(2, rows=5, slack_us=900)
    send(scheduler, large)
    promised_us = large.deadline_us
    assert not scheduler.tighten(2, 950, 10)
    assert [piece.deadline_us for piece in large.pieces] == [900, 950, 950]
    assert large.deadline_us == promised_us, "what its own client was promised stays"


def test_a_cancelled_request_leaves_nothing_behind() -> None:
    scheduler = scheduler_on("s", model=ONE_BY_ONE)
    (running,) = send(scheduler, request_of(1))
    send(scheduler, request_of(2, slack_us=500))
    scheduler.tighten(2, 100, 0)
    assert outcomes(scheduler.cancel(2)) == {2: CLIENT_GONE}
    assert scheduler.queue_rows("m") == 0
    assert not only(scheduler.batch_done(running.id, 1, 20), RunBatch)


def test_each_piece_is_due_again_as_it_was_once_it_is_too_late_for_the_others() -> None:
    scheduler = scheduler_on("s", model=served_model(batch_max=1), row_us=100)
    send(scheduler, request_of(1))
    large = request_of(2, rows=3, slack_us=300)
    send(scheduler, large)
    promised_us = [piece.deadline_us for piece in large.pieces]
    assert promised_us == [300, 600, 900]
    scheduler.tighten(2, 400, 0)
    scheduler.tighten(2, 200, 0)
    scheduler._models["m"].queue.relax(large)
    assert [piece.deadline_us for piece in large.pieces] == promised_us
    (lane,) = scheduler._models["m"].queue.lanes
    assert lane.pieces == large.pieces
