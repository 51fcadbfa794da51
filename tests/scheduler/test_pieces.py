"""When a request of many rows is due, and when its pieces are: the first by what was promised, the others in
an order that leaves room between them."""

from itertools import pairwise

import pytest

from serving.scheduler.commands import RunBatch
from serving.scheduler.scheduler import Scheduler
from serving.scheduler.waiting.requests import Request
from serving.values.objectives import Objective
from serving.values.specs import BatchingSpec, Limits
from serving.values.vocabulary import COMPLETED, NEVER_US
from tests.scheduler.values import only, outcomes, replica_of, request_of, scheduler_on, send, served_model


def dues(request: Request) -> list[int]:
    return [piece.deadline_us for piece in request.pieces]


def test_a_request_is_due_when_it_was_promised_however_many_its_pieces() -> None:
    scheduler = scheduler_on("s", model=served_model(batch_max=2), row_us=100)
    large = request_of(1, rows=6, slack_us=500)
    batches = send(scheduler, large)
    assert (large.deadline_us, large.latest_us, dues(large)) == (500, 1500, [500, 1000, 1500])
    for now_us in (200, 400, 600):
        commands = scheduler.batch_done(batches.pop().id, 200, now_us)
        batches = only(commands, RunBatch)
    assert outcomes(commands) == {1: COMPLETED}, "late by what was promised, and answered"


@pytest.mark.parametrize(
    ("parts", "instants"),
    [
        (1, [1000, 2000, 3000]),  # the last pieces are due after the promise
        (2, [500, 1000, 1500]),  # of two SLOs of 500
        (3, [333, 666, 1000]),
        (4, [333, 666, 1000]),  # of more SLOs than there are pieces each gets an equal part
        (9, [333, 666, 1000]),
    ],
)
@pytest.mark.parametrize("cold", [False, True])
def test_pieces_are_due_one_slo_after_the_other_and_the_last_never_before_the_promise(
    parts: int, instants: list[int], cold: bool
) -> None:
    model = served_model(batch_max=8, slo_us=8)  # of which two rows take half
    large = request_of(1, rows=6, arrived_us=0, slack_us=1000)
    large.parts = parts
    scheduler = Scheduler([model], Limits())
    if cold:
        scheduler.cold("m", "a", 10, 0)
        scheduler.arrive(large, 0)
        assert dues(large) == [1000]
    scheduler.replica_up("s", "m", replica_of(model, latency_us={1: 1, 2: 4, 4: 5, 8: 9}), 0)
    if not cold:
        scheduler.arrive(large, 0)
    assert [piece.rows for piece in large.pieces] == [2, 2, 2]
    assert dues(large) == instants
    assert (large.deadline_us, large.latest_us) == (1000, instants[-1])


def test_all_of_it_is_due_at_the_deadline_that_its_client_gave() -> None:
    scheduler = scheduler_on("s", model=served_model(batch_max=2))
    large = request_of(1, rows=6, slack_us=500, expires_us=500)
    large.parts = 2
    send(scheduler, large)
    assert (dues(large), large.latest_us) == ([500, 500, 500], 500)


@pytest.mark.parametrize("expires_us", [NEVER_US, 2000])
def test_a_successors_request_is_due_when_the_successor_is_and_no_piece_before(
    expires_us: int,
) -> None:
    scheduler = scheduler_on("s", model=served_model(batch_max=2))
    scheduler.hold("s")
    large = request_of(1, rows=6, slack_us=900)
    large.parts = 3
    send(scheduler, large)
    assert dues(large) == [300, 600, 900]
    successor = request_of(0, rows=6, arrived_us=50, slack_us=500, expires_us=expires_us)
    scheduler.pass_on(large, successor, 60)
    assert (large.deadline_us, large.latest_us, dues(large)) == (550, 550, [550, 550, 550])


def test_what_is_lost_with_a_worker_is_tried_again_until_its_last_piece_is_due() -> None:
    model = served_model(batch_max=2, batching=BatchingSpec("static"))
    scheduler = scheduler_on("s", model=model, row_us=100)
    large = request_of(1, rows=4, slack_us=300)
    (first,) = send(scheduler, large)
    (second,) = only(scheduler.batch_done(first.id, 200, 200), RunBatch)
    scheduler.replica_up("t", "m", replica_of(model, row_us=100.0, replica_id=2), 300)
    (again,) = only(scheduler.slice_down("s", "died", 350), RunBatch)  # after the promise
    assert [piece.first_row for piece in again.pieces] == [piece.first_row for piece in second.pieces]
    assert outcomes(scheduler.batch_done(again.id, 200, 550)) == {1: COMPLETED}


@pytest.mark.parametrize("rows", range(1, 30))
@pytest.mark.parametrize("slo_rows", [0, 1, 3, 8, 100])
def test_no_request_is_given_up_before_its_promise_is_broken(rows: int, slo_rows: int) -> None:
    promise = Objective("", 700, ("a",), slo_rows=slo_rows)
    scheduler = scheduler_on("s", model=served_model(batch_max=4))
    large = request_of(1, rows=rows, slack_us=promise.due_us(rows))
    large.parts = promise.parts(rows)
    send(scheduler, large)
    assert large.deadline_us == promise.due_us(rows) <= large.latest_us == dues(large)[-1]
    assert all(earlier <= later for earlier, later in pairwise(dues(large)))
