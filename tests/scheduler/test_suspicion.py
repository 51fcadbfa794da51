"""What is promised while a batch is late: its slice is not counted on, and nobody waits in vain beside it."""

from math import ceil

from serving.policy.estimates.suspicion import LAG_US
from serving.scheduler.commands import Answer, ReplaceWorker, RunBatch, Suspect
from serving.scheduler.scheduler import Scheduler
from serving.values.specs import BatchingSpec, Limits
from serving.values.vocabulary import DEADLINE_UNMET, WORKER_LOST
from tests.scheduler.values import (
    only,
    outcomes,
    replica_of,
    request_of,
    rows_of,
    scheduler_on,
    send,
    served_model,
)

SLO = BatchingSpec("slo", guard_us=0)


def test_a_batch_that_hangs_is_named_once_a_stall_and_its_worker_replaced() -> None:
    scheduler = scheduler_on("s", limits=Limits(stall_us=1000), row_us=100)
    (batch,) = send(scheduler, request_of(), now_us=50)
    given_up_us = 50 + int(batch.predicted_us) + 1000
    assert scheduler.wake_us == given_up_us
    assert not scheduler.wake(given_up_us - 1)
    assert scheduler.wake(given_up_us) == [
        ReplaceWorker("s", "a m batch of 1 rows was late by over 0.001 s"),
    ]
    assert not scheduler.wake(given_up_us + 1)
    assert scheduler.wake_us == given_up_us + 1000
    assert len(only(scheduler.wake(given_up_us + 1000), ReplaceWorker)) == 1


def test_a_late_batch_makes_its_slice_suspect_once_and_its_return_clears_it() -> None:
    scheduler = scheduler_on("s", "t", row_us=1000)
    view = scheduler._slices["t"].queues["m"]
    for request_id in (1, 2):
        now_us = request_id * 1_000_000
        (batch,) = send(scheduler, request_of(request_id, arrived_us=now_us), now_us=now_us)
        late_us = now_us + ceil(batch.predicted_us) + LAG_US
        assert scheduler.wake_us == late_us
        assert not scheduler.wake(late_us - 1)
        assert view.slices == 2
        (doubt,) = only(scheduler.wake(late_us), Suspect)
        assert doubt.slice == "s"
        assert doubt.reason.startswith("a m batch of 1 rows is out for ")
        assert view.slices == 1
        assert not scheduler.wake(late_us + 1)
        scheduler.batch_done(batch.id, 1000, late_us + 2)
        assert view.slices == 2


def suspect_slice(batching: BatchingSpec = SLO) -> tuple[Scheduler, RunBatch, int]:
    """The only slice is suspect."""
    scheduler = scheduler_on("s", model=served_model(slo_us=100_000, batching=batching), row_us=1000)
    (batch,) = send(scheduler, request_of(1, slack_us=100_000))
    now_us = scheduler.wake_us
    (doubt,) = scheduler.wake(now_us)
    assert isinstance(doubt, Suspect)
    return scheduler, batch, now_us


def test_beside_a_suspect_slice_nobody_waits_past_the_deadline() -> None:
    """Who comes after the suspicion neither: no batch and no free slice would ask for a plan."""
    scheduler, _, now_us = suspect_slice()
    for request_id, slack_us in ((2, 60_000), (3, 40_000), (4, 50_000)):
        scheduler.arrive(request_of(request_id, arrived_us=now_us, slack_us=slack_us), now_us)
    ended = []
    while scheduler.open_requests > 1:
        now_us = scheduler.wake_us
        ended += [(answer.request, now_us) for answer in only(scheduler.wake(now_us), Answer)]
    assert [request.id for request, _ in ended] == [3, 4, 2]
    assert all(now_us <= request.deadline_us for request, now_us in ended)


def test_beside_a_suspect_slice_static_gives_nothing_up() -> None:
    scheduler, batch, now_us = suspect_slice(BatchingSpec("static"))
    scheduler.arrive(request_of(2, arrived_us=now_us, slack_us=1000), now_us)
    assert not scheduler.wake(now_us + 1000)
    assert scheduler.wake_us > now_us + 1000
    (again,) = only(scheduler.batch_done(batch.id, 1000, now_us + 2000), RunBatch)
    assert rows_of(again) == [2]


def test_a_measurement_may_be_asked_for_while_a_slice_is_suspect() -> None:
    scheduler, batch, now_us = suspect_slice()
    scheduler.hold("s")
    scheduler.arrive(request_of(2, arrived_us=now_us, slack_us=90_000), now_us)
    assert not only(scheduler.batch_done(batch.id, 1000, now_us + 10), RunBatch)
    assert not scheduler._slices["s"].suspect
    assert not scheduler.is_idle("s")
    (again,) = only(scheduler.release("s", now_us + 20), RunBatch)
    assert rows_of(again) == [2]


def test_a_suspect_slice_is_given_up_as_any_other_and_comes_back_without_suspicion() -> None:
    scheduler, batch, now_us = suspect_slice()
    scheduler.arrive(request_of(2, arrived_us=now_us, slack_us=90_000), now_us)
    assert outcomes(scheduler.slice_down("s", "killed", now_us + 10)) == {1: WORKER_LOST, 2: WORKER_LOST}
    scheduler.replica_up("s", "m", replica_of(served_model()), now_us + 20)
    assert not scheduler._slices["s"].suspect
    assert scheduler.batch_done(batch.id, 1000, now_us + 30) == ()
    assert scheduler.is_idle("s")


def test_what_a_slice_that_turns_suspect_leaves_hopeless_is_given_up_at_once() -> None:
    scheduler = scheduler_on("s", model=served_model(slo_us=100_000, batching=SLO), row_us=1000)
    send(scheduler, request_of(1, slack_us=100_000))
    scheduler.arrive(request_of(2, arrived_us=100, slack_us=9_000), 100)
    assert outcomes(scheduler.wake(scheduler.wake_us)) == {2: DEADLINE_UNMET}


def test_batches_that_may_wait_are_planned_on_the_slices_that_can_be_counted_on() -> None:
    """Two that could each wait for the last moment on a slice of their own go one before the other on one."""
    spec = BatchingSpec("slo", guard_us=0, mode="consolidate")
    models = {name: served_model(name, slo_us=100_000, batching=spec) for name in "mno"}
    scheduler = Scheduler(models.values(), Limits())
    for name, slice_name in (("m", "s"), ("n", "t"), ("o", "t")):
        scheduler.replica_up(slice_name, name, replica_of(models[name], row_us=1000), 0)
    scheduler.arrive(request_of(1, slack_us=90_000), 0)
    now_us = 0
    while not scheduler._slices["s"].suspect:
        now_us = max(scheduler.wake_us, 1)
        scheduler.wake(now_us)
    for request_id in range(2, 40):  # enough of both to make waiting for more worth while; two stay
        request = request_of(request_id, arrived_us=now_us, slack_us=50_000)
        request.model = "no"[request_id % 2]
        assert scheduler.arrive(request, now_us) == ()
        if request_id < 38:
            scheduler.cancel(request_id)
    assert not scheduler.wake(now_us)
    alone_us, grown_us = 1150, 2300  # with one row, and with room for one more
    assert scheduler.wake_us == now_us + 50_000 - alone_us - grown_us
