"""Starts worker processes, watches them, reaps them. When to start one again is `control`'s business."""

import asyncio
import logging
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Final

from serving.runtime.slicing.contract import Setting, SlicingError
from serving.runtime.slicing.opening import PreparedShares, Shares
from serving.runtime.workers.contract import WorkerEnd, WorkerLog
from serving.runtime.workers.ends import STOP_GRACE_S, Ends, end_within
from serving.runtime.workers.link import LinkEvents
from serving.runtime.workers.model_log import Printed
from serving.runtime.workers.orphans import take_over
from serving.runtime.workers.rehearsing import RehearsalHosts
from serving.runtime.workers.spawning import Child, Pipes, fingerprint, spawn
from serving.runtime.workers.ways import SocketPairs, Way, Ways
from serving.values.slice_specs import SliceSpec, WorkersSpec
from serving.worker.process.orphans import address

END_WAIT_S: Final = 5.0
"""How long an MPS daemon may take to end the work of a worker that is to be killed."""

STOPS: Final = "was ended: the gateway stops"

_UNBOUND: Final = WorkersSpec()

logger = logging.getLogger(__name__)


class WorkerProcesses:
    """Workers that are children of this process, whoever hears of them. A `Workers`."""

    def __init__(
        self, ways: Ways, shares: Shares | None, log: WorkerLog | None, workers: WorkersSpec = _UNBOUND
    ) -> None:
        """See `Supervisor`. `ways`: to the workers."""
        self._ways = ways
        self._shares = shares or PreparedShares()
        self._opening: dict[str, str] = {}  # slices with a worker that begins; why it is to end
        self._log = log
        self._workers = workers
        self._ends = Ends[WorkerEnd]()
        self._children: dict[Child, tuple[WorkerEnd, list[Printed]]] = {}
        self._ending: set[asyncio.Future[None]] = set()
        self._stopping = False

    async def start(self, spec: SliceSpec) -> None:
        """Spawn the slice's worker: `worker_ready` or `worker_lost` follows. Nothing while stopping.

        The slice's worker of an earlier gateway is taken over, if there is one.
        """
        if self._stopping:
            return
        loop = asyncio.get_running_loop()
        pipes = Pipes()
        way: Way | None = None
        self._opening[spec.name] = ""
        try:
            setting = await self._shares.open(spec)
            way = await self._ways.make(spec)
            if self._log is not None:
                pipes.open()
            child = await self._begin(spec, setting, way, pipes)
        except (OSError, SlicingError) as error:
            pipes.close()
            if way is not None:
                way.close()
            self._ways.failed(spec, str(error))
            return
        finally:
            del self._opening[spec.name]
        end = way.end(child)
        printed = pipes.listen(spec.name, self._log) if self._log is not None else []
        self._ends.add(end)
        self._children[child] = end, printed
        loop.add_reader(child.pidfd, self._reap, child)
        await way.connect()

    async def _begin(self, spec: SliceSpec, setting: Setting, way: Way, pipes: Pipes) -> Child:
        """Take a worker over or start one, and return its keeper. Raises OSError or SlicingError if there is
        none, or if the worker has to end before it begins."""
        workers = self._workers
        if spec.part is not None or not workers.owner:  # a share of a GPU goes with what has cut it
            workers = replace(workers, orphan_s=0.0)
        child: Child | None = None
        if workers.orphan_s:
            at, by = address(workers.owner, spec.name), fingerprint(spec, setting, workers)
            child = await asyncio.to_thread(take_over, at, by, way.given, pipes)
        if reason := self._opening[spec.name] or (STOPS if self._stopping else ""):
            if child is not None:
                child.kill()
                child.let_go()
            raise SlicingError(reason)
        if child is None:
            return spawn(spec, setting, workers, way.given, pipes)
        logger.info("slice %s: the worker of an earlier gateway was taken over", spec.name)
        return child

    def release(self, slice_name: str) -> None:
        """Give back the share of a slice that is gone, once its worker has ended."""
        self._shares.close(slice_name)

    def kill(self, slice_name: str, reason: str) -> None:
        """End the slice's worker now, ready or not; `worker_lost` follows, with the reason."""
        if slice_name in self._opening:
            self._opening[slice_name] = reason
        for end in self._ends.of(slice_name):
            if end.ended.is_set():
                continue
            if self._shares.is_shared(slice_name):
                ending = asyncio.ensure_future(self._end_shared(end, reason))
                self._ending.add(ending)
                ending.add_done_callback(self._ending.discard)
            else:
                end.kill(reason)

    async def _end_shared(self, end: WorkerEnd, reason: str) -> None:
        """End a worker's work at its device, then the worker; the worker at least, before long."""
        end.blame(reason)  # without its device it may end before it is killed
        ended = asyncio.ensure_future(self._shares.end(end.slice, end.pid))
        self._ending.add(ended)
        ended.add_done_callback(self._ending.discard)
        await asyncio.wait([ended], timeout=END_WAIT_S)
        end.kill(reason)

    def end_all(self, reason: str) -> None:
        """See `Workers`."""
        self._ends.kill(reason)

    async def check(self, slice_name: str, pid: int) -> None:
        """End the slice's worker if it computes outside of its share."""
        if self._shares.is_shared(slice_name) and (wrong := await self._shares.check(slice_name, pid)):
            self.kill(slice_name, f"was ended: {wrong}")

    async def ended(self, slice_name: str) -> None:
        """Wait until no process of the slice that was started before lives any more."""
        for end in self._ends.of(slice_name):
            await end.ended.wait()

    async def stop(self, grace_s: float = STOP_GRACE_S) -> None:
        """End all workers: they may finish their batch within `grace_s`, then they are killed.

        Returns when each has ended, been reaped and reported lost. No worker starts after it.
        """
        self._stopping = True
        await self._ends.stop(grace_s)
        if self._ending:
            await asyncio.wait(self._ending, timeout=END_WAIT_S)
        await self._shares.stop()

    @property
    def slices(self) -> frozenset[str]:
        """Those with workers that live."""
        return frozenset(end.slice for end, _ in self._children.values())

    async def let_go(self, slices: Collection[str], grace_s: float = STOP_GRACE_S) -> None:
        """See `Workers`. Those that end have `grace_s` for their batch."""
        for child, (end, _) in [*self._children.items()]:
            if child.waits and end.slice in slices:
                _, printed = self._forget(child)
                child.let_go()
                for each in printed:
                    each.close()
                end.let_go()
        await end_within([end for end in self._ends if end.slice in slices], grace_s)

    def _forget(self, child: Child) -> tuple[WorkerEnd, list[Printed]]:
        asyncio.get_running_loop().remove_reader(child.pidfd)
        return self._children.pop(child)

    def _reap(self, child: Child) -> None:
        end, printed = self._forget(child)
        how = child.reap()
        end.overran = bool(child.overran)
        for each in printed:  # its last words first
            each.close()
        end.exited(how, crashed=child.crashed)


