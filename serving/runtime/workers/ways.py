"""The way to a worker: on one machine, a pair of sockets and two areas of shared memory."""

import asyncio
import socket
from contextlib import ExitStack
from typing import Protocol

from serving.runtime.workers.contract import WorkerEnd, WorkerLog, WorkerProcess
from serving.runtime.workers.link import Link, LinkEvents
from serving.values.slice_specs import SliceSpec
from serving.worker.frames.shared import SharedArea


class Way(Protocol):
    """One way, made before its worker starts."""

    @property
    def given(self) -> tuple[int, ...]:
        """The descriptors for the worker: its socket, and its areas if it has any."""
        ...

    def end(self, child: WorkerProcess) -> WorkerEnd:
        """Return this side's end; the worker has started and has its descriptors."""
        ...

    async def connect(self) -> None:
        """Begin to hear the worker."""
        ...

    def close(self) -> None:
        """Close all of it: no worker was started."""
        ...


class Ways(Protocol):
    """Makes the ways to workers."""

    async def make(self, spec: SliceSpec) -> Way:
        """Return the way to the slice's next worker. Raises OSError if there can be none."""
        ...

    def failed(self, spec: SliceSpec, reason: str) -> None:
        """Say that the slice's worker could not be started."""
        ...


class SocketPairs:
    """Ways to workers whose links are in this process; `events` hears of each."""

    def __init__(self, events: LinkEvents, log: WorkerLog | None) -> None:
        self._events = events
        self._log = log

    async def make(self, spec: SliceSpec) -> Way:
        """See `Ways`."""
        return _Pair(spec, self._events, self._log)

    def failed(self, spec: SliceSpec, reason: str) -> None:
        """See `Ways`."""
        Link(spec.name, self._events).fail_to_start(reason)


class _Pair:
    def __init__(self, spec: SliceSpec, events: LinkEvents, log: WorkerLog | None) -> None:
        self._slice = spec.name
        self._events = events
        self._log = log
        with ExitStack() as made:
            self._sock, self._far = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
            made.callback(self._sock.close)
            made.callback(self._far.close)
            self._sock.setblocking(False)
            areas: list[SharedArea] = []
            for way in ("requests", "answers"):
                areas.append(SharedArea.create(f"penstock-{spec.name}-{way}"))
                made.callback(areas[-1].close)
            self._made = made.pop_all()
        self._areas = areas[0], areas[1]
        self.given = (self._far.fileno(), areas[0].fd, areas[1].fd)

    def end(self, child: WorkerProcess) -> Link:
        """See `Way`."""
        self._made.pop_all()
        self._far.close()
        self._link = Link(self._slice, self._events, child, self._areas)
        if self._log is not None:
            self._link.on_raised = self._log.raised
        return self._link

    async def connect(self) -> None:
        """See `Way`."""
        loop = asyncio.get_running_loop()
        await loop.create_unix_connection(lambda: self._link, sock=self._sock)

    def close(self) -> None:
        """See `Way`."""
        self._made.close()
