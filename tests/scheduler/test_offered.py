"""Batches are sized by what is offered: what is refused counts as much as what joins the queue."""

from dataclasses import replace

import pytest

from serving.policy.batching.slo import Slo
from serving.scheduler.commands import Answer
from serving.scheduler.scheduler import Scheduler
from serving.values.specs import BatchingSpec, Limits, SizeHint
from tests.scheduler.values import only, replica_of, request_of, served_model

SLO_US = 50_000
MODEL = served_model(batch_max=64, slo_us=SLO_US, batching=BatchingSpec("slo", guard_us=0))
GAP_US = 300
ASKED = 2000
CURVE_US = {1: 10_000.0, 64: 40_000.0}


def aims(limits: Limits) -> tuple[list[int], int]:
    """The sizes aimed at after the same requests, and how many of them were refused."""
    scheduler = Scheduler([MODEL], limits)
    scheduler.replica_up("s", "m", replica_of(MODEL, latency_us=CURVE_US), 0)
    refused = 0
    for number in range(ASKED):
        now_us = number * GAP_US
        request = request_of(number + 1, arrived_us=now_us, slack_us=SLO_US)
        refused += len(only(scheduler.arrive(request, now_us), Answer))
    model = scheduler.models["m"]
    assert isinstance(model.policy, Slo)
    here = model.slices[0].queues["m"]
    return [load.target for load in model.policy.loads(here, ASKED * GAP_US)], refused


@pytest.mark.parametrize("queue_requests", [1, 20, 400])
def test_the_size_aimed_at_is_the_same_however_many_are_refused(queue_requests: int) -> None:
    all_in, _ = aims(Limits(queue_requests=100_000, queue_rows=100_000))
    bounded, refused = aims(Limits(queue_requests=queue_requests, queue_rows=100_000))
    assert refused > ASKED - queue_requests - 64 * 20
    assert bounded == all_in
    assert bounded[0] > 20


@pytest.mark.parametrize("joins_every", [2, 10, ASKED])
def test_the_size_aimed_at_is_the_same_where_edges_refuse_for_want_of_room(joins_every: int) -> None:
    scheduler = Scheduler([MODEL], Limits(queue_requests=100_000, queue_rows=100_000))
    scheduler.replica_up("s", "m", replica_of(MODEL, latency_us=CURVE_US), 0)
    for number in range(ASKED):
        now_us = number * GAP_US
        if number % joins_every:
            scheduler.offer("m", "", now_us)
        else:
            scheduler.arrive(request_of(number + 1, arrived_us=now_us, slack_us=SLO_US), now_us)
    model = scheduler.models["m"]
    assert isinstance(model.policy, Slo)
    found = [load.target for load in model.policy.loads(model.slices[0].queues["m"], ASKED * GAP_US)]
    all_in, _ = aims(Limits(queue_requests=100_000, queue_rows=100_000))
    assert found == all_in


def test_what_edges_refuse_counts_as_being_of_the_size_of_the_latest_request() -> None:
    sized = replace(MODEL, spec=replace(MODEL.spec, size_hint=SizeHint("X", (16, 64))))
    scheduler = Scheduler([sized], Limits())
    model = scheduler.models["m"]
    scheduler.offer("m", "", 0)
    assert model.bucket == 64
    request = request_of(1)
    request.bucket = 16
    scheduler.arrive(request, 1)
    scheduler.offer("m", "", 2)
    assert model.bucket == 16
    scheduler.serve(MODEL, 3)
    scheduler.offer("m", "", 4)
    assert model.bucket == 0
