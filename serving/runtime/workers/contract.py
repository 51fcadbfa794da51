"""What starts workers, what hears of them, and what each promises the other."""

import asyncio
from collections.abc import Collection
from typing import Protocol

from serving.values.slice_specs import SliceSpec
from serving.worker.frames.orders import Raised


class WorkerProcess(Protocol):
    """The process behind a link, on this machine or on a node."""

    pid: int

    def kill(self) -> None: ...


class WorkerLog(Protocol):
    """Takes what models raise, and what workers print."""

    def raised(self, slice_name: str, raised: Raised) -> None: ...

    def printed(self, slice_name: str, stream: str, model: str, line: str) -> None: ...


class WorkerEnd(Protocol):
    """What is left of a worker in the process that started it: a link, or on a node a report to the
    gateway."""

    slice: str
    ended: asyncio.Event
    overran: bool

    @property
    def pid(self) -> int:
        """The worker's process id, 0 if it is not known."""
        ...

    def kill(self, reason: str = "") -> None:
        """End the worker now; `worker_lost` follows, with the reason if there is one."""
        ...

    def blame(self, reason: str) -> None:
        """Give the worker up: whatever it does from now on, it is lost for this reason."""
        ...

    def close(self) -> None:
        """Ask the worker to finish what it was sent and exit."""
        ...

    def let_go(self) -> None:
        """Leave the worker to the next gateway: its connection ends, and it counts as ended here."""
        ...

    def exited(self, how: str, crashed: bool = False) -> None:
        """Note that the process is gone and reaped."""
        ...


class Workers(Protocol):
    """The workers of slices: children of this process, or processes on nodes."""

    async def start(self, spec: SliceSpec) -> None:
        """Start the slice's worker: `worker_ready` or `worker_lost` follows. Nothing while stopping."""
        ...

    def release(self, slice_name: str) -> None:
        """Give back the share of a slice that is gone, once its worker has ended."""
        ...

    def kill(self, slice_name: str, reason: str) -> None:
        """End the slice's worker now, ready or not; `worker_lost` follows, with the reason."""
        ...

    def end_all(self, reason: str) -> None:
        """End all workers now: this process is about to end."""
        ...

    async def check(self, slice_name: str, pid: int) -> None:
        """End the slice's worker if it computes outside of its share."""
        ...

    async def ended(self, slice_name: str) -> None:
        """Wait until no process of the slice that was started before lives any more."""
        ...

    async def let_go(self, slices: Collection[str]) -> None:
        """Leave the workers of these slices to the next gateway; those that cannot wait finish their batch
        and end. `worker_lost` follows for each."""
        ...

    async def stop(self, grace_s: float) -> None:
        """End all workers: they may finish their batch within `grace_s`, then they are killed.

        Returns when each has ended and was reported lost. No worker starts after it.
        """
        ...
