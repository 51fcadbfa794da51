"""A job's last result in time counts, and its process is gone afterwards, however it ended."""

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvloop

from serving.runtime.job import JobError, run, run_blocking

pytestmark = pytest.mark.slow


def count_to(last: int) -> Iterator[int]:
    yield from range(1, last + 1)


def never_done(first: str) -> Iterator[str]:
    yield first
    while True:
        pass


def nothing_at_all(_: object) -> Iterator[int]:
    while True:
        pass
    yield 1


def fails(after: int) -> Iterator[int]:
    yield from range(after)
    raise ValueError("the solver is at its wits' end")


def kills_itself(_: object) -> Iterator[int]:
    os.kill(os.getpid(), signal.SIGKILL)
    yield 1


def talks(_: object) -> Iterator[int]:
    print("to stdout")  # noqa: T201
    yield 7


def conditions(_: object) -> Iterator[tuple[int, str]]:
    yield os.nice(0), os.environ["OMP_NUM_THREADS"]


def large(length: int) -> Iterator[bytes]:
    yield bytes(length)


def writes_its_process(path: Path) -> Iterator[int]:
    path.write_text(str(os.getpid()))
    while True:
        pass
    yield 1


def children() -> int:
    return sum(len(each.read_text().split()) for each in Path("/proc/self/task").glob("*/children"))


def written(path: Path) -> int:
    while not (path.exists() and path.read_text()):
        time.sleep(0.02)
    return int(path.read_text())


def is_there(process: int) -> bool:
    return Path("/proc", str(process)).exists()


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_the_last_result_counts() -> None:
    assert run_blocking(count_to, 3, 20) == 3


def test_it_runs_under_the_gateways_event_loop() -> None:
    assert uvloop.run(run(count_to, 2, 20)) == 2


def test_at_the_limit_the_best_so_far_counts_and_the_process_is_gone() -> None:
    began = time.monotonic()
    assert run_blocking(never_done, "greedy", 3) == "greedy"
    assert time.monotonic() - began < 15
    assert children() == 0


def test_without_any_result_in_time_that_is_the_error() -> None:
    with pytest.raises(JobError, match=r"no result within 1\.5 s"):
        run_blocking(nothing_at_all, None, 1.5)


def test_an_error_before_the_first_result_is_told() -> None:
    with pytest.raises(JobError, match="wits' end"):
        run_blocking(fails, 0, 20)


def test_an_error_after_a_result_leaves_the_result() -> None:
    assert run_blocking(fails, 2, 20) == 1


def test_a_killed_process_is_an_error_with_its_status() -> None:
    with pytest.raises(JobError, match="-9"):
        run_blocking(kills_itself, None, 20)


def test_what_it_prints_is_no_result() -> None:
    assert run_blocking(talks, None, 20) == 7


def test_it_has_one_thread_and_low_priority() -> None:
    assert run_blocking(conditions, None, 20) == (os.nice(0) + 5, "1")


def test_large_arguments_and_results_pass() -> None:
    assert len(run_blocking(large, 30_000_000, 30)) == 30_000_000


async def test_the_loop_goes_on_meanwhile_and_jobs_run_side_by_side() -> None:
    beats = 0

    async def beat() -> None:
        nonlocal beats
        while True:
            await asyncio.sleep(0.01)
            beats += 1

    beating = asyncio.create_task(beat())
    assert await asyncio.gather(*(run(count_to, number, 30) for number in (1, 2, 3))) == [1, 2, 3]
    beating.cancel()
    assert beats > 3


async def test_who_waits_no_longer_ends_it(tmp_path: Path) -> None:
    path = tmp_path / "process"
    waiting = asyncio.create_task(run(writes_its_process, path, 60))
    process = await asyncio.to_thread(written, path)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not is_there(process)


async def test_many_jobs_leave_nothing_behind() -> None:
    await run(count_to, 1, 30)
    before = descriptors()
    for _ in range(3):
        await run(count_to, 1, 30)
        with pytest.raises(JobError):
            await run(fails, 0, 30)
    assert (descriptors(), children()) == (before, 0)
