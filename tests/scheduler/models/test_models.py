"""Models come, change and go while requests wait and run."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.policy.batching.catalogue import create_policy
from serving.scheduler.commands import Answer, RunBatch
from serving.scheduler.models.mean_rate import STEADY_US, YOUNG_US, MeanRate
from serving.scheduler.scheduler import Scheduler
from serving.scheduler.waiting.requests import Request
from serving.values.specs import BatchingSpec, Limits
from serving.values.vocabulary import COMPLETED, MODEL_ERROR, NO_REPLICA, Outcome
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
)


def route(scheduler: Scheduler, name: str = "m", replica_id: int = 1, now_us: int = 0) -> None:
    model = served_model(name)
    scheduler.replica_up("s", name, replica_of(model, replica_id=replica_id), now_us)


def test_a_model_that_comes_is_served_like_any() -> None:
    scheduler = scheduler_on("s")
    assert not scheduler.serve(served_model("n"), 5)
    route(scheduler, "n", 2, 5)
    request = allow(Request(7, "n", 1, 5, 900), ("a",))
    (batch,) = send(scheduler, request, now_us=5)
    assert (batch.model, outcomes(scheduler.batch_done(batch.id, 1, 9))) == ("n", {7: COMPLETED})


def test_another_slo_or_policy_makes_a_policy_anew_and_all_else_leaves_it() -> None:
    scheduler = scheduler_on("s", "t")
    policies = {id(live.queues["m"].policy) for live in scheduler._slices.values()}
    scheduler.serve(served_model(), 0)
    assert {id(live.queues["m"].policy) for live in scheduler._slices.values()} == policies
    for model in (served_model(slo_us=700), served_model(slo_us=700, batching=BatchingSpec("aimd"))):
        scheduler.serve(model, 0)
        (policy,) = {live.queues["m"].policy for live in scheduler._slices.values()}
        assert policy is scheduler._models["m"].policy
        assert id(policy) not in policies
        assert type(policy) is type(create_policy(model.batching, model.slo_us))
        assert all(pair[0] is policy for live in scheduler._slices.values() for pair in live.neighbours)
        policies.add(id(policy))


def test_what_waits_and_runs_stays_through_a_change_and_keeps_its_deadline() -> None:
    waits = BatchingSpec("static", delay_us=500)
    model = served_model(batching=waits)
    scheduler = scheduler_on("s", model=model)
    (batch,) = send(scheduler, *(request_of(number) for number in (1, 2, 3, 4)))
    scheduler.arrive(request_of(5, slack_us=800), 0)
    scheduler.serve(served_model(slo_us=100, batching=BatchingSpec("static")), 10)
    commands = scheduler.batch_done(batch.id, 4, 20)
    assert outcomes(commands) == dict.fromkeys((1, 2, 3, 4), COMPLETED)
    (last,) = only(commands, RunBatch)
    assert [piece.deadline_us for piece in last.pieces] == [800]


def test_what_waits_is_cut_to_a_smaller_largest_batch_and_is_due_as_before() -> None:
    scheduler = scheduler_on("s", model=served_model(batch_max=8))
    scheduler.hold("s")
    request = request_of(1, rows=7, slack_us=400)
    scheduler.arrive(request, 0)
    scheduler.tighten(1, 300, 0)
    small = served_model(batch_max=3)
    scheduler.serve(small, 5)
    assert [(p.first_row, p.rows, p.deadline_us) for p in request.pieces] == [
        (0, 3, 300),
        (3, 3, 300),
        (6, 1, 300),
    ]
    assert (request.open_pieces, request.waiting, request.own_us) == (3, 3, [400] * 3)
    scheduler.replica_up("s", "m", replica_of(small), 6)
    (batch,) = only(scheduler.release("s", 6), RunBatch)
    rows = [batch.rows]
    while not only(commands := scheduler.batch_done(batch.id, 1, 10), Answer):
        (batch,) = only(commands, RunBatch)
        rows.append(batch.rows)
    assert (rows, outcomes(commands)) == ([3, 3, 1], {1: COMPLETED})


def test_what_comes_back_from_a_failed_batch_is_cut_too() -> None:
    scheduler = scheduler_on("s", model=served_model(batch_max=8))
    (batch,) = send(scheduler, request_of(1, rows=5), request_of(2, rows=2))
    small = served_model(batch_max=3)
    scheduler.serve(small, 5)
    scheduler.replica_up("s", "m", replica_of(small), 5)
    (batch,) = only(scheduler.batch_failed(batch.id, "why", 6), RunBatch)
    rows = [batch.rows]
    ended: dict[int, Outcome] = {}
    while len(ended) < 2:
        commands = scheduler.batch_done(batch.id, 1, 7)
        ended |= outcomes(commands)
        batches = only(commands, RunBatch)
        rows += [each.rows for each in batches]
        batch = batches[0] if batches else batch
    assert max(rows) <= 3
    assert ended == {1: COMPLETED, 2: COMPLETED}


def test_a_retired_model_refuses_what_comes_and_answers_what_it_has() -> None:
    scheduler = scheduler_on("s")
    (batch,) = send(scheduler, request_of(1))
    scheduler.arrive(request_of(2), 0)
    scheduler.retire("m")
    (answer,) = scheduler.arrive(request_of(3), 0)
    assert isinstance(answer, Answer)
    assert (answer.outcome, answer.retry_us) == (NO_REPLICA, 0)
    assert answer.detail == "m is being unloaded: it takes no new requests"
    (second,) = only(scheduler.batch_done(batch.id, 1, 5), RunBatch)
    assert scheduler.models["m"].open == 1
    assert outcomes(scheduler.batch_done(second.id, 1, 9)) == {2: COMPLETED}
    assert scheduler.models["m"].open == 0


def test_a_retired_model_may_be_served_again() -> None:
    scheduler = scheduler_on("s")
    scheduler.retire("m")
    scheduler.serve(served_model(), 5)
    (batch,) = send(scheduler, request_of(1), now_us=5)
    assert rows_of(batch) == [1]


def test_a_model_with_open_requests_or_replicas_cannot_be_forgotten() -> None:
    scheduler = scheduler_on("s")
    scheduler.hold("s")
    scheduler.arrive(request_of(1), 0)
    scheduler.retire("m")
    with pytest.raises(ValueError, match="m cannot be forgotten: 1 requests are open, it is on s"):
        scheduler.forget("m")
    scheduler.cancel(1)
    with pytest.raises(ValueError, match="0 requests are open, it is on s"):
        scheduler.forget("m")
    scheduler.replica_down("s", "m", "a", "unloaded", 0)
    scheduler.forget("m")
    with pytest.raises(KeyError):
        scheduler.forget("m")
    assert scheduler.rates(0) == {}


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("fails", [False, True])
def test_a_batch_that_comes_back_after_its_model_was_forgotten_is_ignored(again: bool, fails: bool) -> None:
    scheduler = scheduler_on("s")
    (batch,) = send(scheduler, request_of(1))
    scheduler.cancel(1)
    scheduler.retire("m")
    scheduler.replica_down("s", "m", "a", "unloaded", 0)
    scheduler.forget("m")
    if again:
        scheduler.serve(served_model(), 5)
        route(scheduler, replica_id=2, now_us=5)
        scheduler.arrive(request_of(2, arrived_us=5), 5)
    commands = scheduler.batch_failed(batch.id, "why", 9) if fails else scheduler.batch_done(batch.id, 1, 9)
    assert not only(commands, Answer)
    assert [rows_of(each) for each in only(commands, RunBatch)] == ([[2]] if again else [])


def test_a_replica_that_takes_anothers_place_learns_nothing_from_that_ones_batches() -> None:
    model = served_model()
    scheduler = scheduler_on("s", model=model, row_us=100.0)
    (batch,) = send(scheduler, request_of(1))
    scheduler.arrive(request_of(2), 0)
    other = replica_of(model, replica_id=2, row_us=100.0)
    scheduler.replica_up("s", "m", other, 10)
    before = other.typical_us(1, 0)
    (second,) = only(scheduler.batch_done(batch.id, 5000, 5000), RunBatch)
    assert (second.replica, other.typical_us(1, 0)) == (2, before)
    scheduler.batch_failed(second.id, "why", 5100)
    assert other.failures == 1


def test_a_batch_that_fails_on_a_replica_that_has_been_replaced_is_not_held_against_the_other() -> None:
    model = served_model()
    scheduler = scheduler_on("s", model=model)
    (batch,) = send(scheduler, request_of(1))
    other = replica_of(model, replica_id=2)
    scheduler.replica_up("s", "m", other, 10)
    assert outcomes(scheduler.batch_failed(batch.id, "why", 20)) == {1: MODEL_ERROR}
    assert other.failures == 0


def test_busy_are_the_models_that_run_on_a_slice_or_that_wait_for_it() -> None:
    models = [served_model(name) for name in ("m", "n", "o")]
    scheduler = Scheduler(models, Limits())
    for number, model in enumerate(models):
        scheduler.replica_up("s", model.name, replica_of(model, replica_id=number), 0)
    scheduler.replica_up("t", "o", replica_of(models[2], replica_id=9), 0)
    assert scheduler.busy("s") == scheduler.busy("nowhere") == frozenset()
    (batch,) = send(scheduler, request_of(1))
    assert scheduler.busy("s") == {"m"}
    scheduler.hold("t")
    scheduler.arrive(allow(Request(2, "o", 1, 0, 900), ("a",)), 0)
    scheduler.arrive(allow(Request(3, "n", 1, 0, 900), ("a",)), 0)
    assert scheduler.busy("s") == {"m", "n", "o"}
    assert scheduler.busy("t") == {"o"}
    scheduler.replica_down("s", "m", "a", "evicted", 1)
    assert scheduler.busy("s") == {"m", "n", "o"}, "its batch is still there"
    assert batch.model == "m"


def test_rows_that_wait_for_a_variant_that_is_not_here_make_no_model_busy() -> None:
    model = served_model()
    scheduler = scheduler_on("s", model=model)
    scheduler.cold("m", "b", 100, 0)
    scheduler.arrive(request_of(1, variants=("b",)), 0)
    assert scheduler.busy("s") == frozenset()


def test_every_request_counts_for_the_forecast_refused_or_not() -> None:
    scheduler = Scheduler([served_model(), served_model("n")], Limits())
    scheduler.cold("m", "a", 10_000_000, 0)
    for number in range(600):  # 10 a second, all too late
        now_us = number * 100_000
        scheduler.arrive(request_of(number + 1, rows=3, arrived_us=now_us, slack_us=1000), now_us)
    rates = scheduler.rates(60_000_000)
    assert rates["m"] == pytest.approx(10, rel=0.01)
    assert rates["n"] == 0


def test_one_request_tells_no_rate() -> None:
    forecast = MeanRate()
    forecast.begin(0)
    forecast.arrivals += 1
    assert forecast.rate(1) == pytest.approx(1e6 / YOUNG_US, rel=0.1)


@given(st.lists(st.integers(0, 30_000_000), min_size=1, max_size=20), st.sampled_from([0, 1, 4, 250]))
def test_a_steady_rate_is_read_the_same_however_often(pauses_us: list[int], rate: int) -> None:
    """Whole seconds at that rate, read in between at any instants."""
    forecast, now_us = MeanRate(), 0
    forecast.begin(0)
    for pause_us in pauses_us:
        seconds = pause_us // 1_000_000
        forecast.arrivals += rate * seconds
        now_us += seconds * 1_000_000
        forecast.rate(now_us)
    shown = forecast.rate(now_us)
    if now_us >= YOUNG_US:
        assert shown == pytest.approx(rate, rel=1e-6, abs=1e-9)
    else:
        assert 0 <= shown <= rate


def test_a_rate_is_forgotten_by_half_a_minute_and_half() -> None:
    forecast = MeanRate()
    forecast.begin(0)
    forecast.arrivals += 100_000
    first = forecast.rate(600_000_000)
    later_us = 600_000_000 + int(STEADY_US * 0.6931)
    assert forecast.rate(later_us) == pytest.approx(first / 2, rel=0.01)
