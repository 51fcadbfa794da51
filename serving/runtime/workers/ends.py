"""The ends of all workers that a process has started, and how they all end."""

import asyncio
from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import Final, Generic, TypeVar

from serving.runtime.workers.contract import WorkerEnd

STOP_GRACE_S: Final = 5.0
"""What `stop` gives workers to finish their batch and exit before it kills them."""
KILLED_WAIT_S: Final = 4.0
"""For how long it then waits for them: nothing withstands SIGKILL but a driver that holds a process up."""

_End = TypeVar("_End", bound=WorkerEnd)


class Ends(Generic[_End]):
    """Of workers that may live; those that have ended are forgotten with the next one."""

    def __init__(self) -> None:
        self._ends: set[_End] = set()

    def add(self, end: _End) -> None:
        self._ends = {each for each in self._ends if not each.ended.is_set()}
        self._ends.add(end)

    def of(self, slice_name: str) -> list[_End]:
        """Return those of a slice; a worker that is being replaced is among them."""
        return [each for each in self._ends if each.slice == slice_name]

    def __iter__(self) -> Iterator[_End]:
        return iter([*self._ends])

    def kill(self, reason: str) -> None:
        """End all of them now."""
        for each in self:
            each.kill(reason)

    async def stop(self, grace_s: float) -> None:
        """Let all finish their batch within `grace_s`, then kill them; return when each has ended."""
        await end_within([*self], grace_s)


async def end_within(ends: Collection[WorkerEnd], grace_s: float) -> None:
    """Let these finish their batch within `grace_s`, then kill them; return when each has ended."""
    for each in ends:
        each.close()
    if not await _all_end(ends, grace_s):
        for each in ends:
            each.kill()
        await _all_end(ends, KILLED_WAIT_S)


async def _all_end(ends: Collection[WorkerEnd], wait_s: float) -> bool:
    with suppress(TimeoutError):
        async with asyncio.timeout(wait_s):
            for each in ends:
                await each.ended.wait()
    return all(each.ended.is_set() for each in ends)
