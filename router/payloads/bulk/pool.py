"""The bulk processes of a gateway, and the thread for zlib beside them."""

import asyncio
import logging
import os
import pickle
import sys
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final, TypeVar

from router.payloads.bulk.jobs import JOBS, LENGTH, result_of
from router.protocol.account import Account
from router.tensors.parts.errors import memory_full
from serving.policy.limits.memory import SMALL_BYTES, Level
from serving.runtime.environment import ONE_THREAD, environment
from serving.values.specs import Limits

R = TypeVar("R")

JOB_S: Final = 20.0
"""A job that takes longer is given up, with its process: 16 MB of JSON take a second."""
HELD_SHARE: Final = 0.25
"""Of `limits.held_mb`, what may wait for bulk processes; beyond it, requests are turned away."""
TRIES: Final = 2
"""How often a job is begun whose process ended: another's job may have ended it."""

_LIMIT_BYTES = 1 << 20  # of a reader's buffer, before it pauses

_ENDED = (OSError, EOFError, TimeoutError, RuntimeError)
"""How a process's end shows; uvloop raises RuntimeError for a pipe that has closed."""

logger = logging.getLogger(__name__)


def process_count() -> int:
    """Return how many processes to start: one, and another for each eight cores. Large requests are few, and
    each process holds 60 MB."""
    return 1 + len(os.sched_getaffinity(0)) // 8


class BulkError(Exception):
    """No process has finished the job; the text says why."""


class Bulk:
    """Runs jobs (`router/payloads/bulk/jobs.py`), each on whichever process is free. Before `start`, and with
    no processes, they run where they are asked for, in the event loop."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._held_max = int(limits.held_bytes * HELD_SHARE)
        self._held = 0
        self._beside = 0  # of applications' requests that are being read
        self.level: Callable[[], Level] = lambda: Level.EASY  # of the memory that clients hold
        self.account = Account(limits)  # of that memory
        self._free: asyncio.Queue[_Process] = asyncio.Queue()
        self._processes: list[_Process] = []
        self._threads = ThreadPoolExecutor(1, "penstock-zlib")
        self._running: set[asyncio.Task[Any]] = set()

    def use(self, account: Account) -> None:
        """Count what clients hold in this account."""
        self.account = account
        self.level = lambda: account.level

    @property
    def held_bytes(self) -> int:
        """Of requests and answers that are here."""
        return self._held + self._beside

    async def start(self, count: int) -> None:
        """Start `count` processes; they import what they need while the gateway goes on."""
        for _ in range(count):
            process = _Process()
            self._processes.append(process)
            self._free.put_nowait(process)
            await process.start()

    async def run(self, name: str, size: int, *arguments: object) -> Any:
        """Return the result of the job of that name; its order has about `size` bytes.

        Raises what the job raises (RequestError), the MEMORY_FULL error if too much waits, or BulkError if no
        process finishes it. If cancelled, the job still runs to its end, for nothing.
        """
        if not self._processes:
            return JOBS[name](*arguments)
        self._take(size)
        order = pickle.dumps((name, arguments), pickle.HIGHEST_PROTOCOL)
        task = asyncio.ensure_future(self._perform(order))
        self._running.add(task)
        task.add_done_callback(lambda done: self._end(done, size))
        return result_of(await asyncio.shield(task))

    def admit(self, size: int) -> None:
        """Raise RequestError (MEMORY_FULL) if a request of `size` bytes is not taken: it needs work beside
        the event loop, or such work made it that large. Such work stops first."""
        if size > SMALL_BYTES and self.level() >= Level.PAUSE:
            raise memory_full(
                "the gateway holds 80% or more of what all its clients may make it hold (limits.held_mb): "
                "until it holds less, it takes no compressed bodies, no JSON of over 64 KB, and no more than "
                "1 MB of inputs in shared memory"
            )

    def hold(self, size: int) -> None:
        """Count so many more bytes (fewer, if negative) of requests that the application reads. Raises
        RequestError (MEMORY_FULL) if these hold too much."""
        if size > 0 and self._beside + size > self._held_max:
            sentence = f"{self._beside} bytes of requests are being read; at most {self._held_max} may be"
            raise memory_full(f"{sentence} (a quarter of limits.held_mb)")
        self._beside += size

    def begin(self, work: Coroutine[Any, Any, R], then: Callable[["asyncio.Task[R]"], None]) -> None:
        """Start a coroutine, and call back with its task when it has ended."""
        task = asyncio.ensure_future(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        task.add_done_callback(then)

    async def in_thread(self, size: int, work: Callable[..., R], *arguments: object) -> R:
        """Return the result of zlib `work` on a large body of `size` bytes. zlib holds no lock, so the event
        loop goes on. Raises RequestError (MEMORY_FULL) if too much waits."""
        self._take(size)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)
        finally:
            self._held -= size

    async def in_turns(self, size: int, steps: Iterable[object]) -> None:
        """Carry out the steps, each in its own turn of the event loop; `size` bytes are held meanwhile.
        Raises what a step raises, and RequestError (MEMORY_FULL) if too much waits."""
        self._take(size)
        try:
            for _ in steps:
                await asyncio.sleep(0)  # others first
        finally:
            self._held -= size

    async def close(self) -> None:
        """End the processes; jobs that run are given up."""
        for task in self._running:
            task.cancel()
        for process in self._processes:
            await process.end()
        self._processes.clear()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _take(self, size: int) -> None:
        if self._held and self._held + size > self._held_max:
            sentence = f"{self._held} bytes of large requests are being read; at most {self._held_max} may be"
            raise memory_full(f"{sentence} (a quarter of limits.held_mb)")
        self._held += size

    def _end(self, task: "asyncio.Task[bytes]", size: int) -> None:
        self._held -= size
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # the asker may have left

    async def _perform(self, order: bytes) -> bytes:
        reason = ""
        for _ in range(TRIES):
            process = await self._free.get()
            try:
                return await process.ask(order)
            except _ENDED as error:
                reason = f"a bulk process has ended during a job: {error!r}"
                logger.warning("%s; another one is started", reason)
                await process.end()
            except asyncio.CancelledError:
                await process.end()  # its answer would be taken for the next job's
                raise
            finally:
                self._free.put_nowait(process)
        raise BulkError(reason)


class _Process:
    """One process and its pipes, started again where it has ended."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start the process. Raises OSError if the system has no room for it."""
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", "router.payloads.bulk", str(os.getpid()),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            env=environment(ONE_THREAD), start_new_session=True, limit=_LIMIT_BYTES,
        )  # fmt: skip

    async def ask(self, order: bytes) -> bytes:
        """Return its answer; one of _ENDED where it gives none."""
        if self._process is None:
            await self.start()
        process = self._process
        assert process is not None  # noqa: S101  # started above
        orders, answers = process.stdin, process.stdout
        assert orders is not None  # noqa: S101  # both are pipes
        assert answers is not None  # noqa: S101
        async with asyncio.timeout(JOB_S):
            orders.write(LENGTH.pack(len(order)))
            orders.write(order)
            await orders.drain()
            (size,) = LENGTH.unpack(await answers.readexactly(LENGTH.size))
            return await answers.readexactly(size)

    async def end(self) -> None:
        """Kill it, and wait until it is gone."""
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
