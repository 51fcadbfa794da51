"""Where a computed call's time went is told without a gap, from its submission until its answer."""

import pytest

from serving.runtime.calls.payloads import output_us
from serving.runtime.clocks.clock import now_us
from serving.scheduler.commands import RunBatch
from serving.worker.frames.batches import BatchResult
from tests.runtime.ground import MODEL, Ground, turn


async def test_the_phases_of_a_computed_call_leave_nothing_between_submission_and_answer() -> None:
    ground = Ground(MODEL)
    ground.route()
    before_us = now_us()
    ground.submit()
    while not ground.bench.running:
        await turn()
    ground.finish(compute_us=0)
    (reply,) = ground.replies
    phases_us = reply.queue_us + reply.batch_us + reply.input_us + reply.compute_us + reply.output_us
    assert before_us <= reply.ready_us - phases_us, "they begin after the call came"
    assert reply.ready_us <= reply.answered_us <= now_us()
    (latency_us,) = ground.tally.latency_us
    (parse_us,) = ground.tally.parse_us
    assert parse_us + phases_us + reply.answered_us - reply.ready_us == latency_us


@pytest.mark.parametrize(
    ("ended_us", "took_us"),
    [(0, 0), (470, 30), (300, 70), (-9_000, 70), (9_000, 0)],
    ids=["not said", "said", "as long as can be", "another clock, behind", "another clock, ahead"],
)
def test_the_way_back_is_part_of_a_batchs_time_whatever_clock_its_worker_has(
    ended_us: int, took_us: int
) -> None:
    batch = RunBatch(1, "s", [], 1)
    batch.started_us = 400
    result = BatchResult(1, 30, 0, 1, [])
    result.ended_us = ended_us
    assert output_us(batch, result, 500) == took_us
