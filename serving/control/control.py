"""The control plane's state machine, first form: a fixed set of replicas, kept alive and measured.

One method per event, each returns commands; `wake_us` says when `tick` is due. Later forms decide which
replicas are wanted; this one keeps what settings name: it starts workers, loads, measures and routes their
replicas, restarts what dies with back-off, refines profiles on idle slices, and measures stale ones anew.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

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
from serving.control.replicas import ReplicaRecord, ReplicaStatus, SliceRecord, WorkerStatus
from serving.policy.freshness import Freshness
from serving.profile.curve import Profile
from serving.profile.sweep import Sweep
from serving.specs import Limits, ServedModel, SliceSpec
from serving.vocabulary import NEVER_US

BACKOFF_FIRST_US = 100_000
BACKOFF_MAX_US = 10_000_000
HEALTHY_US = 30_000_000  # a worker that lived this long starts its back-off anew
REFINE_EVERY_US = 1_000_000
REFINE_IDLE_TICKS = 2  # ticks in a row without traffic before a slice is measured again
REFINE_BUDGET_MAX_US = 50_000  # the longest that a refinement may keep a request waiting
SAVE_EVERY = 20  # refinements between two stores of a profile
RENEW_EVERY_US = 3_600_000_000
"""Between two new measurements of a profile. Where live batches always differ from measured ones (colder
caches, a busier machine) it stays stale whatever is measured; estimates are corrected all the same."""

KnownProfiles = Mapping[tuple[str, str, str], Profile]
"""Stored profiles by (slice, model, variant)."""


class Control:
    """Keeps the wanted replicas loaded. `kind_of` names a slice's device kind; `remeasure`: whether a profile
    that is no longer right may be measured anew."""

    def __init__(
        self,
        slices: Iterable[SliceSpec],
        models: Iterable[ServedModel],
        known: KnownProfiles,
        limits: Limits,
        kind_of: Callable[[SliceSpec], str],
        remeasure: bool = True,
    ) -> None:
        self._limits = limits
        self._remeasure = remeasure
        self._models = {model.name: model for model in models}
        self._stopping = False
        self.slices: dict[str, SliceRecord] = {spec.name: SliceRecord(spec) for spec in slices}
        self.wake_us = NEVER_US
        self._want_replicas(known, kind_of)

    def _want_replicas(self, known: KnownProfiles, kind_of: Callable[[SliceSpec], str]) -> None:
        """One replica of every served variant on every slice of its model, answering variants first."""
        count = 0
        for record in self.slices.values():
            here = [model for model in self._models.values() if record.spec.name in model.slices]
            pairs = [(model, variant) for model in here for variant in model.variants]
            pairs.sort(key=lambda pair: pair[1] != pair[0].answering_variant)
            unknown = sum((record.spec.name, model.name, variant) not in known for model, variant in pairs)
            budget_us = self._limits.sweep_s * 1e6 / max(unknown, 1)
            for model, variant in pairs:
                count += 1
                profile = known.get((record.spec.name, model.name, variant))
                sweep = Sweep(model.spec.batch_max, model.slo_us, model.spec.sizes, budget_us)
                if profile is not None:
                    sweep.resume(profile)
                kind = kind_of(record.spec)
                record.replicas[count] = ReplicaRecord(count, model.name, variant, sweep, profile, kind)

    # what the driver may ask

    def model_ready(self, model: str) -> bool:
        """Whether the variant that answers by default is routed somewhere."""
        variant = self._models[model].answering_variant
        return any(
            replica.status is ReplicaStatus.READY
            for record in self.slices.values()
            for replica in record.replicas.values()
            if (replica.model, replica.variant) == (model, variant)
        )

    # events

    def start(self, now_us: int) -> Sequence[Command]:
        """Start every slice's worker."""
        return self._then(now_us, [self._start_worker(record, now_us) for record in self.slices.values()])

    def stop(self) -> None:
        """Restart and measure nothing from now on."""
        self._stopping = True
        self.wake_us = NEVER_US

    def worker_ready(self, slice_name: str, now_us: int) -> Sequence[Command]:
        """A worker process answers: load what is wanted there."""
        record = self.slices[slice_name]
        record.status, record.since_us, record.heard_us = WorkerStatus.READY, now_us, now_us
        return self._then(now_us, [self._load(record, replica) for replica in record.replicas.values()])

    def worker_lost(self, slice_name: str, reason: str, now_us: int) -> Sequence[Command]:
        """A worker process is gone: withdraw the slice and start it again after a back-off."""
        record = self.slices[slice_name]
        if record.status is WorkerStatus.READY and now_us - record.since_us >= HEALTHY_US:
            record.failures = 0
        record.failures += 1
        record.restarts += 1
        record.status, record.reason, record.since_us = WorkerStatus.WAITING, reason, now_us
        record.retry_us = now_us + backoff_us(record.failures)
        record.measuring = 0
        for replica in record.replicas.values():
            replica.status, replica.retry_us = ReplicaStatus.ABSENT, NEVER_US
        return self._then(now_us, [Withdraw(slice_name, reason)])

    def worker_stuck(self, slice_name: str, reason: str) -> Sequence[Command]:
        """A worker holds a batch for too long: end it; its loss does the rest."""
        return (EndWorker(slice_name, reason),)

    def replica_loaded(
        self, slice_name: str, replica_id: int, cost: tuple[int, int], now_us: int
    ) -> Sequence[Command]:
        """A replica is warm: route it where its profile is known, else measure it first.

        `cost`: microseconds that loading took, bytes of memory that it holds.
        """
        record = self.slices[slice_name]
        record.heard_us = now_us
        replica = record.replicas[replica_id]
        (replica.load_us, replica.memory_bytes), replica.failures, replica.reason = cost, 0, ""
        replica.status = ReplicaStatus.MEASURING if replica.profile is None else ReplicaStatus.READY
        commands: list[Command] = []
        if replica.profile is not None:
            commands.append(_route(record, replica, replica.profile))
        return self._then(now_us, commands + self._measure_next(record))

    def replica_failed(self, slice_name: str, replica_id: int, reason: str, now_us: int) -> Sequence[Command]:
        """A replica could not be loaded or measured: tried again after a back-off."""
        record = self.slices[slice_name]
        record.heard_us = now_us
        replica = record.replicas[replica_id]
        commands: list[Command] = []
        if replica.status is ReplicaStatus.READY:  # it failed on its own sample
            commands.append(Unroute(slice_name, replica.model, replica.variant, reason))
        replica.status, replica.reason = ReplicaStatus.FAILED, reason
        replica.failures += 1
        replica.retry_us = now_us + backoff_us(replica.failures)
        if record.measuring == replica_id:
            record.measuring = 0
        return self._then(now_us, commands + self._measure_next(record))

    def measured(
        self, slice_name: str, batch: tuple[int, int], latencies_us: Sequence[int], now_us: int
    ) -> Sequence[Command]:
        """The measurement under way on a slice is done; `batch`: its rows and size."""
        record = self.slices[slice_name]
        replica = record.replicas.get(record.measuring)
        record.measuring, record.heard_us = 0, now_us
        if replica is None:
            return ()
        replica.sweep.take(*batch, latencies_us)
        replica.unsaved += 1
        commands: list[Command] = []
        if replica.status is ReplicaStatus.READY:
            commands = self._refresh(record, replica, self._is_renewed(record, replica, now_us))
        elif replica.sweep.next_coarse() is None:
            replica.status = ReplicaStatus.READY
            commands = self._refresh(record, replica, save=True)
        return self._then(now_us, commands + self._measure_next(record))

    def profile_flagged(
        self, slice_name: str, replica_id: int, freshness: Freshness, now_us: int
    ) -> Sequence[Command]:
        """Batches say otherwise of a replica's profile than before, or still so of a new one."""
        replica = self.slices[slice_name].replicas.get(replica_id)
        if replica is not None:
            replica.freshness = freshness
        return self._then(now_us, [])

    def tick(self, now_us: int, idle: Collection[str]) -> Sequence[Command]:
        """What has become due; `idle`: slices without work in this instant."""
        commands: list[Command] = []
        for name, record in self.slices.items():
            record.idle_ticks = record.idle_ticks + 1 if name in idle else 0
        for name, record in self.slices.items():
            if record.retry_us <= now_us:
                commands.append(self._start_worker(record, now_us))
            reason, due_us = self._overdue(record)
            if due_us <= now_us:
                record.heard_us = now_us  # said once; again only after as long a time
                commands.append(EndWorker(name, reason))
            elif record.status is WorkerStatus.READY:
                orders: list[Command] = [
                    self._load(record, replica)
                    for replica in record.replicas.values()
                    if replica.retry_us <= now_us
                ]
                if self._is_quiet(record):
                    orders += self._refine(record, now_us)
                if orders:
                    record.heard_us = now_us
                commands += orders
        return self._then(now_us, commands)

    # steps

    def _then(self, now_us: int, commands: Sequence[Command]) -> Sequence[Command]:
        """Commands, after setting the next tick."""
        due = [NEVER_US]
        for record in self.slices.values():
            due += [record.retry_us, self._overdue(record)[1]]
            if record.status is WorkerStatus.READY:
                due += [replica.retry_us for replica in record.replicas.values()]
                if not record.measuring and self._refinable(record, now_us):
                    due.append(now_us + REFINE_EVERY_US)
                if self._remeasure:
                    stale = [r for r in record.replicas.values() if r.freshness is Freshness.STALE]
                    due += [replica.renew_us for replica in stale if replica.renew_us > now_us]
        self.wake_us = NEVER_US if self._stopping else min(due)
        return () if self._stopping else commands

    def _start_worker(self, record: SliceRecord, now_us: int) -> StartWorker:
        record.status, record.since_us, record.retry_us = WorkerStatus.STARTING, now_us, NEVER_US
        record.heard_us = now_us
        return StartWorker(record.spec.name)

    def _overdue(self, record: SliceRecord) -> tuple[str, int]:
        """What the worker is to be ended for, and when: what it was told to do takes too long."""
        startup_s, stall_us = self._limits.startup_s, self._limits.stall_us
        if record.status is WorkerStatus.STARTING:
            return f"it did not start within {startup_s:g} s", record.heard_us + int(startup_s * 1e6)
        for replica in record.replicas.values():
            what = f"{replica.model} {replica.variant}"
            if replica.status is ReplicaStatus.LOADING:  # they load in this order
                reason = f"{what} did not load within {startup_s:g} s"
                return reason, record.heard_us + int(startup_s * 1e6)
            if record.measuring == replica.id:
                if replica.status is ReplicaStatus.MEASURING:  # its budget is at most the sweep's
                    stall_us += int(self._limits.sweep_s * 1e6)
                return f"{what} was measured for over {stall_us / 1e6:g} s", record.heard_us + stall_us
        return "", NEVER_US

    @staticmethod
    def _load(record: SliceRecord, replica: ReplicaRecord) -> LoadReplica:
        replica.status, replica.retry_us = ReplicaStatus.LOADING, NEVER_US
        replica.freshness = Freshness.FRESH  # what batches said of it has gone with the worker
        return LoadReplica(record.spec.name, replica.id, replica.model, replica.variant)

    @staticmethod
    def _measure_next(record: SliceRecord) -> list[Command]:
        """Continue the first sweeps of a slice, one replica after the other, once all of it is loaded."""
        if record.measuring or any(r.status is ReplicaStatus.LOADING for r in record.replicas.values()):
            return []
        for replica in record.replicas.values():
            if replica.status is ReplicaStatus.MEASURING:
                measurement = replica.sweep.next_coarse()
                if measurement is not None:
                    record.measuring = replica.id
                    return [Measure(record.spec.name, replica.id, measurement)]
        return []

    def _refine_budget_us(self, record: SliceRecord) -> int:
        slo_us = min(self._models[replica.model].slo_us for replica in record.replicas.values())
        return min(slo_us // 2, REFINE_BUDGET_MAX_US)

    def _is_quiet(self, record: SliceRecord) -> bool:
        """Whether its whole device has had nothing to do for a while: neighbours slow each other down, and a
        profile is of a slice alone."""
        return not any(
            other.measuring
            or any(
                replica.status in (ReplicaStatus.LOADING, ReplicaStatus.MEASURING)
                or (replica.status is ReplicaStatus.READY and other.idle_ticks < REFINE_IDLE_TICKS)
                for replica in other.replicas.values()
            )
            for other in self.slices.values()
            if other.spec.device == record.spec.device
        )

    def _refinable(self, record: SliceRecord, now_us: int) -> bool:
        budget_us = self._refine_budget_us(record) if record.replicas else 0
        return any(self._is_due(replica, budget_us, now_us) for replica in record.replicas.values())

    def _is_due(self, replica: ReplicaRecord, budget_us: int, now_us: int) -> bool:
        """Whether an idle slice is to measure a replica. One that is stale and may not be measured anew is
        not refined either: runs of then and of now do not belong together."""
        if replica.status is not ReplicaStatus.READY:
            return False
        if replica.sweep.renewing:
            return True
        if replica.freshness is Freshness.STALE:
            return self._remeasure and now_us >= replica.renew_us
        return replica.sweep.next_refinement(budget_us) is not None

    def _refine(self, record: SliceRecord, now_us: int) -> list[Command]:
        budget_us = self._refine_budget_us(record) if record.replicas else 0
        commands: list[Command] = []
        for replica in record.replicas.values():
            if not self._is_due(replica, budget_us, now_us):
                continue
            sweep = replica.sweep
            if replica.freshness is Freshness.STALE and not sweep.renewing:
                sweep.renew()
            measurement = (sweep.next_renewal if sweep.renewing else sweep.next_refinement)(budget_us)
            if measurement is not None:
                record.measuring = replica.id
                return [*commands, Measure(record.spec.name, replica.id, measurement)]
            if self._is_renewed(record, replica, now_us):
                commands += self._refresh(record, replica, save=True)
        return commands

    def _is_renewed(self, record: SliceRecord, replica: ReplicaRecord, now_us: int) -> bool:
        """Whether the last point that could be measured anew has just been."""
        sweep = replica.sweep
        if not sweep.renewing or sweep.next_renewal(self._refine_budget_us(record)) is not None:
            return False
        sweep.finish_renewal()
        replica.freshness, replica.renew_us = Freshness.FRESH, now_us + RENEW_EVERY_US
        return True

    def _refresh(self, record: SliceRecord, replica: ReplicaRecord, save: bool = False) -> list[Command]:
        """Route by what is known now, and store it now and then, but for what is half old and half new."""
        replica.profile = Profile(
            replica.model, replica.variant, replica.device_kind, replica.sweep.points(),
            replica.load_us, replica.memory_bytes, "measured by this gateway",
            1 if replica.profile is None else replica.profile.streams, record.spec.share,
        )  # fmt: skip
        commands: list[Command] = [_route(record, replica, replica.profile)]
        complete = replica.sweep.next_refinement(self._refine_budget_us(record)) is None
        if save or (not replica.sweep.renewing and (complete or replica.unsaved >= SAVE_EVERY)):
            replica.unsaved = 0
            commands.append(KeepProfile(replica.profile))
        return commands


def backoff_us(failures: int) -> int:
    """How long to wait before the next try: doubling from 0.1 s to 10 s."""
    return min(BACKOFF_FIRST_US << min(failures - 1, 20), BACKOFF_MAX_US)


def _route(record: SliceRecord, replica: ReplicaRecord, profile: Profile) -> Route:
    return Route(record.spec.name, replica.id, replica.model, replica.variant, profile)
