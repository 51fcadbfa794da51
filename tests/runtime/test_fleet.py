"""What gateway and fleet promise together, over real worker processes and the sample models."""

import asyncio
import os
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from serving.policy.batching.catalogue import POLICIES
from serving.ports import Call, Reply
from serving.profile.device import device_kind
from serving.profile.files.store import ProfileStore
from serving.values.objectives import Needs
from serving.values.specs import BatchingSpec
from serving.values.tensor import Tensor
from serving.values.vocabulary import (
    CLIENT_GONE,
    COMPLETED,
    DEADLINE_QUEUED,
    DEADLINE_RUNNING,
    DEADLINE_UNMET,
    DRAINING,
    WORKER_LOST,
)
from tests.runtime.house import LIMITS, SLICE, house, sums, undeclared, until

pytestmark = [pytest.mark.live, pytest.mark.slow]

PATIENT = BatchingSpec("static", size=1)
SLO_US = 20_000_000
"""Nothing is given up or turned away, however slow all is."""


@pytest.mark.parametrize("policy", POLICIES)
async def test_a_hundred_requests_of_all_sizes_each_get_their_own_rows(tmp_path: Path, policy: str) -> None:
    hasty = policy == "symphony"  # it waits for company as long as it may
    slo_us = 500_000 if hasty else SLO_US
    async with house(tmp_path, batching=BatchingSpec(policy), slo_us=slo_us) as here:
        sizes = [1 + number % 20 for number in range(100)]  # the maximum batch is 8: some are split
        replies: list[Reply] = []
        while not any(reply.outcome is COMPLETED for reply in replies):
            assert hasty or not replies
            futures = [here.submit(here.add(rows, seed=1000 * n))[1] for n, rows in enumerate(sizes)]
            replies = await asyncio.gather(*futures)
        for number, (rows, reply) in enumerate(zip(sizes, replies, strict=True)):
            if hasty and reply.outcome is DEADLINE_UNMET:
                continue  # a busy machine may take longer than that
            assert reply.outcome is COMPLETED
            expected = 2 * (np.arange(rows * 16, dtype=np.int32).reshape(rows, 16) + 1000 * number)
            np.testing.assert_array_equal(sums(reply), expected)
        assert max(here.tally.batches) <= 8
        if policy == "static":
            assert max(here.tally.batches) == 8
            assert sum(here.tally.batches) == sum(sizes)
        assert here.gateway.open_requests == 0


async def test_a_client_deadline_fires_while_the_model_runs(tmp_path: Path) -> None:
    async with house(tmp_path, batching=PATIENT, slo_us=SLO_US) as here:
        call = here.delay(0)
        call.timeout_us = 60_000
        with here.stopped():
            start = here.gateway.now_us()
            told = here.submit(call)[1]
            here.dispatch()
            runs = not told.done()  # else the machine stood still until it was too late
            assert (await told).outcome is (DEADLINE_RUNNING if runs else DEADLINE_QUEUED)
        assert here.gateway.now_us() - start >= 60_000


async def test_an_answer_late_by_the_slo_alone_is_delivered_and_counted(tmp_path: Path) -> None:
    slow = (undeclared(tmp_path / "identity"),)
    async with house(tmp_path, batching=PATIENT, slo_us=100_000, models=slow) as here:
        reply = await here.submit(here.delay(150))[1]
        assert reply.outcome is COMPLETED
        assert bytes(reply.outputs[0].data) == b"ab"
        assert here.tally.late == 1


@pytest.mark.parametrize("slo_rows", [None, 64])
async def test_a_request_of_several_batches_has_the_stated_slo_once_and_not_once_for_each(
    tmp_path: Path, slo_rows: int | None
) -> None:
    rows, slo_us = 128, 100_000  # two batches of 60 ms
    async with house(tmp_path, batching=PATIENT, slo_us=slo_us) as here:
        model = here.gateway.models["identity"]
        here.gateway.serve(replace(model, needs=Needs(slo_rows=slo_rows)))
        call = Call(
            here.gateway.models["identity"], [Tensor("INPUT0", "INT8", (rows, 2), b"ab" * rows)], rows
        )
        call.parameters = (("execute_delay_ms", 60),)
        reply = await here.submit(call)[1]
        assert reply.outcome is COMPLETED
        assert sorted(here.tally.batches)[-2:] == [64, 64]
        (latency_us,) = here.tally.latency_us
        assert call.due_us == (slo_us if slo_rows is None else 2 * slo_us) > 0
        assert latency_us > slo_us
        assert here.tally.late == (latency_us > call.due_us)


async def test_a_cancelled_request_is_answered_once_and_its_queued_work_is_never_run(tmp_path: Path) -> None:
    async with house(tmp_path, batching=PATIENT, slo_us=SLO_US) as here:
        running = here.submit(here.delay(0))[1]
        here.dispatch()
        queued_id, queued = here.submit(here.add(3))
        here.gateway.cancel(queued_id)
        assert (await queued).outcome is CLIENT_GONE
        here.gateway.cancel(queued_id)
        assert (await running).outcome is COMPLETED
        assert here.tally.batches == [1]


async def test_what_a_killed_worker_had_is_run_by_the_next_one(tmp_path: Path) -> None:
    async with house(tmp_path, batching=PATIENT, slo_us=SLO_US) as here:
        running = here.submit(here.delay(1_000))[1]
        here.dispatch()
        waiting = here.submit(here.add(1))[1]
        pid = here.fleet.pid("s")
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        replies = await asyncio.gather(running, waiting)
        assert {reply.outcome for reply in replies} == {COMPLETED}
        assert here.fleet.pid("s") != pid


