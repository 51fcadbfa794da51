"""Long decisions run as jobs: in a process of their own, with a time limit; the best result in time counts.

The child is a fresh interpreter of low priority: nothing of the gateway's loop, threads or sockets is
inherited. It gets its work and gives its results as pickles over pipes that only it and its parent hold:
neither side reads what a stranger wrote. Each result is sent as it is found; at the limit it is killed.
"""

import asyncio
import os
import pickle
import struct
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

Argument = TypeVar("Argument")
Result = TypeVar("Result")
Work = Callable[[Argument], Iterator[Result]]
"""A function of a module, by whose name the child finds it. It yields better and better results."""

NICENESS: Final = 5
"""Requests come first: the gateway and its workers run at 0."""
_LENGTH: Final = struct.Struct("!Q")
_ONE_THREAD: Final = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class JobError(Exception):
    """A job ended, or its time was over, before its first result. The text says what became of it."""


async def run(work: Work[Argument, Result], argument: Argument, limit_s: float) -> Result:
    """The last result that `work(argument)` yields within `limit_s`, its process's start included.

    JobError where there is none; an error after the first result ends the job, and that result stands. The
    process is gone when this returns, raises or is cancelled.
    """
    ours, theirs = os.pipe()
    try:
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "serving.runtime.job", str(theirs),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
            pass_fds=(theirs,), env=_environment(),
        )  # fmt: skip
    except BaseException:
        os.close(ours)
        raise
    finally:
        os.close(theirs)
    results: list[Result] = []
    said = asyncio.create_task(_last_line(child.stderr))
    try:
        await asyncio.wait_for(_collect(child, ours, pickle.dumps((work, argument)), results), limit_s)
        over = ""
    except TimeoutError:
        over = f"no result within {limit_s:g} s"
    finally:
        if child.returncode is None:
            child.kill()
        status = await asyncio.shield(child.wait())
        text = await asyncio.shield(said)
    if not results:
        raise JobError(over or text or f"its process ended with status {status}")
    return results[-1]


def run_blocking(work: Work[Argument, Result], argument: Argument, limit_s: float) -> Result:
    """`run` where there is no event loop."""
    return asyncio.run(run(work, argument, limit_s))


async def _collect(child: asyncio.subprocess.Process, pipe: int, task: bytes, results: list[Any]) -> None:
    """Gives the child its task, and adds what it yields to `results` until it ends. Closes `pipe`."""
    reader = asyncio.StreamReader()
    with os.fdopen(pipe, "rb", 0) as stream:
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), stream
        )
        try:
            await _give(child.stdin, task)
            while True:
                (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
                results.append(pickle.loads(await reader.readexactly(length)))  # noqa: S301  # our own child's
        except asyncio.IncompleteReadError:
            await child.wait()  # it ends, and says why
        finally:
            transport.close()


async def _give(stdin: asyncio.StreamWriter | None, task: bytes) -> None:
    if stdin is None:
        return
    try:
        stdin.write(task)
        await stdin.drain()
        stdin.close()
    except (BrokenPipeError, ConnectionResetError):
        pass  # it has ended already, and will be asked why


async def _last_line(stderr: asyncio.StreamReader | None) -> str:
    """Of what it said until it ended: the error that ended it."""
    said = await stderr.read() if stderr else b""
    lines = said.decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else ""


def _environment() -> dict[str, str]:
    """One thread, and the modules of this process: the child unpickles its work by their names."""
    paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
    return {**os.environ, **dict.fromkeys(_ONE_THREAD, "1"), "PYTHONPATH": paths}


def _work(pipe: int) -> None:
    os.nice(NICENESS)
    work, argument = pickle.loads(sys.stdin.buffer.read())  # noqa: S301  # our own parent's
    with os.fdopen(pipe, "wb") as results:
        for result in work(argument):
            content = pickle.dumps(result)
            results.write(_LENGTH.pack(len(content)) + content)
            results.flush()


if __name__ == "__main__":
    _work(int(sys.argv[1]))
