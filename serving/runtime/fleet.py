"""The control plane's driver: worker events in, worker commands out.

Like the gateway it decides nothing: each event is one synchronous call of control, whose commands are
carried out after the call has returned.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from serving.control.commands import (
    Command,
    EndWorker,
    KeepProfile,
    LoadReplica,
    Measure,
    Route,
    StartWorker,
    Unroute,
    Withdraw,
)
from serving.control.control import Control
from serving.policy.freshness import Freshness
from serving.profile.curve import Profile
from serving.profile.latency import Latency
from serving.profile.store import ProfileStore
from serving.runtime.alarm import Alarm
from serving.runtime.clock import now_us
from serving.runtime.gateway import Gateway
from serving.runtime.link import Link
from serving.runtime.slicing.contract import Setting
from serving.runtime.slicing.cores import core_set
from serving.runtime.supervisor import Supervisor
from serving.scheduler.commands import FlagProfile
from serving.specs import SliceSpec
from serving.worker.batches import BatchResult
from serving.worker.orders import Loaded, Measured, MeasureOrder

logger = logging.getLogger(__name__)


class Fleet:
    """Workers and their replicas, as control wants them. A `serving.runtime.link.LinkEvents`."""

    def __init__(
        self,
        control: Control,
        gateway: Gateway,
        store: ProfileStore,
        prepare: Callable[[SliceSpec], Setting] = core_set,
    ) -> None:
        """`prepare`: as the supervisor's."""
        self.control = control
        self.on_lost: Callable[[str], None] = lambda _slice: None
        self.on_change: Callable[[], None] = lambda: None
        self._gateway = gateway
        self._store = store
        self._supervisor = Supervisor(self, prepare)
        self._links: dict[str, Link] = {}
        self._alarm = Alarm(self._tick)
        self._stop = asyncio.Event()
        self._tasks: asyncio.TaskGroup | None = None
        gateway.on_stuck = self._worker_stuck
        gateway.on_flag = self._profile_flagged

    async def run(self) -> None:
        """Keep the workers until `stop`; all of them have ended when this returns."""
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                now = now_us()
                self._execute(self.control.start(now), now)
                await self._stop.wait()
        finally:
            self._alarm.close()
            await self._supervisor.stop()

    def stop(self) -> None:
        """End all workers."""
        self.control.stop()
        self._stop.set()

    def pid(self, slice_name: str) -> int | None:
        """The worker's process id, None where there is none."""
        link = self._links.get(slice_name)
        return link.pid if link is not None else None

    # events of links

    def worker_ready(self, link: Link) -> None:
        """A worker process answers."""
        now = now_us()
        self._links[link.slice] = link
        self._execute(self.control.worker_ready(link.slice, now), now)

    def replica_loaded(self, link: Link, loaded: Loaded) -> None:
        """A replica is loaded and warm."""
        now = now_us()
        cost = (loaded.load_us, loaded.memory_bytes)
        self._execute(self.control.replica_loaded(link.slice, loaded.replica, cost, now), now)

    def replica_failed(self, link: Link, replica: int, message: str) -> None:
        """A replica could not be loaded or measured."""
        now = now_us()
        self._settle_measurement(link.slice, replica)
        self._execute(self.control.replica_failed(link.slice, replica, message, now), now)

    def batch_done(self, link: Link, result: BatchResult) -> None:  # noqa: ARG002 batch ids are unique
        """Passed on to the gateway."""
        self._gateway.batch_done(result)

    def batch_failed(self, link: Link, batch_id: int, message: str) -> None:  # noqa: ARG002
        """Passed on to the gateway."""
        self._gateway.batch_failed(batch_id, message)

    def measured(self, link: Link, found: Measured) -> None:
        """A measurement is done."""
        now = now_us()
        self._settle_measurement(link.slice, found.replica)
        batch = (found.rows, found.size)
        self._execute(self.control.measured(link.slice, batch, found.latencies_us, now), now)

    def worker_lost(self, link: Link, reason: str) -> None:
        """A worker process is gone."""
        now = now_us()
        self._links.pop(link.slice, None)
        self.on_lost(link.slice)
        self._execute(self.control.worker_lost(link.slice, reason, now), now)

    # steps

    def _settle_measurement(self, slice_name: str, replica: int) -> None:
        if self.control.slices[slice_name].measuring == replica:
            self._gateway.release(slice_name)

    def _worker_stuck(self, slice_name: str, reason: str) -> None:
        now = now_us()
        self._execute(self.control.worker_stuck(slice_name, reason), now)

    def _profile_flagged(self, flag: FlagProfile) -> None:
        now = now_us()
        replica = self.control.slices[flag.slice].replicas.get(flag.replica)
        if replica is not None and replica.freshness is not flag.freshness:
            level = logging.INFO if flag.freshness is Freshness.FRESH else logging.WARNING
            what = f"{replica.model} {replica.variant} on slice {flag.slice}"
            logger.log(level, "the profile of %s is %s, as its batches say", what, flag.freshness.value)
        self._execute(self.control.profile_flagged(flag.slice, flag.replica, flag.freshness, now), now)

    def _tick(self, now: int) -> None:
        idle = [name for name in self.control.slices if self._gateway.is_idle(name)]
        self._execute(self.control.tick(now, idle), now)

    def _execute(self, commands: Sequence[Command], now: int) -> None:
        for command in commands:
            match command:
                case StartWorker(slice=name):
                    self._start(name)
                case EndWorker(slice=name, reason=reason):
                    self._supervisor.kill(name, f"was ended: {reason}")
                case LoadReplica(slice=name, replica=replica, model=model, variant=variant):
                    self._links[name].load(replica, self._gateway.models[model].spec, variant)
                case Measure(slice=name, replica=replica, measurement=wanted):
                    self._gateway.hold(name)
                    sample = (wanted.rows, wanted.size, wanted.repeats, wanted.budget_us)
                    self._links[name].measure(MeasureOrder(replica, *sample))
                case Route(slice=name, replica=replica, model=model, variant=variant, profile=profile):
                    link = self._links[name]
                    self._gateway.replica_up(link, model, variant, replica, Latency(profile))
                case Unroute(slice=name, model=model, variant=variant, reason=reason):
                    self._gateway.replica_down(name, model, variant, reason)
                case Withdraw(slice=name, reason=reason):
                    self._gateway.slice_down(name, reason)
                case KeepProfile(profile=profile):
                    self._keep(profile)
        self._alarm.set(self.control.wake_us, now)
        self.on_change()

    def _keep(self, profile: Profile) -> None:
        # In a thread: a slow disk must not hold up the event loop.
        writing = asyncio.get_running_loop().run_in_executor(None, self._store.write_local, profile)
        writing.add_done_callback(_report_unkept)

    def _start(self, name: str) -> None:
        if self._tasks is not None:
            self._tasks.create_task(self._supervisor.start(self.control.slices[name].spec))


def _report_unkept(writing: asyncio.Future[Path]) -> None:
    """A profile that cannot be stored costs a measurement at the next start, nothing now."""
    error = None if writing.cancelled() else writing.exception()
    if error is not None:
        logger.warning("a measured profile could not be stored: %s", error)