async def test_a_stopped_worker_is_replaced_after_the_stall_limit(tmp_path: Path) -> None:
    hasty = replace(LIMITS, stall_us=300_000)
    async with house(tmp_path, hasty, PATIENT, slo_us=SLO_US) as here:
        pid = here.fleet.pid("s")
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        reply = await here.submit(here.add(1))[1]
        assert reply.outcome is WORKER_LOST
        reason = "a simple batch of 1 rows was late by over 0.3 s"
        assert reply.detail == f"the worker of slice s was ended: {reason}"
        await here.until(lambda: here.gateway.ready)
        assert here.fleet.pid("s") != pid
        while (reply := await here.submit(here.add(1))[1]).outcome is not COMPLETED:
            assert reason in reply.detail, "the machine stood still for as long"
            await here.until(lambda: here.gateway.ready)


async def test_a_drain_answers_what_was_accepted_and_refuses_what_comes(tmp_path: Path) -> None:
    async with house(tmp_path, batching=PATIENT, slo_us=SLO_US) as here:
        accepted = [here.submit(here.delay(30))[1] for _ in range(3)]
        here.gateway.drain()
        assert not here.gateway.ready
        assert (await here.submit(here.add(1))[1]).outcome is DRAINING
        assert {reply.outcome for reply in await asyncio.gather(*accepted)} == {COMPLETED}


async def test_a_second_start_measures_nothing_again(tmp_path: Path) -> None:
    async with house(tmp_path):
        pass
    kind, store = device_kind(SLICE), ProfileStore(tmp_path)
    await until(lambda: store.read(kind, "simple", "default", SLICE.share) is not None)


async def test_with_a_delay_requests_wait_for_company(tmp_path: Path) -> None:
    delay_us = 60_000_000
    async with house(tmp_path, batching=BatchingSpec("static", 2, delay_us), slo_us=SLO_US) as here:
        first = here.submit(here.add(1))[1]
        submitted_us = here.gateway.now_us()
        await asyncio.sleep(0.03)
        assert not first.done()
        slept_us = here.gateway.now_us() - submitted_us  # uvloop's timers may be up to 1 ms early
        second = here.submit(here.add(1))[1]
        replies = await asyncio.gather(first, second)
        assert [reply.batch_rows for reply in replies] == [2, 2]
        assert replies[0].batch_us >= slept_us > 20_000
        waited = here.add(1)
        waited.arrived_us = here.gateway.now_us() + 30_000 - delay_us
        alone = await here.submit(waited)[1]
        assert alone.batch_rows == 1
        assert here.gateway.now_us() - waited.arrived_us >= delay_us
        assert {reply.outcome for reply in (*replies, alone)} == {COMPLETED}


async def test_what_the_edge_took_is_in_the_duration_but_in_no_wait(tmp_path: Path) -> None:
    async with house(tmp_path, batching=BatchingSpec("static", size=1)) as here:
        call = here.add(1)
        call.arrived_us = here.gateway.now_us() - 3_600_000_000
        _, answered = here.submit(call)
        reply = await answered
        assert reply.outcome is COMPLETED
        assert here.tally.parse_us[0] >= 3_600_000_000
        assert here.tally.latency_us[0] > 3_600_000_000
        assert reply.queue_us + reply.batch_us < 3_600_000_000


async def test_a_profile_that_cannot_be_stored_is_said_and_nothing_else_happens(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    blocked = tmp_path / "profiles"
    blocked.write_text("a file where the folder would be")
    async with house(blocked, batching=PATIENT, slo_us=SLO_US) as here:
        _, answered = here.submit(here.add(2))
        assert (await answered).outcome is COMPLETED
    await until(lambda: "a measured profile could not be stored" in caplog.text)
    assert str(blocked) in caplog.text


async def test_an_edge_that_fails_to_deliver_costs_no_one_else_an_answer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(reply: Reply) -> None:
        raise RuntimeError("the edge is broken")

    async with house(tmp_path, batching=BatchingSpec("static", 2, 20_000), slo_us=SLO_US) as here:
        here.gateway.submit(here.add(1), fail)
        _, answered = here.submit(here.add(1, seed=5))  # in the same batch
        reply = await answered
        assert (reply.outcome, reply.batch_rows) == (COMPLETED, 2)
        _, after = here.submit(here.add(1))
        assert (await after).outcome is COMPLETED
        assert here.gateway.open_requests == 0
    assert "the edge is broken" in caplog.text


async def test_an_answer_may_be_the_occasion_to_submit_and_to_cancel(tmp_path: Path) -> None:
    async with house(tmp_path, batching=BatchingSpec("static", 2, SLO_US), slo_us=SLO_US) as here:
        told: list[Reply] = []
        next_one: list[asyncio.Future[Reply]] = []

        def deliver(reply: Reply) -> None:
            told.append(reply)
            here.gateway.cancel(later_id)
            here.gateway.cancel(beside_id)  # its answer is on its way: the next of the same batch
            next_one.append(here.submit(here.add(2, seed=9))[1])

        here.gateway.submit(here.add(1), deliver)
        beside_id, beside = here.submit(here.add(1))
        later_id, later = here.submit(here.delay(5000))
        assert (await beside).outcome is COMPLETED
        assert (await later).outcome is CLIENT_GONE
        assert (await next_one[0]).outcome is COMPLETED
        assert [reply.outcome for reply in told] == [COMPLETED]
        assert here.gateway.open_requests == 0
