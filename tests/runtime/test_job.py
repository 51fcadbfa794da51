"""Promises of jobs: the last result in time stands, failures are said, and nothing of a job stays behind."""

import asyncio
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from serving.runtime import job
from serving.runtime.clocks.clock import now_us
from serving.runtime.job import NICENESS, JobError, run, run_blocking

pytestmark = [pytest.mark.live, pytest.mark.slow]

LIMIT_S = 60  # far more than any job here takes


# what jobs do; a child imports this module for it


def squares(count: int) -> Iterator[int]:
    for each in range(count):
        yield each * each


def endless(found: int) -> Iterator[int]:
    yield found
    while True:
        pass


def failing(after: int) -> Iterator[int]:
    yield from range(after)
    raise ValueError(f"nothing after {after}")


def unequipped(package: str) -> Iterator[int]:
    raise ModuleNotFoundError(f"No module named {package!r}", name=package)
    yield 0


def killed(sign: int) -> Iterator[int]:
    os.kill(os.getpid(), sign)
    yield 0


def found_then_killed(sign: int) -> Iterator[int]:
    yield 7
    os.kill(os.getpid(), sign)


def leaving(code: int) -> Iterator[int]:
    os._exit(code)
    yield 0


def quitting(code: int) -> Iterator[int]:
    yield code
    sys.exit(code)


def echoed(text: str) -> Iterator[str]:
    yield text


def conditions(_: None) -> Iterator[dict[str, object]]:
    os.write(1, b"a solver says something")
    yield {
        "niceness": os.nice(0),
        "threads": os.environ["OMP_NUM_THREADS"],
        "descriptors": sorted(os.listdir("/proc/self/fd")),
        "session": os.getsid(0) == os.getpid(),
    }


def unsendable(_: None) -> Iterator[object]:
    yield lambda: None


def with_a_child(_: None) -> Iterator[int]:
    """A process that it leaves, which keeps every descriptor that it could inherit."""
    pid = os.fork()
    if pid == 0:
        time.sleep(600)
        os._exit(0)
    yield pid


def finding(file: str) -> Iterator[int]:
    yield 7
    Path(file).write_text(str(os.getpid()))
    time.sleep(600)


def telling(file: str) -> Iterator[int]:
    Path(file).write_text(str(os.getpid()))
    time.sleep(600)
    yield 0


