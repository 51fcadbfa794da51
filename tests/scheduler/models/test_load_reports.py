"""Promises of what is counted of a model: how it was asked, and how it fared. (`book.py` counts along in any
history.)"""

from dataclasses import replace

import pytest

from serving.policy.scaling.interface import LoadReport
from serving.scheduler.scheduler import Scheduler
from serving.values.specs import Limits
from serving.values.vocabulary import COMPLETED
from tests.scheduler.values import outcomes, replica_of, request_of, scheduler_on, send, served_model


def of(scheduler: Scheduler, now_us: int = 0) -> LoadReport:
    (seen,) = scheduler.seen(now_us)
    return seen


def test_only_models_whose_replicas_follow_load_are_looked_at() -> None:
    fixed = replace(served_model("f"), replicas=None)
    scheduler = Scheduler([fixed, served_model()], Limits())
    assert scheduler.seen(0) == (LoadReport("m"),)


def test_requests_and_rows_and_the_gaps_between_requests_are_counted() -> None:
    scheduler = scheduler_on("s")
    for number, at_us in enumerate((0, 0, 3_000_000, 7_200_000_000)):
        scheduler.arrive(request_of(number, rows=2, arrived_us=at_us), at_us)
    seen = of(scheduler)
    assert (seen.requests, seen.offered) == (4, 8)
    assert seen.gaps_s2 == pytest.approx(0 + 3**2 + 7_197**2)


def test_what_waits_and_what_runs_is_told_apart_with_the_age_of_the_oldest() -> None:
    scheduler = scheduler_on("s")
    send(scheduler, request_of(1, rows=3))
    for number, at_us in ((2, 100), (3, 130)):
        scheduler.arrive(request_of(number, rows=2, arrived_us=at_us), at_us)
    seen = of(scheduler, 150)
    assert (seen.running, seen.waiting, seen.oldest_us) == (3, 4, 50)


def test_an_answer_after_its_own_deadline_is_missed_and_completed() -> None:
    scheduler = scheduler_on("s")
    (batch,) = send(scheduler, request_of(1, rows=2, slack_us=400))
    scheduler.batch_done(batch.id, 300, 401)
    seen = of(scheduler)
    assert (seen.completed, seen.missed, seen.answered) == (2, 2, 1)
    assert (seen.took_us, seen.busy_us) == (401, 300)


def test_an_answer_that_is_late_only_for_who_joined_it_is_in_time() -> None:
    scheduler = scheduler_on("s")
    request = request_of(1, slack_us=400)
    (batch,) = send(scheduler, request)
    scheduler.tighten(1, 100, 50)
    assert outcomes(scheduler.batch_done(batch.id, 200, 200)) == {1: COMPLETED}
    assert of(scheduler).missed == 0


def test_a_refusal_for_want_of_a_replica_is_missed_and_one_while_shutting_down_is_not() -> None:
    scheduler = Scheduler([served_model()], Limits())
    scheduler.arrive(request_of(1, rows=3), 0)
    assert (of(scheduler).offered, of(scheduler).missed) == (3, 3)
    scheduler.drain()
    scheduler.arrive(request_of(2, rows=3), 0)
    assert (of(scheduler).offered, of(scheduler).missed) == (6, 3)


def test_who_leaves_is_not_missed_and_who_was_lost_with_a_worker_is() -> None:
    scheduler = scheduler_on("s")
    send(scheduler, request_of(1), request_of(2))
    scheduler.cancel(1)
    assert of(scheduler).missed == 0
    scheduler.slice_down("s", "it is gone", 10)
    seen = of(scheduler)
    assert (seen.offered, seen.completed, seen.missed) == (2, 0, 1)


def test_counts_go_on_when_a_model_is_served_otherwise() -> None:
    scheduler = scheduler_on("s")
    send(scheduler, request_of(1))
    scheduler.serve(served_model(slo_us=9_000), 10)
    assert of(scheduler).offered == 1


def test_a_model_without_replicas_that_gets_some_is_known_from_its_first_request() -> None:
    fixed = replace(served_model(), replicas=None)
    scheduler = Scheduler([fixed], Limits())
    scheduler.replica_up("s", "m", replica_of(fixed), 0)
    send(scheduler, request_of(1))
    assert scheduler.seen(0) == ()
    scheduler.serve(served_model(), 10)
    assert of(scheduler).offered == 1