class Supervisor(WorkerProcesses):
    """All workers of this gateway on its machine; `events` hears of each through its link."""

    def __init__(
        self,
        events: LinkEvents,
        shares: Shares | None = None,
        log: WorkerLog | None = None,
        workers: WorkersSpec = _UNBOUND,
        profiles: Path = Path("profiles"),
    ) -> None:
        """Watch the workers of these shares, by default of cores.

        `log` takes what models raise and print; without it workers print where this process does. `workers`:
        what each is given and held to. `profiles`: the folder by which rehearsed workers answer.
        """
        super().__init__(SocketPairs(events, log), shares, log, workers)
        self._events = events
        self._rehearsals = RehearsalHosts(profiles)

    async def start(self, spec: SliceSpec) -> None:
        """See `WorkerProcesses.start`; a rehearsed slice's worker begins in the host of all such workers."""
        if not spec.rehearsed:
            await super().start(spec)
        elif not self._stopping:
            link, ours = self._rehearsals.begin(spec, self._events)
            if ours is not None:
                self._ends.add(link)
                await asyncio.get_running_loop().create_unix_connection(lambda: link, sock=ours)

    async def stop(self, grace_s: float = STOP_GRACE_S) -> None:
        """See `WorkerProcesses.stop`; the host ends too."""
        await super().stop(grace_s)
        self._rehearsals.stop()
