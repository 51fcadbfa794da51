"""What is promised where a request says by how much its batch takes longer: the scheduler plans with it, and
holds it against no profile."""

from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.policy.estimates.freshness import BATCHES
from serving.policy.estimates.suspicion import suspect_us
from serving.scheduler.commands import Answer, ReplaceWorker, RunBatch, Suspect
from serving.scheduler.scheduler import Scheduler
from serving.scheduler.waiting.requests import Request
from serving.values.specs import BatchingSpec, Limits
from serving.values.vocabulary import (
    COMPLETED,
    DEADLINE_UNMET,
    DEADLINE_UNREACHABLE,
    NO_REPLICA,
    TOO_LARGE,
    WORKER_LOST,
)
from tests.scheduler.values import (
    allow,
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

SLO = BatchingSpec("slo", guard_us=0)
MS = 1000


def declaring(declared_us: int, request_id: int = 1, slack_us: int = 10_000, now_us: int = 0) -> Request:
    """A request of one row; those that declare as much may share a batch."""
    request = request_of(request_id, arrived_us=now_us, slack_us=slack_us)
    request.declared_us = declared_us
    request.lane_key = (request.lane_key, declared_us)
    return request


def of(model: str, request: Request) -> Request:
    request.model = model
    return request


@given(slack_us=st.integers(1, 2000), declared_us=st.integers(0, 2000), late_us=st.integers(0, 500))
@pytest.mark.parametrize("policy", ["static", "slo"])
def test_what_declares_more_than_its_deadline_leaves_is_refused_as_it_comes(
    policy: str, slack_us: int, declared_us: int, late_us: int
) -> None:
    model = served_model(batching=BatchingSpec(policy, guard_us=0))
    scheduler = scheduler_on("s", model=model, row_us=0.1)
    request = declaring(declared_us, slack_us=slack_us)
    commands = scheduler.arrive(request, late_us)
    vain = declared_us > 0 and late_us + declared_us > slack_us
    refused = outcomes(commands) == {1: DEADLINE_UNREACHABLE}
    assert refused or not vain
    assert refused is vain or (policy == "slo" and late_us + declared_us + 1 > slack_us)
    assert scheduler.open_requests == (not refused)


def test_it_is_told_what_it_asks_for_and_not_to_come_back() -> None:
    scheduler = scheduler_on("s")
    (answer,) = only(scheduler.arrive(declaring(450 * MS, slack_us=100 * MS), 0), Answer)
    said = "m could not answer within 100 ms even if the request ran next, as it asks for 450 ms itself"
    assert (answer.outcome, answer.detail, answer.retry_us) == (DEADLINE_UNREACHABLE, said, 0)


def test_where_nothing_can_answer_that_is_what_it_is_told() -> None:
    scheduler = Scheduler([served_model()], Limits())
    assert outcomes(scheduler.arrive(declaring(450, slack_us=100), 0)) == {1: NO_REPLICA}


@given(declared_us=st.integers(0, 100_000), row_us=st.floats(0.5, 5000))
def test_a_batch_is_predicted_suspected_and_given_up_so_much_later(declared_us: int, row_us: float) -> None:
    stall_us = 50_000
    plain, slow = (
        send(
            scheduler_on("s", limits=Limits(stall_us=stall_us), row_us=row_us),
            declaring(further_us, slack_us=1_000_000),
        )[0]
        for further_us in (0, declared_us)
    )
    for name in ("predicted_us", "typical_us", "longest_us"):
        assert getattr(slow, name) == pytest.approx(getattr(plain, name) + declared_us)
    scheduler = scheduler_on("s", limits=Limits(stall_us=stall_us), row_us=row_us)
    (batch,) = send(scheduler, declaring(declared_us, slack_us=1_000_000))
    doubt_us, stalled_us = suspect_us(0, batch.longest_us), int(batch.longest_us) + stall_us
    assert batch.longest_us >= declared_us
    assert not only(scheduler.wake(min(doubt_us, stalled_us) - 1), Suspect)
    assert not only(scheduler.wake(stalled_us - 1), ReplaceWorker)
    assert only(scheduler.wake(stalled_us), ReplaceWorker)


def test_who_cannot_wait_for_its_end_is_refused_and_who_can_is_not() -> None:
    scheduler = beside(slices=1)
    send(scheduler, of("long", declaring(50 * MS, 1, slack_us=400 * MS)))
    hasty, patient = (declaring(0, number, slack_us=number * 20 * MS) for number in (2, 3))
    assert outcomes(scheduler.arrive(hasty, 0)) == {2: DEADLINE_UNREACHABLE}
    assert scheduler.arrive(patient, 0) == ()


def test_another_slice_takes_who_cannot_wait() -> None:
    scheduler = beside(slices=2)
    (long,) = send(scheduler, of("long", declaring(50 * MS, 1, slack_us=400 * MS)))
    (batch,) = send(scheduler, declaring(0, 2, slack_us=20 * MS), now_us=1)
    assert {long.slice, batch.slice} == {"s0", "s1"}
    here = scheduler._slices[batch.slice].queues["m"]
    assert here.elsewhere_us(10) == ceil(long.typical_us) > 50 * MS


def beside(slices: int, long_us: int = 500 * MS) -> Scheduler:
    """`m`, of an SLO of 20 ms, and `long`, of one of half a second, on each slice; a row takes 10 us."""
    models = [
        served_model(slo_us=20 * MS, batching=SLO),
        served_model("long", slo_us=long_us, batching=SLO),
    ]
    scheduler = Scheduler(models, Limits())
    for number in range(slices):
        for model in models:
            scheduler.replica_up(f"s{number}", model.name, replica_of(model, row_us=10), 0)
    return scheduler


def asked_steadily(scheduler: Scheduler, now_us: int) -> int:
    """`m` has traffic, and nothing runs when it is over: that instant."""
    for number in range(100, 150):
        (batch,) = send(scheduler, declaring(0, number, slack_us=20 * MS, now_us=now_us), now_us=now_us)
        now_us += 10
        scheduler.batch_done(batch.id, 10, now_us)
        now_us += MS
    return now_us


def test_a_neighbour_with_a_tighter_slo_and_traffic_keeps_a_slice() -> None:
    scheduler = beside(slices=2)
    now_us = asked_steadily(scheduler, 0)
    first, second = (
        of("long", declaring(50 * MS, number, slack_us=400 * MS, now_us=now_us)) for number in (1, 2)
    )
    second.lane_key = ("its own",)
    (batch,) = send(scheduler, first, second, now_us=now_us)
    assert rows_of(batch) == [1]
    (quick,) = send(scheduler, declaring(0, 3, slack_us=20 * MS, now_us=now_us), now_us=now_us)
    assert quick.model == "m"
    assert not only(scheduler.batch_done(quick.id, 10, now_us + 10), RunBatch)
    assert now_us + 10 < scheduler.wake_us < now_us + 50 * MS, "the other slice is free soon enough"
    (other,) = started(scheduler, scheduler.wake_us)
    assert rows_of(other) == [2]
    assert other.slice != batch.slice


@pytest.mark.parametrize(("slices", "traffic"), [(1, True), (2, False)])
def test_it_does_not_wait_where_that_helps_no_neighbour(slices: int, traffic: bool) -> None:
    """The neighbour has no other slice, or no traffic."""
    scheduler = beside(slices)
    now_us = asked_steadily(scheduler, 0) if traffic else 0
    asked = [
        of("long", declaring(50 * MS, number, slack_us=400 * MS, now_us=now_us)) for number in range(slices)
    ]
    for number, request in enumerate(asked):
        request.lane_key = (number,)
    assert len(send(scheduler, *asked, now_us=now_us)) == slices


def test_what_waits_too_long_for_a_slice_of_its_own_is_given_up() -> None:
    scheduler = beside(slices=2)
    now_us = asked_steadily(scheduler, 0)
    first, second = (
        of("long", declaring(200 * MS, number, slack_us=number * 210 * MS, now_us=now_us))
        for number in (2, 1)
    )
    second.lane_key = ("its own",)
    send(scheduler, first, now_us=now_us)
    assert send(scheduler, second, now_us=now_us) == []
    while scheduler.open_requests > 1:
        now_us = scheduler.wake_us
        commands = scheduler.wake(now_us)
        assert not only(commands, RunBatch)
    assert outcomes(commands) == {1: DEADLINE_UNMET}
    assert now_us <= second.deadline_us - second.declared_us + 1


def test_what_waits_is_given_up_when_its_own_time_no_longer_fits() -> None:
    model = served_model(slo_us=10_000, batching=SLO)
    scheduler = scheduler_on("s", model=model, row_us=10)
    (batch,) = send(scheduler, declaring(300, 1, slack_us=9000))
    assert send(scheduler, declaring(400, 2, slack_us=1000)) == []
    commands = scheduler.batch_done(batch.id, 310, 595)
    assert outcomes(commands) == {1: COMPLETED, 2: DEADLINE_UNMET}, "not at 1,000, when it is due"


computed = st.lists(st.integers(0, 40_000), min_size=BATCHES + 5, max_size=40)


@given(times=computed, declared_us=st.integers(1, 30_000))
def test_what_its_batches_took_is_held_neither_against_the_profile_nor_its_freshness(
    times: list[int], declared_us: int
) -> None:
    scheduler = scheduler_on("s", model=served_model(slo_us=1_000_000, batching=SLO), row_us=100)
    replica = scheduler._slices["s"].queues["m"].replicas["a"]
    before_us = replica.predict_us(1, 0), replica.typical_us(1, 0), replica.ran_us
    now_us = 0
    for number, compute_us in enumerate(times):
        request = declaring(declared_us, number, slack_us=900_000, now_us=now_us)
        (batch,) = send(scheduler, request, now_us=now_us)
        now_us += compute_us
        assert not only(scheduler.batch_done(batch.id, compute_us, now_us), RunBatch)
        now_us += 1
    assert (replica.predict_us(1, 0), replica.typical_us(1, 0), replica.ran_us) == before_us
    (judgement,) = scheduler.judgements()
    assert judgement.alone is None
    assert not replica.drift.samples
    assert scheduler.seen(now_us)[0].busy_us == sum(times), "the slice was taken"


def test_what_undeclared_batches_took_is_held_against_it() -> None:
    scheduler = scheduler_on("s", model=served_model(slo_us=1_000_000, batching=SLO), row_us=100)
    replica = scheduler._slices["s"].queues["m"].replicas["a"]
    before_us, now_us = replica.predict_us(1, 0), 0
    for number in range(BATCHES + 5):
        (batch,) = send(scheduler, declaring(0, number, slack_us=900_000, now_us=now_us), now_us=now_us)
        now_us += 5000
        scheduler.batch_done(batch.id, 5000, now_us)
    assert replica.predict_us(1, 0) > 10 * before_us


@given(
    declared_us=st.integers(0, 10_000), compute_us=st.integers(0, 30_000), typical_us=st.floats(0.1, 20_000)
)
def test_what_a_batch_says_of_its_rows_is_never_more_than_was_expected(
    declared_us: int, compute_us: int, typical_us: float
) -> None:
    batch = RunBatch(1, "s", [], 1)
    batch.declared_us, batch.typical_us = declared_us, typical_us + declared_us
    told_us = batch.told_us(compute_us)
    if declared_us:
        assert 0 <= told_us <= min(ceil(typical_us + declared_us) - declared_us, compute_us)
        assert told_us >= min(compute_us - declared_us, typical_us)
    else:
        assert told_us == compute_us


def test_the_rows_of_a_request_may_take_a_slice_no_longer_with_their_time() -> None:
    scheduler = scheduler_on("s", model=served_model(batch_max=2), limits=Limits(stall_us=1000))
    for number, declared_us, expected in ((1, 331, {}), (2, 332, {2: TOO_LARGE})):
        request = allow(Request(number, "m", 6, 0, 1_000_000), ("a",))
        request.declared_us = declared_us
        assert outcomes(scheduler.arrive(request, 0)) == expected


def test_a_retry_counts_it() -> None:
    for slack_us, expected in ((999, {1: WORKER_LOST}), (1100, {})):
        scheduler = scheduler_on("s", "t")
        (batch,) = send(scheduler, declaring(500, slack_us=slack_us))
        assert outcomes(scheduler.slice_down(batch.slice, "why", 500)) == expected


def test_its_deadline_is_judged_as_promised_whoever_waits_for_it() -> None:
    scheduler = scheduler_on("s")
    (running,) = send(scheduler, declaring(0, 9))
    request = declaring(300, 1, slack_us=2000)
    assert send(scheduler, request) == []
    (piece,) = request.pieces
    assert (request.deadline_us, request.latest_us, piece.deadline_us) == (2000, 2000, 1700)
    scheduler.tighten(1, 1500, 10)
    assert piece.deadline_us == 1200
    successor = declaring(300, 1, slack_us=900, now_us=20)
    scheduler.pass_on(request, successor, 20)
    assert (request.deadline_us, request.latest_us, piece.deadline_us) == (920, 920, 620)
    (batch,) = only(scheduler.batch_done(running.id, 1, 100), RunBatch)
    scheduler.batch_done(batch.id, 800, 920)
    assert scheduler.seen(920)[0].missed == 0
