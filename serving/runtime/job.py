"""Decisions that take over a millisecond run as jobs, each in a child process of its own with a time limit.

The work is a module-level generator function that yields better and better results, the first as soon as it
can. Each is kept as it comes; at the limit the child is killed and the last result stands. The child shares
no lock, thread or memory with the process that asked: a solver neither holds its event loop up nor takes it
down.
"""

import asyncio
import logging
import os
import pickle
import select
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import BinaryIO, Final, TypeVar

from serving.runtime.clocks.clock import now_us
from serving.runtime.environment import ONE_THREAD, environment
from serving.values.extras import cure
from serving.worker.process.confined import follow

A = TypeVar("A")
R = TypeVar("R")
Work = Callable[[A], Iterator[R]]

NICENESS: Final = 5
"""The gateway and its workers go first: beside one of them on a core a job has a quarter of it (Linux weighs
niceness 0 with 1024, 5 with 335)."""
LEAST_URGENT: Final = 19  # of work that may take as long as it likes: beside others a core's 1/70
LIMIT_MAX_S: Final = 1e6
EXIT_WAIT_S: Final = 1.0
"""For a child that says no more to exit by itself, so that it can be said how."""

_HEADER = struct.Struct("=cQ")  # what follows, and how many bytes
_RESULT, _ERROR, _END = b"r", b"e", b"."
_READ_BYTES = 1 << 20

logger = logging.getLogger(__name__)


class JobError(Exception):
    """A job ended without a result; the text says why."""


async def run(work: Work[A, R], argument: A, limit_s: float, niceness: int = NICENESS) -> R:
    """Return the last result that `work(argument)` yields within the limit, from a child process of that
    niceness; its start counts.

    JobError where there is none: the work raised or yielded nothing, or the child was killed or did not even
    start. Where it fails after a result, that is logged and the result stands. Cancelled, it returns when the
    child is gone. The event loop is never held up: a thread waits, pickles and unpickles.
    """
    wake = os.eventfd(0, os.EFD_CLOEXEC)
    executor = ThreadPoolExecutor(1, "penstock-job")  # not the loop's own, whose threads are few
    job = asyncio.get_running_loop().run_in_executor(executor, _run, work, argument, limit_s, niceness, wake)
    try:
        await asyncio.wait([job])
    finally:
        while not job.done():  # cancelled: a few milliseconds more, even if the caller cancels again
            os.eventfd_write(wake, 1)
            with suppress(asyncio.CancelledError):
                await asyncio.wait([job])
        job.exception()  # seen, also if no caller waits for it any more
        executor.shutdown()
        os.close(wake)
    return job.result()


def run_blocking(work: Work[A, R], argument: A, limit_s: float) -> R:
    """Do as `run`, without an event loop; Ctrl-C ends the child too."""
    return _run(work, argument, limit_s, NICENESS, None)


def _run(work: Work[A, R], argument: A, limit_s: float, niceness: int, wake: int | None) -> R:
    name = getattr(work, "__qualname__", repr(work))
    until_us = now_us() + int(min(limit_s, LIMIT_MAX_S) * 1e6)
    try:
        # Pickle is safe here: between this process and its own child, through pipes of theirs alone.
        asked = pickle.dumps((work, argument), pickle.HIGHEST_PROTOCOL)
        child = _Child(asked, niceness)
    except Exception as error:
        raise JobError(f"{name} could not be started: {_described(error)}") from error
    try:
        ended = child.listen(until_us, wake) or f"found nothing within {limit_s:g} s"
    finally:
        child.end()
    if child.result is None:
        raise JobError(f"{name} {ended}")
    if child.failed:
        logger.warning("%s %s; its last result stands", name, ended)
    found: R = pickle.loads(child.result)  # noqa: S301  # our own child's
    return found


