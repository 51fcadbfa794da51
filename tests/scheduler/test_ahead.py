"""What is promised of a batch that is sent ahead of the end of the one that runs: it is next, and no more."""

import pytest

from serving.scheduler.commands import Answer, ReplaceWorker, RunBatch, Suspect
from serving.scheduler.scheduler import Scheduler
from serving.scheduler.slices.replicas import LEAD_US_MAX, LEAD_US_MIN
from serving.values.specs import BatchingSpec, Limits
from serving.values.vocabulary import CLIENT_GONE, COMPLETED, DEADLINE_RUNNING, NEVER_US, WORKER_LOST
from tests.scheduler.values import (
    only,
    outcomes,
    replica_of,
    request_of,
    rows_of,
    send,
    served_model,
    started,
)

WAY_US = 600  # what the way to a slice and back takes, beside the computation
ROW_US = 2000


def scheduler_on(*slices: str, way_us: int = WAY_US, batching: BatchingSpec | None = None) -> Scheduler:
    """One row a batch, ROW_US each."""
    model = served_model(batch_max=1, slo_us=100_000, batching=batching)
    scheduler = Scheduler([model], Limits(stall_us=50_000))
    for name in slices:
        replica = replica_of(model, row_us=ROW_US)
        replica.residuals.add(ROW_US, ROW_US, ROW_US + way_us)
        scheduler.replica_up(name, "m", replica, 0)
    return scheduler


def one_ahead(scheduler: Scheduler) -> tuple[RunBatch, RunBatch, int]:
    """A batch that runs, one sent ahead, and when."""
    (first,) = send(scheduler, request_of(1, slack_us=90_000))
    scheduler.arrive(request_of(2, slack_us=90_000), 0)
    now_us = scheduler.wake_us
    (second,) = started(scheduler, now_us)
    return first, second, now_us


@pytest.mark.parametrize("way_us", [WAY_US, 10 * int(LEAD_US_MAX)])
def test_the_next_batch_is_sent_ahead_by_what_the_way_takes_within_bounds(way_us: int) -> None:
    scheduler = scheduler_on("s", way_us=way_us)
    _, second, now_us = one_ahead(scheduler)
    assert now_us == max(ROW_US - min(way_us, int(LEAD_US_MAX)), 0)
    assert (second.staged, second.started_us) == (True, ROW_US)
    scheduler.arrive(request_of(3, slack_us=90_000), now_us)
    assert not scheduler.wake(now_us), "one at a time"


def test_where_the_way_costs_next_to_nothing_the_next_batch_waits_for_the_end() -> None:
    scheduler = scheduler_on("s", way_us=int(LEAD_US_MIN) - 1)
    (first,) = send(scheduler, request_of(1, slack_us=90_000))
    scheduler.arrive(request_of(2, slack_us=90_000), 0)
    assert not scheduler.wake(ROW_US)
    (second,) = only(scheduler.batch_done(first.id, ROW_US, ROW_US), RunBatch)
    assert not second.staged


def test_nothing_is_sent_ahead_that_a_free_slice_could_start() -> None:
    scheduler = scheduler_on("s", "t", batching=BatchingSpec("static", size=1))
    first, second = send(scheduler, request_of(1, slack_us=90_000), request_of(2, slack_us=90_000))
    scheduler.batch_done(second.id, ROW_US, 1000)
    (third,) = send(scheduler, request_of(3, arrived_us=1900, slack_us=90_000), now_us=1900)
    assert (third.slice, third.staged) == (second.slice, False)
    (fourth,) = send(scheduler, request_of(4, arrived_us=1900, slack_us=90_000), now_us=1900)
    assert (fourth.slice, fourth.staged) == (first.slice, True)


def test_arrivals_of_one_instant_fill_the_free_slices_before_anything_is_sent_ahead() -> None:
    scheduler = scheduler_on("s", "t", way_us=int(LEAD_US_MAX))
    batches = send(scheduler, *(request_of(number, slack_us=90_000) for number in range(5)))
    assert [(batch.slice, batch.staged) for batch in batches] == [
        ("s", False), ("t", False), ("s", True), ("t", True),
    ]  # fmt: skip


@pytest.mark.parametrize("trouble", ["held", "suspect"])
def test_nothing_is_sent_ahead_to_a_slice_that_is_held_or_suspect(trouble: str) -> None:
    scheduler = scheduler_on("s")
    (first,) = send(scheduler, request_of(1, slack_us=90_000))
    now_us = 1900
    if trouble == "held":
        scheduler.hold("s")
    else:
        now_us = scheduler.wake_us
        assert only(scheduler.wake(now_us), Suspect)
    assert not send(scheduler, request_of(2, arrived_us=now_us, slack_us=90_000), now_us=now_us)
    batches = only(scheduler.batch_done(first.id, ROW_US, now_us + 10), RunBatch)
    assert len(batches) == (trouble == "suspect")


