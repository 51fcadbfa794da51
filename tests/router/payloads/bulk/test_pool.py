"""Jobs run in a real process, which may die, stand still, or be asked for too much."""

import asyncio
import contextlib
import gzip
import os
import signal
import sys
from collections.abc import AsyncIterator

import pytest

from router.payloads.bulk import pool
from router.payloads.bulk.pool import Bulk, BulkError
from router.payloads.bulk.requests import open_rest
from router.tensors import rest
from router.tensors.parts.errors import RequestError
from serving.policy.limits.memory import SMALL_BYTES, Level
from serving.values.specs import Limits
from serving.values.vocabulary import BAD_INPUT, MEMORY_FULL
from tests.router.tensors.requests import ANYTHING, body, entry

LIMITS = Limits()
LENGTH = b"inference-header-content-length"
QUESTION, _ = body(entry("X", "INT32", (1, 2000), list(range(2000)), binary=False))
BROKEN, _ = body(entry("X", "INT32", (1, 3), [1, 2], binary=False))


@contextlib.asynccontextmanager
async def running(limits: Limits = LIMITS, count: int = 1) -> AsyncIterator[Bulk]:
    bulk = Bulk(limits)
    await bulk.start(count)
    try:
        yield bulk
    finally:
        await bulk.close()


async def ask(bulk: Bulk, question: bytes = QUESTION, size: int = 0) -> object:
    found = await bulk.run("unfold_rest", size or len(question), question, None, ANYTHING, LIMITS)
    assert isinstance(found, tuple)
    return found


def pid_of(bulk: Bulk) -> int:
    process = bulk._processes[0]._process
    assert process is not None
    return process.pid


@pytest.mark.parametrize("count", [0, 1, 2])
async def test_a_job_has_the_same_result_here_and_there(count: int) -> None:
    async with running(count=count) as bulk:
        answers = await asyncio.gather(*(ask(bulk) for _ in range(5)))
    assert answers == [rest.unfold(QUESTION, None, ANYTHING, LIMITS)] * 5


async def test_a_refusal_comes_back_as_it_was_raised() -> None:
    with pytest.raises(RequestError) as here:
        rest.unfold(BROKEN, None, ANYTHING, LIMITS)
    async with running() as bulk:
        with pytest.raises(RequestError) as there:
            await ask(bulk, BROKEN)
        await ask(bulk)  # the process goes on
    assert (there.value.outcome, there.value.message) == (here.value.outcome, here.value.message)
    assert there.value.outcome is BAD_INPUT


@pytest.mark.slow
async def test_a_job_is_begun_again_where_its_process_is_killed() -> None:
    async with running() as bulk:
        await ask(bulk)
        first = pid_of(bulk)
        os.kill(first, signal.SIGSTOP)
        job = asyncio.ensure_future(ask(bulk))
        await asyncio.sleep(0)  # it is under way
        os.kill(first, signal.SIGKILL)
        assert await job == rest.unfold(QUESTION, None, ANYTHING, LIMITS)
        assert pid_of(bulk) != first


async def test_a_process_that_never_answers_ends_in_an_error_that_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pool, "JOB_S", 0.01)
    async with running() as bulk:
        with pytest.raises(BulkError, match="a bulk process has ended during a job: TimeoutError"):
            await ask(bulk)
    assert len(caplog.messages) == 2


async def test_a_process_that_cannot_run_ends_in_an_error_that_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/true")
    async with running() as bulk:
        with pytest.raises(BulkError, match="a bulk process has ended during a job"):
            await ask(bulk)


async def test_what_waits_is_bounded_and_the_bound_is_given_back() -> None:
    async with running(Limits(held_bytes=4000)) as bulk:
        await ask(bulk, size=1000)
        os.kill(pid_of(bulk), signal.SIGSTOP)
        first = asyncio.ensure_future(ask(bulk, size=600))
        await asyncio.sleep(0)
        with pytest.raises(RequestError) as caught:
            await ask(bulk, size=600)
        assert caught.value.outcome is MEMORY_FULL
        assert caught.value.message == (
            "600 bytes of large requests are being read; at most 1000 may be (a quarter of limits.held_mb)"
        )
        os.kill(pid_of(bulk), signal.SIGCONT)
        await first
        await ask(bulk, size=1000)


async def test_what_needs_work_is_not_taken_while_clients_hold_much() -> None:
    async with running() as bulk:
        bulk.level = lambda: Level.PAUSE
        bulk.admit(SMALL_BYTES)
        with pytest.raises(RequestError, match=r"80% or more .* \(limits\.held_mb\)") as caught:
            bulk.admit(SMALL_BYTES + 1)
        assert (caught.value.outcome, caught.value.retry_us) == (MEMORY_FULL, 1_000_000)
        packed, fields = gzip.compress(bytes(100_000)), {b"content-encoding": b"gzip"}
        with pytest.raises(RequestError, match="no compressed bodies"):
            await open_rest(bulk, packed, fields, ANYTHING)  # it becomes large
        assert bulk.held_bytes == 0
        bulk.level = lambda: Level.EASY
        assert len((await open_rest(bulk, packed, fields | {LENGTH: b"0"}, ANYTHING))[0]) == 100_000


async def test_an_asker_that_leaves_takes_nothing_from_the_next() -> None:
    async with running() as bulk:
        await ask(bulk)
        os.kill(pid_of(bulk), signal.SIGSTOP)
        leaves = asyncio.ensure_future(ask(bulk, BROKEN))
        await asyncio.sleep(0)
        leaves.cancel()
        os.kill(pid_of(bulk), signal.SIGCONT)
        assert await ask(bulk) == rest.unfold(QUESTION, None, ANYTHING, LIMITS)
        assert leaves.cancelled()


async def test_closing_ends_the_process_and_gives_the_job_up() -> None:
    async with running() as bulk:
        await ask(bulk)
        pid = pid_of(bulk)
        os.kill(pid, signal.SIGSTOP)
        job = asyncio.ensure_future(ask(bulk))
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await job
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