class _Child:
    """The process of one job. `result`: the last that it sent; `failed`: it did not end as it should."""

    def __init__(self, asked: bytes, niceness: int) -> None:
        self.result: bytes | None = None
        self.failed = False
        self._unread = bytearray()
        self._results, theirs = os.pipe2(os.O_CLOEXEC)
        try:
            with open(os.memfd_create("penstock-job"), "w+b") as request:
                request.write(asked)
                request.seek(0)
                self._popen = _spawn(request.fileno(), theirs, niceness)
        except OSError:
            os.close(self._results)
            raise
        finally:
            os.close(theirs)

    def listen(self, until_us: int, wake: int | None) -> str:
        """Take results until the child has ended, and how it did; "" at that instant, or when `wake` can be
        read."""
        pidfd = os.pidfd_open(self._popen.pid)
        try:
            poll = select.poll()
            for fd in (self._results, pidfd, *([] if wake is None else [wake])):
                poll.register(fd, select.POLLIN)
            while True:
                left_us = max(until_us - now_us(), 0)
                ready = [fd for fd, _ in poll.poll(left_us / 1000)]
                if wake in ready:
                    return ""
                if self._results in ready and (said := os.read(self._results, _READ_BYTES)):
                    self._unread += said
                    if ended := self._heard():
                        return ended
                elif ready:  # it says no more
                    return self._exited(pidfd)
                if not left_us:  # what came while this stood still has been heard too
                    return ""
        finally:
            os.close(pidfd)

    def _heard(self) -> str:
        """Keep the last result of what has been read; how it ended, "" where it has not."""
        while len(self._unread) >= _HEADER.size:
            kind, size = _HEADER.unpack_from(self._unread)
            end = _HEADER.size + size
            if len(self._unread) < end:
                break
            said = bytes(self._unread[_HEADER.size : end])
            del self._unread[:end]
            if kind == _ERROR:
                self.failed = True
                return f"raised {said.decode()}"
            if kind == _END:
                return "yielded nothing"
            self.result = said
        return ""

    def _exited(self, pidfd: int) -> str:
        self.failed = True
        select.select([pidfd], [], [], EXIT_WAIT_S)
        found = os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG | os.WNOWAIT)  # `end` reaps it
        if found is None:
            return "says no more"
        if found.si_code == os.CLD_EXITED:
            return f"exited with {found.si_status}"
        return f"was killed by {signal.Signals(found.si_status).name}"

    def end(self) -> None:
        """End the process and all that it may have started."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._popen.pid, signal.SIGKILL)  # not reaped yet, so the number is still its own
        self._popen.wait()
        os.close(self._results)


def _spawn(request: int, results: int, niceness: int) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(  # noqa: S603  # nothing of it comes from a client
        [sys.executable, "-P", "-m", "serving.runtime.job", *map(str, (results, os.getpid(), niceness))],
        stdin=request,
        stdout=subprocess.DEVNULL,  # solvers are talkative
        pass_fds=(results,),
        env=environment(ONE_THREAD),
        start_new_session=True,  # Ctrl-C is for the process that asked
    )


def main(results: int, parent: int, niceness: int) -> int:
    """Return the child: what is asked comes on standard input, what is found goes to `results`."""
    os.set_inheritable(results, False)
    # It follows the thread that started this process: the one that listens, until this process is gone.
    follow(parent)
    os.nice(niceness)
    with open(results, "wb") as there:
        try:
            work, argument = pickle.load(sys.stdin.buffer)  # noqa: S301  # from our own parent
            for result in work(argument):
                _say(there, _RESULT, pickle.dumps(result, pickle.HIGHEST_PROTOCOL))
        except BaseException as error:  # whatever it is, it is said
            _say(there, _ERROR, _described(error).encode())
            return 1
        _say(there, _END, b"")
    return 0


def _say(there: BinaryIO, kind: bytes, said: bytes) -> None:
    there.write(_HEADER.pack(kind, len(said)) + said)
    there.flush()


def _described(error: BaseException) -> str:
    text = f"{type(error).__name__}: {error}"[:2000]
    found = cure(error.name) if isinstance(error, ModuleNotFoundError) else ""
    return f"{text}; {found}" if found else text


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
