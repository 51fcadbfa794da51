"""What is promised of a slice whose profile says that several batches may run on it at once."""

import pytest

from serving.policy.batching.interface import Outlook
from serving.profile.curve import Point, Profile
from serving.profile.latency import Latency
from serving.scheduler.commands import ReplaceWorker, RunBatch, Suspect
from serving.scheduler.replicas import LEAD_US_MAX, Replica
from serving.scheduler.scheduler import QUIET_US, Scheduler
from serving.specs import BatchingSpec, Limits, ServedModel
from serving.vocabulary import COMPLETED, NEVER_US, WORKER_LOST
from tests.builders import KIND
from tests.scheduler.values import (
    VARIANTS,
    only,
    outcomes,
    request_of,
    rows_of,
    send,
    served_model,
    started,
)

ROW_US = 20_000
STREAMS = 3


def streaming(model: ServedModel, streams: int, way_us: int = 0, variant: str = "a") -> Replica:
    profile = Profile(model.name, variant, KIND, (Point(0, 1, ROW_US, ROW_US, 1),), streams=streams)
    replica = Replica(1, variant, Latency(profile), model)
    replica.residuals.add(ROW_US, ROW_US, ROW_US + way_us)
    return replica


def scheduler_on(*slices: str, way_us: int = 0, batching: BatchingSpec | None = None) -> Scheduler:
    """Slices of STREAMS streams; one row a batch, ROW_US each."""
    model = served_model(batch_max=1, slo_us=900_000, batching=batching)
    scheduler = Scheduler([model], Limits(stall_us=200_000))
    for name in slices:
        scheduler.replica_up(name, "m", streaming(model, STREAMS, way_us), 0)
    return scheduler


def request_ids(*batches: RunBatch) -> list[int]:
    return [request_id for batch in batches for request_id in rows_of(batch)]


def send_each(scheduler: Scheduler, *arrivals: tuple[int, int]) -> list[RunBatch]:
    """The batches that requests of these ids and instants start, each at its instant."""
    return [
        batch
        for request_id, at_us in arrivals
        for batch in send(scheduler, request_of(request_id, arrived_us=at_us, slack_us=800_000), now_us=at_us)
    ]


@pytest.mark.parametrize("way_us", [0, int(LEAD_US_MAX)])
def test_as_many_run_as_the_profile_says_and_the_next_waits_for_the_first_that_is_back(way_us: int) -> None:
    scheduler = scheduler_on("s", way_us=way_us)
    batches = send_each(scheduler, (1, 0), (2, 1000), (3, 2000), (4, 3000), (5, 3000))
    assert request_ids(*batches) == [1, 2, 3]
    assert not started(scheduler, ROW_US - 100), "which ends first is not known: none is sent ahead"
    (fourth,) = only(scheduler.batch_done(batches[1].id, ROW_US, ROW_US - 50), RunBatch)
    assert (request_ids(fourth), fourth.staged, fourth.started_us) == ([4], False, ROW_US - 50)
    (fifth,) = only(scheduler.batch_done(batches[0].id, ROW_US, ROW_US), RunBatch)
    assert request_ids(fifth) == [5]


def test_each_is_doubted_by_its_own_start() -> None:
    scheduler = scheduler_on("s")
    batches = send_each(scheduler, (1, 0), (2, 10_000))
    scheduler.batch_done(batches[0].id, ROW_US, 21_000)
    assert batches[1].started_us == 10_000
    suspect_us = scheduler.wake_us
    assert 10_000 + ROW_US < suspect_us < 21_000 + 2 * ROW_US
    assert only(scheduler.wake(suspect_us), Suspect)


def test_beside_a_batch_that_is_late_nothing_starts_until_it_is_back_itself() -> None:
    scheduler = scheduler_on("s")
    batches = send_each(scheduler, (1, 0), (2, 30_000))
    doubted_us = scheduler.wake_us
    assert len(only(scheduler.wake(doubted_us), Suspect)) == 1
    assert not send_each(scheduler, (3, doubted_us + 1))
    assert outcomes(scheduler.batch_done(batches[1].id, ROW_US, 50_000)) == {2: COMPLETED}
    assert not only(scheduler.wake(51_000), Suspect), "it was said"
    commands = scheduler.batch_done(batches[0].id, ROW_US, 60_000)
    assert request_ids(*only(commands, RunBatch)) == [3]


def test_one_that_hangs_is_given_up_though_others_come_back() -> None:
    scheduler = scheduler_on("s")
    batches = send_each(scheduler, (1, 0), (2, 0))
    scheduler.batch_done(batches[1].id, ROW_US, ROW_US)
    for _ in range(3):
        commands = scheduler.wake(scheduler.wake_us)
        if only(commands, ReplaceWorker):
            break
    assert only(commands, ReplaceWorker)


def test_all_that_ran_on_a_slice_that_is_lost_may_have_killed_it() -> None:
    scheduler = scheduler_on("s", "t")
    scheduler.hold("t")
    send_each(scheduler, (1, 0), (2, 0))
    scheduler.slice_down("s", "killed", 100)
    assert request_ids(*only(scheduler.release("t", 200), RunBatch)) == [1, 2]
    assert outcomes(scheduler.slice_down("t", "killed", 300)) == {1: WORKER_LOST, 2: WORKER_LOST}


