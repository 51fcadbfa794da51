"""The control plane's driver: worker events in, worker commands out.

Like the gateway it decides nothing: each event is one synchronous call of control, whose commands are
carried out after the call has returned. What they bring about in the same instant (a model without open
requests that is let go) comes back in the loop's next turn.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace

from serving.control.commands import (
    Cold,
    Command,
    EndWorker,
    Expect,
    FindCapacity,
    ForgetModel,
    Isolate,
    KeepProfile,
    LoadReplica,
    Look,
    Measure,
    Replan,
    RetireModel,
    Route,
    ServeModel,
    SolveScaling,
    StartWorker,
    StopWorker,
    UnloadReplica,
    Unroute,
    Withdraw,
)
from serving.control.control import Control
from serving.control.failing import FailingLoads
from serving.control.rollouts.rollout import Progress, RolloutState
from serving.control.state.desired import DesiredState
from serving.control.state.observed import KnownProfiles
from serving.control.state.replicas import LOADED, ReplicaRecord, ReplicaStatus, SliceRecord, WorkerStatus
from serving.policy.estimates.freshness import Freshness
from serving.policy.scaling.carried.capacity import Capacity
from serving.policy.scaling.slow.task import ScalingPlan
from serving.profile.derived.latency import Latency
from serving.profile.files.store import LOCAL, ProfileStore
from serving.runtime.calls.gateway import Gateway
from serving.runtime.clocks.alarm import Alarm
from serving.runtime.clocks.clock import now_us
from serving.runtime.draining import Draining
from serving.runtime.files.capacity_file import NAME, CapacityFile
from serving.runtime.files.keeping import keep
from serving.runtime.job import Work
from serving.runtime.observer import FleetObserver
from serving.runtime.scaling import ScalingJobs
from serving.runtime.slicing.opening import Shares
from serving.runtime.workers.everywhere import WorkersEverywhere
from serving.runtime.workers.gpu_memory import GpuMemory
from serving.runtime.workers.link import Link
from serving.runtime.workers.model_log import ModelLog
from serving.runtime.workers.supervisor import Supervisor
from serving.scheduler.commands import FlagProfile
from serving.values.objectives import ScalingSpec
from serving.values.slice_specs import SliceSpec, WorkersSpec
from serving.worker.frames.batches import BatchResult
from serving.worker.frames.orders import Loaded, MeasuredBatches, MeasureOrder

logger = logging.getLogger(__name__)

_UNBOUND = WorkersSpec()


class Fleet:
    """Workers and their replicas, as control wants them. A `serving.runtime.workers.link.LinkEvents`."""

    def __init__(
        self,
        control: Control,
        gateway: Gateway,
        store: ProfileStore,
        shares: Shares | None = None,
        find_capacity: Work[FindCapacity, Capacity] | None = None,
        workers: WorkersSpec = _UNBOUND,
    ) -> None:
        """Create a fleet. `shares`, `workers`: as for the supervisor. `find_capacity`: simulates the capacity
        of replicas (`serving.simulation.tables`); without it the capacity is guessed."""
        self.control = control
        self.observer: FleetObserver | None = None
        self.on_change: Callable[[], None] = lambda: None
        self.on_replan: Callable[[str], None] = lambda _reason: None
        self.free_memory: Callable[[], int] = lambda: 0
        self.weigh: Callable[[int], Awaitable[int]] = _unknown
        self._gpu_memory = GpuMemory()
        self._changes = asyncio.Event()
        self._gateway = gateway
        self._store = store
        self.model_log = ModelLog()
        self.workers = WorkersEverywhere(Supervisor(self, shares, self.model_log, workers, store.folder))
        self._keeps_spares = workers.spare
        self._links: dict[str, Link] = {}
        self.specs: dict[str, SliceSpec] = {}  # of slices that were ever started, let go since or not
        self.failing = FailingLoads()  # of answering variants, by slice
        self._alarm = Alarm(self._tick)
        self._held: Mapping[str, SliceSpec] = {}  # what the observer has heard of
        self._draining = Draining(gateway, self._carry_out)
        self._stop = asyncio.Event()
        self._tasks: asyncio.TaskGroup | None = None
        self._jobs = ScalingJobs(find_capacity, CapacityFile(store.folder / LOCAL / NAME))
        self._jobs.on_planned = self._scaling_planned
        self._jobs.on_found = self._capacity_found
        gateway.on_stuck = self._worker_stuck
        gateway.on_flag = self._profile_flagged
        gateway.on_missed = self._missed
        gateway.on_retired = self._retired

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
            self._draining.close()
            await self._jobs.close()
            await self.workers.stop()
            self.model_log.close()

    def stop(self) -> None:
        """End all workers."""
        self.control.stop()
        self._stop.set()

    def want(self, wanted: DesiredState, by: Sequence[DesiredState] = ()) -> None:
        """Set the desired state from now on. `by` and what follows:
        `serving.control.control.Control.want`."""
        now = now_us()
        self._execute(self.control.want(wanted, now, by), now)

    def scale(self, spec: ScalingSpec) -> None:
        """Scale replicas with the load by this spec from now on."""
        now = now_us()
        self._execute(self.control.scale(spec, now), now)

    def roll_back(self, reason: str) -> None:
        """Give up the move that is under way."""
        now = now_us()
        self._execute(self.control.roll_back(now, reason), now)

    @property
    def movement(self) -> RolloutState:
        """Whether what is wanted is so."""
        return self.control.movement

    @property
    def progress(self) -> Progress:
        """How far what is wanted is so."""
        return self.control.progress

    @property
    def given_up(self) -> tuple[str, ...]:
        """Why the last move was given up; () where it was not."""
        return self.control.given_up

    def know(self, known: KnownProfiles) -> None:
        """Take stored profiles, for replicas that will be wanted."""
        self.control.know(known)

    async def changed(self) -> None:
        """Wait until the next event."""
        await self._changes.wait()

    def pid(self, slice_name: str) -> int | None:
        """Return the worker's process id, None where there is none."""
        link = self._links.get(slice_name)
        return link.pid if link is not None else None

    # what befalls devices

    def device_leaving(self, domain: str, reason: str) -> None:
        """Note that a device will soon be lost, with all that is lost together (`SliceSpec.domain`)."""
        now = now_us()
        self._execute(self.control.device_leaving(domain, reason, now), now)

    def device_lost(self, domain: str, reason: str) -> None:
        """Note that a device is lost, and end its workers if they still live."""
        now = now_us()
        names = self._slices_of(domain)
        self._execute(self.control.device_lost(domain, reason, now), now)
        for name in names:
            self.workers.kill(name, f"was ended: {reason}")

    def end_worker(self, slice_name: str, reason: str) -> None:
        """End the worker of a slice: its device says that it cannot go on. It is started again."""
        self.workers.kill(slice_name, f"was ended: {reason}")

    async def device_ended(self, domain: str) -> None:
        """Wait until no worker of a lost device lives any more."""
        for name in self._slices_of(domain):
            await self.workers.ended(name)

    def device_back(self, domain: str) -> None:
        """Note that a device can be used again, after `device_ended`, or that it will not be lost."""
        now = now_us()
        self._execute(self.control.device_back(domain, now), now)

    def _slices_of(self, domain: str) -> list[str]:
        return [name for name, spec in self.specs.items() if spec.domain == domain]

    # events of links

    def worker_ready(self, link: Link) -> None:
        """Note that a worker process answers."""
        record = self.control.slices.get(link.slice)
        if record is None or record.status is WorkerStatus.LOST:
            link.kill("was ended: its slice is gone")  # it was about to start as that was lost
            return
        now = now_us()
        self._links[link.slice] = link
        link.pieces_of, link.on_row = self._gateway.pieces_of, self._gateway.row_answered
        self._execute(self.control.worker_ready(link.slice, now), now)

    def replica_loaded(self, link: Link, loaded: Loaded) -> None:
        """Take a replica that is loaded and warm. On a GPU, check its share and its memory first."""
        record = self.control.slices.get(link.slice)
        on_gpu = record is not None and record.spec.device != "cpu" and not record.spec.rehearsed
        if on_gpu and self._tasks is not None:
            self._tasks.create_task(self._settle_on_gpu(link, loaded))
        else:
            self._take_loaded(link, loaded)

    async def _settle_on_gpu(self, link: Link, loaded: Loaded) -> None:
        """Take a replica on a GPU with the memory that its driver sees, unless its worker has no share."""
        await self.workers.check(link.slice, link.pid)
        if (spec := self.specs.get(link.slice)) is not None and spec.node:
            self._take_loaded(link, loaded)  # its GPU's driver is on another machine
            return
        used = await self.weigh(link.pid)
        if self._links.get(link.slice) is link:
            memory_bytes = self._gpu_memory.loaded(link.pid, loaded.replica, loaded.memory_bytes, used)
            self._take_loaded(link, replace(loaded, memory_bytes=memory_bytes))

    def _take_loaded(self, link: Link, loaded: Loaded) -> None:
        now = now_us()
        cost = (loaded.load_us, loaded.memory_bytes, loaded.held_us)
        busy = self._gateway.busy(link.slice)
        if self.observer is not None and (model := self._model(link.slice, loaded.replica)):
            self.observer.replica_loaded(model, loaded.load_us, loaded.kept)
        record = self.control.slices.get(link.slice)
        self._count_load(record, loaded.replica, failed=False)
        if loaded.differs and record is not None:
            self._doubt(record.replicas.get(loaded.replica), loaded.differs)
        self._execute(self.control.replica_loaded(link.slice, loaded.replica, cost, now, busy), now)

    def replica_failed(self, link: Link, replica: int, message: str) -> None:
        """Note that a replica could not be loaded or measured."""
        now = now_us()
        self._settle_measurement(link.slice, replica)
        if self.observer is not None and (model := self._model(link.slice, replica)):
            self.observer.replica_failed(model)
        self._count_load(self.control.slices.get(link.slice), replica, failed=True)
        self._execute(self.control.replica_failed(link.slice, replica, message, now), now)

    def replica_unloaded(self, link: Link, replica: int) -> None:
        """Note that a replica's memory is free again."""
        now = now_us()
        self._gpu_memory.unloaded(link.pid, replica)
        self._settle_measurement(link.slice, replica)
        if self.observer is not None and (model := self._model(link.slice, replica)):
            self.observer.replica_unloaded(model)
        self._execute(self.control.replica_unloaded(link.slice, replica, now), now)

    def batch_done(self, link: Link, result: BatchResult) -> None:  # noqa: ARG002 batch ids are unique
        """Pass a computed batch on to the gateway."""
        self._gateway.batch_done(result)

    def batch_failed(self, link: Link, batch_id: int, message: str, bad_input: bool = False) -> None:  # noqa: ARG002
        """Pass a failed batch on to the gateway."""
        self._gateway.batch_failed(batch_id, message, bad_input)

    def measured(self, link: Link, found: MeasuredBatches) -> None:
        """Note that a measurement is done."""
        now = now_us()
        self._settle_measurement(link.slice, found.replica)
        batch = (found.rows, found.size)
        commands = self.control.measured(link.slice, batch, found.latencies_us, now, found.disturbed)
        self._execute(commands, now)

    def worker_lost(self, link: Link, reason: str) -> None:
        """Note that a worker process is gone."""
        now = now_us()
        self._gpu_memory.ended(link.pid)
        self._links.pop(link.slice, None)
        record = self.control.slices.get(link.slice)
        ended = record is not None and record.status in (WorkerStatus.STOPPING, WorkerStatus.LOST)
        if self.observer is not None and not ended:
            self.observer.worker_restarted(link.slice)
        busy_with = self._busy_with(record) if record is not None else ()
        if link.overran and record is not None:
            self._say_overran(record, reason)
        if record is not None and not ended:
            self._count_load(record, record.loading, failed=True)
        free_bytes = self.free_memory() if self._keeps_spares else 0
        lost = self.control.worker_lost(link.slice, reason, now, busy_with, link.crashed, free_bytes)
        self._execute(lost, now)
        if link.slice not in self.control.slices:
            self.workers.release(link.slice)

    # steps

    def _model(self, slice_name: str, replica: int) -> str:
        """Return the name of a replica's model, "" where control has given the replica up."""
        record = self.control.slices.get(slice_name)
        found = record.replicas.get(replica) if record is not None else None
        return found.model if found is not None else ""

    def _count_load(self, record: SliceRecord | None, replica: int, *, failed: bool) -> None:
        """Count a load of a variant that answers; another plan does without what fails again and again."""
        found = record.replicas.get(replica) if record is not None else None
        if record is not None and found is not None and found.variant == found.served.answering_variant:
            place, model = record.spec.place, found.model
            if failed:
                self.failing.failed(place, model)
                return
            self.failing.loaded(place, model)
            for name, other in self.failing.found:  # of slices that are no more, and would load it as well
                spec = None if name in self.control.slices else self.specs.get(name)
                if other == model and spec is not None and spec.share == record.spec.share:
                    self.failing.loaded(name, model)

    def _busy_with(self, record: SliceRecord) -> set[str]:
        """Return the models that a slice's worker computes, loads or measures. A load and a batch run at the
        same time: if the worker dies then, its death may be due to either."""
        loading = self._model(record.spec.name, record.loading)
        measured = self._model(record.spec.name, record.measuring)
        return {self._gateway.computing(record.spec.name), loading, measured} - {""}

    def _say_overran(self, record: SliceRecord, reason: str) -> None:
        """Warn that a worker exceeded its memory limit. The warning names all its models, because the model
        at fault is unknown."""
        held = (ReplicaStatus.LOADING, *LOADED)
        models = sorted({each.model for each in record.replicas.values() if each.status in held})
        logger.warning("the worker of slice %s, with %s, %s", record.spec.name, ", ".join(models), reason)
        if self.observer is not None:
            for model in models:
                self.observer.worker_overran(model)

    def _doubt(self, replica: ReplicaRecord | None, how: str) -> None:
        """Note that a replica says that it is deterministic, and is not: its answers are not kept."""
        if replica is not None and self._gateway.doubts.add(replica.key, how):
            logger.warning(
                "no answer of %s %s is kept: it says that it is deterministic, but for one sample its %s",
                replica.model, replica.variant, how,
            )  # fmt: skip

    def _settle_measurement(self, slice_name: str, replica: int) -> None:
        record = self.control.slices.get(slice_name)
        if record is not None and record.measuring == replica:
            self._gateway.release(slice_name)

    def _worker_stuck(self, slice_name: str, reason: str) -> None:
        now = now_us()
        self._execute(self.control.worker_stuck(slice_name, reason, now), now)

    def _profile_flagged(self, flag: FlagProfile) -> None:
        now = now_us()
        record = self.control.slices.get(flag.slice)
        replica = record.replicas.get(flag.replica) if record is not None else None
        if replica is not None and replica.freshness is not flag.freshness:
            level = logging.INFO if flag.freshness is Freshness.FRESH else logging.WARNING
            what = f"{replica.model} {replica.variant} on slice {flag.slice}"
            logger.log(level, "the profile of %s is %s, as its batches say", what, flag.freshness.value)
        self._execute(self.control.profile_flagged(flag.slice, flag.replica, flag.freshness, now), now)

    def _missed(self, model: str, variant: str) -> None:
        now = now_us()
        busy = {name: self._gateway.busy(name) for name in self.control.slices}
        self._execute(self.control.missed(model, variant, self._gateway.rates(), busy, now), now)

    def _retired(self, model: str) -> None:
        now = now_us()
        self._execute(self.control.model_retired(model, now), now)

    def _look(self) -> None:
        now = now_us()
        self._execute(self.control.seen(self._gateway.seen(), now), now)

    def _scaling_planned(self, plan: ScalingPlan | None) -> None:
        now = now_us()
        self._execute(self.control.scaling_planned(plan, now), now)

    def _capacity_found(self, asked: FindCapacity, capacity: Capacity) -> None:
        now = now_us()
        self._execute(self.control.capacity_found(asked, capacity, now), now)

    def _tick(self, now: int) -> None:
        idle = [name for name in self.control.measured_slices if self._gateway.is_quiet(name)]
        self._execute(self.control.tick(now, idle), now)

    def _execute(self, commands: Sequence[Command], now: int) -> None:
        for command in commands:
            if not self._draining.holds(command):
                self._carry_out((command,))
        self._alarm.set(self.control.wake_us, now)
        if self.observer is not None:
            held = self.control.scaling.held()
            if held is not self._held:  # it is the same object until other slices are held
                self._held = held
                self.observer.slices_held({name: spec.price for name, spec in held.items()}, now)
        self._changes.set()
        self._changes = asyncio.Event()
        self.on_change()

    def _carry_out(self, commands: Sequence[Command]) -> None:
        for command in commands:
            if not self._tell_gateway(command) and not self._tell_jobs(command):
                self._tell_worker(command)

    def _tell_gateway(self, command: Command) -> bool:
        """Carry out what concerns the data plane; False where it does not."""
        gateway = self._gateway
        match command:
            case Route(slice=name, replica=replica, model=model, variant=variant, profile=profile):
                gateway.replica_up(self._links[name], model, variant, replica, Latency(profile))
            case Unroute(slice=name, model=model, variant=variant, reason=reason):
                gateway.replica_down(name, model, variant, reason)
            case Withdraw(slice=name, reason=reason, blamed=blamed):
                gateway.slice_down(name, reason, blamed)
            case ServeModel(model=served):
                before = gateway.models.get(served.name)
                if before is None or before.revision != served.revision:
                    self.failing.forget(served.name)
                gateway.serve(served)
            case RetireModel(model=model):
                gateway.retire(model)
            case ForgetModel(model=model):
                gateway.forget(model)
            case Cold(model=model, variant=variant, load_us=load_us, reason=reason):
                gateway.cold(model, variant, load_us, reason)
            case Expect(model=model, variant=variant, ready_us=ready_us):
                gateway.expect(model, variant, ready_us)
            case _:
                return False
        return True

    def _tell_jobs(self, command: Command) -> bool:
        """Carry out what the number of replicas is decided by; False where it is not that."""
        match command:
            case Look():
                asyncio.get_running_loop().call_soon(self._look)
            case SolveScaling(task=task):
                self._jobs.plan(task)
            case FindCapacity():
                self._jobs.fill(command)
            case _:
                return False
        return True

    def _tell_worker(self, command: Command) -> None:
        """Carry out what concerns a worker, or what is kept of it."""
        match command:
            case StartWorker(slice=name):
                self._start(name)
            case EndWorker(slice=name, reason=reason):
                self.workers.kill(name, f"was ended: {reason}")
            case StopWorker(slice=name):
                self._links[name].close()
            case LoadReplica(slice=name, replica=replica, variant=variant, spec=spec, revision=revision):
                self._links[name].load(replica, spec, variant, revision)
            case UnloadReplica(slice=name, replica=replica):
                self._links[name].unload(replica)
            case Measure(slice=name, replica=replica, measurement=wanted):
                self._gateway.hold(name)
                sample = (wanted.rows, wanted.size, wanted.repeats, wanted.budget_us)
                self._links[name].measure(MeasureOrder(replica, *sample))
            case KeepProfile(profile=profile):
                keep(self._store, profile)
            case Isolate(model=model, reason=reason):
                logger.warning("%s gets a worker process of its own: %s", model, reason)
            case Replan(reason=reason):
                said = "the desired state cannot be reached; `penstock place` may find another: %s"
                logger.warning(said, reason)
                asyncio.get_running_loop().call_soon(self.on_replan, reason)

    def _start(self, name: str) -> None:
        spec = self.control.slices[name].spec
        self.specs[name] = spec
        self._gateway.devices[name] = spec.device
        self._gateway.prices[name] = spec.price
        (self._gateway.rehearsed.add if spec.rehearsed else self._gateway.rehearsed.discard)(name)
        if self._tasks is not None:
            self._tasks.create_task(self.workers.start(spec))


async def _unknown(_pid: int) -> int:
    """Return the bytes that a process holds on GPUs, as far as is known without a driver."""
    return 0
