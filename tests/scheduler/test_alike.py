"""A batch that waits on one of many slices that are alike waits on all of them: one is asked."""

import pytest

from serving.scheduler.commands import Command, RunBatch
from serving.scheduler.scheduler import Scheduler
from serving.values.specs import BatchingSpec, Limits
from tests.scheduler.values import only, replica_of, request_of, rows_of, send, served_model, started

WAITING = BatchingSpec("slo", guard_us=0, mode="consolidate")
"""While requests come, its batches wait for more rows until their latest start."""
GAP_US, ROWS = 2000, 50
PAUSE_US = 1000


def slices_of(row_us: dict[str, float]) -> tuple[Scheduler, int]:
    """The model "m" on slices where a row takes so long, after some requests; and the time."""
    model = served_model(slo_us=100_000, batching=WAITING, batch_max=8)
    scheduler, now_us = Scheduler([model], Limits()), 0
    for name, each_us in row_us.items():
        scheduler.replica_up(name, "m", replica_of(model, row_us=each_us), 0)
    running: list[tuple[int, int, RunBatch]] = []  # (when it is back, number, batch)
    due_us = [GAP_US * place for place in range(1, ROWS + 1)]
    while due_us or scheduler.open_requests:
        now_us = min([*due_us[:1], *(each[0] for each in running), scheduler.wake_us])
        said: list[Command] = []
        if due_us and now_us == due_us[0]:
            said += scheduler.arrive(request_of(now_us, arrived_us=due_us.pop(0), slack_us=90_000), now_us)
        for back in [each for each in running if each[0] <= now_us]:
            running.remove(back)
            said += scheduler.batch_done(back[1], int(back[2].typical_us), now_us)
        if scheduler.wake_us <= now_us:
            said += scheduler.wake(now_us)
        running += [(now_us + int(each.typical_us), each.id, each) for each in only(said, RunBatch)]
    return scheduler, now_us + PAUSE_US


def asked(scheduler: Scheduler) -> list[str]:
    """The slices that hold a choice for the queue as it is now."""
    model = scheduler.models["m"]
    return [live.name for live in model.slices if live.queues["m"]._version == model.queue.version]


@pytest.mark.parametrize("slices", [1, 2, 64])
def test_a_row_that_waits_asks_one_of_the_slices_that_are_alike(slices: int) -> None:
    scheduler, now_us = slices_of({f"s{number}": 1000.0 for number in range(slices)})
    assert not send(scheduler, request_of(99, arrived_us=now_us, slack_us=90_000), now_us=now_us)
    assert asked(scheduler) == ["s0"]
    (batch,) = started(scheduler, scheduler.wake_us)
    assert (batch.slice, rows_of(batch)) == ("s0", [99])


def test_of_each_kind_of_slice_one_is_asked() -> None:
    scheduler, now_us = slices_of({"s0": 1000.0, "s1": 1000.0, "t0": 3000.0, "t1": 3000.0})
    assert not send(scheduler, request_of(99, arrived_us=now_us, slack_us=90_000), now_us=now_us)
    assert asked(scheduler) == ["s0", "t0"]


def test_after_one_took_a_batch_the_next_of_its_kind_is_asked_for_what_is_left() -> None:
    scheduler, now_us = slices_of({f"s{number}": 1000.0 for number in range(4)})
    requests = [request_of(100 + place, arrived_us=now_us, slack_us=90_000) for place in range(19)]
    batches = send(scheduler, *requests, now_us=now_us)
    assert [(batch.slice, batch.rows) for batch in batches] == [("s0", 8), ("s1", 8)]
    assert asked(scheduler) == ["s2"]