def test_a_slice_is_idle_when_nothing_runs_on_it() -> None:
    scheduler = scheduler_on("s")
    (batch,) = send_each(scheduler, (1, 0))
    assert not scheduler.is_idle("s")
    scheduler.batch_done(batch.id, ROW_US, ROW_US)
    assert scheduler.is_idle("s")


def test_a_slice_is_quiet_when_it_has_been_idle_for_a_while() -> None:
    scheduler = scheduler_on("s")
    (batch,) = send_each(scheduler, (1, 0))
    assert not scheduler.is_quiet("s", QUIET_US)
    scheduler.batch_done(batch.id, ROW_US, ROW_US)
    assert not scheduler.is_quiet("s", ROW_US + QUIET_US - 1)
    assert scheduler.is_quiet("s", ROW_US + QUIET_US)
    assert not scheduler.is_quiet("elsewhere", NEVER_US)


def test_while_it_is_held_nothing_starts_beside_what_runs() -> None:
    scheduler = scheduler_on("s")
    send_each(scheduler, (1, 0))
    scheduler.hold("s")
    assert not send_each(scheduler, (2, 10))
    assert request_ids(*only(scheduler.release("s", 20), RunBatch)) == [2]


def test_the_streams_are_those_of_the_widest_replica_that_is_there() -> None:
    model = served_model(batch_max=1, slo_us=900_000)
    scheduler = Scheduler([model], Limits())
    for variant, streams in zip(VARIANTS, (1, STREAMS), strict=True):
        scheduler.replica_up("s", "m", streaming(model, streams, variant=variant), 0)
    batches = send_each(scheduler, (1, 0), (2, 0), (3, 0), (4, 0))
    assert len(batches) == STREAMS
    scheduler.replica_down("s", "m", VARIANTS[1], "gone", 100)
    for batch in batches[1:]:
        assert not only(scheduler.batch_done(batch.id, ROW_US, ROW_US), RunBatch)
    (last,) = only(scheduler.batch_done(batches[0].id, ROW_US, ROW_US), RunBatch)
    assert request_ids(last) == [4]


def test_a_policy_is_told_what_runs_beside_its_batch_and_how_many_run_at_once() -> None:
    scheduler = scheduler_on("s", "t")
    send_each(scheduler, (1, 0), (2, 0))
    here = scheduler._slices["s"].queues["m"]
    assert (here.slices, here.running_rows) == (2 * STREAMS, 2)


def test_the_next_to_be_free_is_the_stream_that_is_soonest_believed_to_be() -> None:
    scheduler = scheduler_on("s")
    send_each(scheduler, (1, 0), (2, 5000), (3, 10_000))
    live = scheduler._slices["s"]
    assert live.free_us(4000 + ROW_US) == 5000 + ROW_US  # the first is late by 4 ms, and may be as long again
    assert live.free_us(6000 + ROW_US) == 7000 + ROW_US


def test_what_waits_is_drained_by_all_streams() -> None:
    scheduler = scheduler_on("s", "t")
    scheduler.hold("s")
    scheduler.hold("t")
    send_each(scheduler, *((number, 0) for number in range(1, 13)))
    model = scheduler._models["m"]
    model.outlook = Outlook(1000.0)
    assert model.drained_us(500) == 500 + 12 * 1000 / (2 * STREAMS)


def test_an_elastic_batch_that_is_sent_ahead_has_the_slice_to_itself() -> None:
    model = served_model(batch_max=8, slo_us=900_000, batching=BatchingSpec("ebird"))
    scheduler = Scheduler([model], Limits())
    replica = streaming(model, 1, int(LEAD_US_MAX))
    replica.latency = Latency(Profile("m", "a", KIND, tuple(Point(0, n, ROW_US, ROW_US, 1) for n in (1, 8))))
    scheduler.replica_up("s", "m", replica, 0)
    batches = send(scheduler, *(request_of(number, slack_us=800_000) for number in range(1, 17)))
    batches += started(scheduler, scheduler.wake_us)
    assert [(batch.rows, batch.staged) for batch in batches] == [(8, False), (8, True)]


def test_elastic_batches_fill_the_streams_and_no_more() -> None:
    model = served_model(batch_max=8, slo_us=900_000, batching=BatchingSpec("ebird", size=14))
    scheduler = Scheduler([model], Limits())
    points = tuple(Point(0, rows, ROW_US, ROW_US, 1) for rows in (1, 8))
    profile = Profile("m", "a", KIND, points, streams=STREAMS)
    scheduler.replica_up("s", "m", Replica(1, "a", Latency(profile), model), 0)
    batches = send(scheduler, *(request_of(number, slack_us=800_000) for number in range(1, 16)))
    assert [batch.rows for batch in batches] == [8, 4, 2]
    (last,) = only(scheduler.batch_done(batches[2].id, ROW_US, ROW_US), RunBatch)
    assert last.rows == 1