def children() -> list[str]:
    """Of all threads of this process, some of which may end meanwhile."""
    found = []
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):
            found += (task / "children").read_text().split()
    return found


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def is_there(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def told_pid(file: Path) -> int:
    """Of `telling`, once it runs."""
    while not (file.exists() and file.read_text()):
        time.sleep(0.01)
    return int(file.read_text())


def await_end(pid: int) -> None:
    until = time.monotonic() + LIMIT_S
    while is_there(pid):  # until the kernel has got round to it
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process may take long to be gone."""
    monkeypatch.setattr(job, "EXIT_WAIT_S", LIMIT_S)


@pytest.fixture(autouse=True)
def no_child_left() -> Iterator[None]:
    """Beside those of other tests, such as a gateway that serves a whole session of them."""
    before = {*children()}
    yield
    until = time.monotonic() + LIMIT_S
    while not {*children()} <= before:  # another test's that is just ending
        assert time.monotonic() < until
        time.sleep(0.01)


async def test_the_last_result_stands() -> None:
    assert await run(squares, 4, LIMIT_S) == 9


def test_a_package_that_is_missing_is_named_with_the_extra_that_has_it() -> None:
    with pytest.raises(
        JobError, match=r"No module named 'scipy.optimize'; try `pip install 'penstock\[plan\]'`"
    ):
        run_blocking(unequipped, "scipy.optimize", LIMIT_S)
    with pytest.raises(JobError, match=r"No module named 'no_such_package'$"):
        run_blocking(unequipped, "no_such_package", LIMIT_S)


def test_it_does_so_without_an_event_loop() -> None:
    assert run_blocking(squares, 4, LIMIT_S) == 9


async def test_at_the_limit_what_was_found_until_then_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    hear, found_us = job._Child._heard, list[int]()

    def heard(child: job._Child) -> str:
        found_us.append(now_us())
        return hear(child)

    def waiting_us() -> int:
        return now_us() - found_us[0] if found_us else 0

    monkeypatch.setattr(job._Child, "_heard", heard)
    monkeypatch.setattr(job, "now_us", waiting_us)  # nothing passes while its process starts
    assert await run(endless, 5, 0.3) == 5
    assert waiting_us() >= 300_000


def test_what_was_found_in_time_counts_although_nobody_could_listen_before_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, asked = tmp_path / "pid", list[int]()

    def stood_still_us() -> int:
        """Since the start, until the child had said what it found."""
        asked.append(1)
        if len(asked) == 1:
            return 0
        told_pid(file)
        return LIMIT_S * 1_000_000

    monkeypatch.setattr(job, "now_us", stood_still_us)
    assert run_blocking(finding, str(file), LIMIT_S) == 7


async def test_no_result_within_the_limit_is_an_error() -> None:
    with pytest.raises(JobError, match=r"telling found nothing within 0\.5 s"):
        await run(telling, "/dev/null", 0.5)
    with pytest.raises(JobError, match="squares found nothing within 0 s"):
        await run(squares, 3, 0)


async def test_one_that_raises_after_a_result_is_logged_and_the_result_stands(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        assert await run(failing, 3, LIMIT_S) == 2
        assert "failing raised ValueError: nothing after 3; its last result stands" in caplog.text
        assert await run(found_then_killed, signal.SIGKILL, LIMIT_S) == 7
        assert "found_then_killed was killed by SIGKILL; its last result stands" in caplog.text
        caplog.clear()
        assert await run(quitting, 0, LIMIT_S) == 0
        assert "SystemExit: 0" in caplog.text


async def test_one_that_ends_without_a_result_says_why() -> None:
    with pytest.raises(JobError, match="failing raised ValueError: nothing after 0"):
        await run(failing, 0, LIMIT_S)
    with pytest.raises(JobError, match="squares yielded nothing"):
        await run(squares, 0, LIMIT_S)
    with pytest.raises(JobError, match="killed was killed by SIGKILL"):
        await run(killed, signal.SIGKILL, LIMIT_S)
    with pytest.raises(JobError, match="killed was killed by SIGSEGV"):
        await run(killed, signal.SIGSEGV, LIMIT_S)
    with pytest.raises(JobError, match="leaving exited with 3"):
        await run(leaving, 3, LIMIT_S)
    with pytest.raises(JobError, match=r"unsendable raised .*[Pp]ickle"):
        await run(unsendable, None, LIMIT_S)


async def test_what_cannot_be_sent_or_started_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(JobError, match=r"could not be started: .*pickle"):
        await run(lambda _: squares(3), None, LIMIT_S)
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(JobError, match="squares could not be started: FileNotFoundError"):
        await run(squares, 3, LIMIT_S)


async def test_a_child_that_cannot_import_the_work_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(squares, "__module__", "tests.runtime.nowhere")
    monkeypatch.setitem(sys.modules, "tests.runtime.nowhere", sys.modules[__name__])
    with pytest.raises(JobError, match="squares raised ModuleNotFoundError"):
        await run(squares, 3, LIMIT_S)


async def test_questions_and_answers_may_be_larger_than_any_pipe() -> None:
    text = "long " * 2_000_000
    assert await run(echoed, text, LIMIT_S) == text


async def test_the_child_is_nice_computes_on_one_thread_and_inherits_nothing() -> None:
    found = await run(conditions, None, LIMIT_S)
    assert found["niceness"] == os.nice(0) + NICENESS
    assert (found["threads"], found["session"]) == ("1", True)
    assert len(str(found["descriptors"]).split(",")) == 5  # the usual three, its results, the listing itself


async def test_the_event_loop_goes_on_meanwhile(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    running = asyncio.create_task(run(telling, str(file), LIMIT_S))
    ticks = 0
    while not file.exists() or ticks < 30:  # as it starts, and as it runs
        await asyncio.sleep(0.01)
        ticks += 1
    assert not running.done()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_whoever_cancels_kills_the_child_and_waits_for_it(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    running = asyncio.create_task(run(telling, str(file), LIMIT_S))
    pid = await asyncio.to_thread(told_pid, file)
    assert is_there(pid)
    running.cancel()
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not is_there(pid)


@pytest.fixture
def ctrl_c_is_heard() -> Iterator[None]:
    """Also where whoever started the tests has it ignored, as shells have what runs in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c_is_heard")
def test_ctrl_c_ends_the_child_of_one_that_blocks(tmp_path: Path) -> None:
    file = tmp_path / "pid"

    def press() -> None:
        told_pid(file)
        os.kill(os.getpid(), signal.SIGINT)

    pressing = threading.Thread(target=press)
    pressing.start()
    with pytest.raises(KeyboardInterrupt):
        run_blocking(telling, str(file), LIMIT_S)
    pressing.join()
    assert not is_there(int(file.read_text()))


async def test_cancelled_at_once_it_leaves_nothing() -> None:
    running = asyncio.create_task(run(squares, 3, LIMIT_S))
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_what_the_work_itself_has_started_ends_with_it() -> None:
    await asyncio.to_thread(await_end, await run(with_a_child, None, LIMIT_S))


async def test_jobs_run_beside_each_other() -> None:
    assert await asyncio.gather(*(run(squares, count, LIMIT_S) for count in (2, 3, 4))) == [1, 4, 9]


async def test_many_jobs_in_a_row_leak_neither_descriptors_nor_threads() -> None:
    await run(squares, 3, LIMIT_S)
    before, threads = descriptors(), threading.active_count()
    for _ in range(5):
        assert await run(squares, 3, LIMIT_S) == 4
        with pytest.raises(JobError):
            await run(leaving, 1, LIMIT_S)
    assert (descriptors(), threading.active_count()) == (before, threads)


def test_the_child_dies_with_the_process_that_asked(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    asking = (
        "from serving.runtime.job import run_blocking; from tests.runtime.test_job import telling;"
        f"run_blocking(telling, {str(file)!r}, {LIMIT_S})"
    )
    parent = subprocess.Popen([sys.executable, "-c", asking], cwd=Path(__file__).parents[2])
    pid = told_pid(file)
    parent.kill()
    parent.wait()
    await_end(pid)
