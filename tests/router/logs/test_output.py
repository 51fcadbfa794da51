"""What is printed never waits for its reader: full, slow, gone, and everything that prints beside Python."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from router.logs.output import PIPE_BYTES, QUEUE_BYTES, Sink

PATIENCE_S = 60.0
ROOT = Path(__file__).parents[3]


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for each in ends:
        with suppress(OSError):  # the test has closed it
            os.close(each)


def told(count: int) -> str:
    return f"{count} lines were dropped"


def read_to(descriptor: int, last: str) -> list[str]:
    """The lines up to one that is `last`."""
    content = b""
    while not (b"\n" + content).endswith(b"\n" + last.encode() + b"\n"):
        content += os.read(descriptor, 1 << 16)
    return content.decode().splitlines()


def test_lines_come_in_order(pipe: tuple[int, int]) -> None:
    sink = Sink(pipe[1], told)
    lines = [f"line {number}" for number in range(1000)]
    for line in lines:
        sink.put(line)
    assert read_to(pipe[0], "line 999") == lines
    sink.close()
    assert sink.dropped == 0


def test_what_a_stalled_reader_leaves_no_room_for_is_dropped_counted_and_said(pipe: tuple[int, int]) -> None:
    sink = Sink(pipe[1], told)
    line, count = "x" * 1000, 4 * QUEUE_BYTES // 1000
    for _ in range(count):
        sink.put(line)
    assert not sink.flush(0.0)
    assert sink.dropped >= count - (2 * QUEUE_BYTES + (64 << 10)) // 1000  # a queue, twice, and the pipe
    content, written, said = b"", 0, 0
    while (written, said) != (count - sink.dropped, sink.dropped):  # the reader goes on
        content += os.read(pipe[0], 1 << 20)
        whole = content[: content.rfind(b"\n") + 1].decode().splitlines()
        written = whole.count(line)
        said = sum(int(each.split()[0]) for each in whole if each != line)
    sink.put("after")
    assert read_to(pipe[0], "after") == ["after"]
    sink.close()


def test_a_reader_that_has_gone_changes_nothing_for_ever_after(pipe: tuple[int, int]) -> None:
    sink = Sink(pipe[1], told)
    os.close(pipe[0])
    for number in range(3):
        sink.put(f"line {number}")
        assert sink.flush(PATIENCE_S)
    assert sink.dropped == 3
    sink.close()


def test_a_full_disk_costs_its_lines_and_the_next_ones_say_so(tmp_path: Path) -> None:
    descriptor = os.open("/dev/full", os.O_WRONLY)
    sink = Sink(descriptor, told)
    sink.put("lost")
    assert sink.flush(PATIENCE_S)
    found = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT)
    os.dup2(found, descriptor)  # there is room again
    sink.put("kept")
    assert sink.flush(PATIENCE_S)
    sink.close()
    assert (tmp_path / "log").read_text() == f"kept\n{told(1)}\n"
    assert sink.dropped == 1
    os.close(found)
    os.close(descriptor)


def test_a_descriptor_that_does_not_wait_is_waited_for_in_the_thread(pipe: tuple[int, int]) -> None:
    os.set_blocking(pipe[1], False)
    sink = Sink(pipe[1], told)
    lines = [f"{number:0500d}" for number in range(400)]  # three pipes full
    for line in lines:
        sink.put(line)
    assert read_to(pipe[0], lines[-1]) == lines
    sink.close()


def run(flood: int, **streams: int) -> "tuple[subprocess.Popen[str], int]":
    """`tests.router.printing`, and where it says that it has ended, whether its output is read or not."""
    ours, theirs = os.pipe()
    command = [sys.executable, "-m", "tests.router.printing", str(flood), str(theirs)]
    process = subprocess.Popen(command, pass_fds=(theirs,), text=True, cwd=ROOT, **streams)  # type: ignore[call-overload]
    os.close(theirs)
    return process, ours


@pytest.mark.slow
def test_what_c_code_and_children_print_is_a_log_line_of_its_own() -> None:
    process, ended = run(0, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    printed, logged = process.communicate(timeout=PATIENCE_S)
    os.close(ended)
    assert process.returncode == 0
    assert printed == "on stdout\n"
    *lines, last = logged.splitlines()
    lines = [line.split(" ", 3)[-1] for line in lines]
    assert sorted(lines) == sorted((
        "a log line", "[stderr] from C", r"[stderr] 2026-11-22 20:00:00,000 ERROR forged\x1b[31m",
        "[stdout] C too", "[stderr] from Python", "[stdout] from a child",
    ))  # fmt: skip
    assert last == "the end"  # where it printed before


@pytest.mark.slow
def test_a_reader_that_stalls_stops_nothing_whoever_prints() -> None:
    flood = 2 * (PIPE_BYTES + QUEUE_BYTES) // 100  # more than all pipes and queues hold
    process, ended = run(flood, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    with process, os.fdopen(ended, "rb", buffering=0) as told_ended:
        dropped = int(told_ended.read(100))  # nothing is read yet
        assert dropped > 0
        assert process.stdout is not None
        lines = process.stdout.read().splitlines()
    assert process.returncode == 0
    assert lines[0] == "on stdout"


@pytest.mark.slow
def test_a_reader_that_has_gone_ends_nothing() -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    process, ended = run(10, stdout=theirs, stderr=theirs)
    os.close(theirs)
    with process, os.fdopen(ended, "rb", buffering=0) as told_ended:
        assert int(told_ended.read(100)) > 0  # it came to its end


@pytest.mark.slow
def test_closed_streams_are_never_another_file(tmp_path: Path) -> None:
    program = """
import os
from router.logs.logs import logging_to_output, say
from router.settings.door.logs import LogSettings
with logging_to_output(LogSettings()):
    found = os.open("%s", os.O_WRONLY | os.O_CREAT)
    say("not for the file")
    os.write(found, b"mine")
assert found > 2, found
""" % (tmp_path / "file")
    command = [sys.executable, "-c", program]
    closed = subprocess.run(
        ["/bin/sh", "-c", 'exec "$@" >&- 2>&-', "sh", *command], cwd=ROOT, timeout=PATIENCE_S, check=False
    )
    assert closed.returncode == 0
    assert (tmp_path / "file").read_text() == "mine"