def test_who_was_sent_ahead_is_as_one_whose_batch_runs() -> None:
    scheduler = scheduler_on("s")
    send(scheduler, request_of(1, slack_us=90_000))
    for request_id, left_us in ((2, 1700), (3, 90_000)):
        scheduler.arrive(request_of(request_id, slack_us=90_000, expires_us=left_us), 0)
    now_us = scheduler.wake_us
    (second,) = started(scheduler, now_us)
    assert rows_of(second) == [2]
    assert outcomes(scheduler.wake(1700)) == {2: DEADLINE_RUNNING}
    assert outcomes(scheduler.cancel(3)) == {3: CLIENT_GONE}


def test_its_time_is_counted_from_the_end_of_the_one_before() -> None:
    scheduler = scheduler_on("s")
    first, second, _ = one_ahead(scheduler)
    scheduler.batch_done(first.id, ROW_US, 2700)
    assert second.started_us == 2700
    suspect_us = scheduler.wake_us
    assert suspect_us > 2700 + second.predicted_us
    assert only(scheduler.wake(suspect_us), Suspect)
    assert outcomes(scheduler.batch_done(second.id, ROW_US, suspect_us + 1)) == {2: COMPLETED}
    assert scheduler.is_idle("s")
    assert scheduler.wake_us == NEVER_US


def test_only_the_batch_that_runs_is_doubted() -> None:
    """However late it is: of the one behind it nothing is known."""
    scheduler = scheduler_on("s")
    one_ahead(scheduler)
    commands = scheduler.wake(500_000)
    assert [len(only(commands, kind)) for kind in (Suspect, ReplaceWorker)] == [1, 1]
    assert scheduler.wake_us > 500_000


def test_a_batch_that_was_sent_ahead_has_killed_no_worker_until_it_runs() -> None:
    scheduler = scheduler_on("s", "t", "u", "v")
    for name in "tuv":
        scheduler.hold(name)
    first, second, now_us = one_ahead(scheduler)
    assert not scheduler.slice_down("s", "killed", now_us)
    for name in "tu":  # the first request is lost with "t", the second runs when "u" is lost
        commands = scheduler.release(name, now_us)
        batches = only(commands, RunBatch)
        assert [rows_of(batch) for batch in batches][:1] == ([[1]] if name == "t" else [[2]])
        commands = scheduler.slice_down(name, "killed", now_us)
        assert outcomes(commands) == ({1: WORKER_LOST} if name == "t" else {})
    (last,) = only(scheduler.release("v", now_us), RunBatch)
    assert outcomes(scheduler.slice_down("v", "killed", now_us)) == {2: WORKER_LOST}
    assert rows_of(last) == [2]
    assert first.id != second.id


def test_a_batch_that_was_sent_ahead_and_then_ran_may_have_killed_its_worker() -> None:
    scheduler = scheduler_on("s", "t")
    scheduler.hold("t")
    first, _, _ = one_ahead(scheduler)
    scheduler.batch_done(first.id, ROW_US, 2700)
    assert not scheduler.slice_down("s", "killed", 2800)
    scheduler.release("t", 2800)
    (answer,) = only(scheduler.slice_down("t", "killed", 2900), Answer)
    assert (answer.request.id, answer.outcome) == (2, WORKER_LOST)


def test_a_batch_that_was_sent_ahead_has_not_ended_the_worker_that_another_ended() -> None:
    scheduler = scheduler_on("s", "t")
    scheduler.hold("t")
    _, _, now_us = one_ahead(scheduler)
    assert outcomes(scheduler.slice_down("s", "exited with 1", now_us, blamed=True)) == {1: WORKER_LOST}
    assert [rows_of(batch) for batch in only(scheduler.release("t", now_us), RunBatch)] == [[2]]


def test_both_batches_of_a_lost_slice_are_tried_again_in_their_order() -> None:
    scheduler = scheduler_on("s", "t")
    scheduler.hold("t")
    _, _, now_us = one_ahead(scheduler)
    scheduler.slice_down("s", "killed", now_us)
    commands = scheduler.release("t", now_us)
    seen = [rows_of(batch) for batch in only(commands, RunBatch)]
    (running, *_) = scheduler._slices["t"].running.values()
    seen += [rows_of(batch) for batch in only(scheduler.batch_done(running.id, 1, now_us + 1), RunBatch)]
    assert seen == [[1], [2]]


def test_what_was_to_go_ahead_goes_to_another_variant_once_its_own_is_gone() -> None:
    model = served_model(batch_max=2, slo_us=100_000, batching=BatchingSpec("slo"))
    scheduler = Scheduler([model], Limits())
    for replica_id, variant in enumerate(("a", "b")):
        replica = replica_of(model, variant, replica_id, row_us=ROW_US)
        replica.residuals.add(ROW_US, ROW_US, ROW_US + WAY_US)
        scheduler.replica_up("s", "m", replica, 0)
    both = ("a", "b")
    (first,) = send(scheduler, request_of(1, slack_us=90_000, variants=both))
    scheduler.arrive(request_of(2, slack_us=90_000, variants=both), 0)
    now_us = scheduler.wake_us
    assert not started(scheduler, now_us), "it may still grow"
    assert not scheduler.replica_down("s", "m", "a", "why", now_us)
    (second,) = only(scheduler.batch_done(first.id, ROW_US, ROW_US), RunBatch)
    assert (rows_of(second), second.variant) == ([2], "b")
