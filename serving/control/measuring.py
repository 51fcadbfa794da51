"""Measuring: first sweeps before a replica is used, refinement and renewal while its device is idle."""

from collections.abc import Collection, Iterable
from dataclasses import replace

from serving.control.commands import Command, KeepProfile, Measure, Route
from serving.control.state.observed import ObservedState
from serving.control.state.replicas import ReplicaRecord, ReplicaStatus, SliceRecord, WorkerStatus
from serving.policy.estimates.freshness import Freshness
from serving.profile.curve import Profile
from serving.values.vocabulary import NEVER_US

REFINE_EVERY_US = 1_000_000
REFINE_IDLE_TICKS = 2  # ticks in a row without traffic before a slice is measured again
REFINE_BUDGET_MAX_US = 50_000  # the longest that a refinement may keep a request waiting
SAVE_EVERY = 20  # refinements between two stores of a profile
RENEW_EVERY_US = 3_600_000_000
"""The pause between two renewals of a profile.

If live batches always differ from measured ones (colder caches, a busier machine), the profile stays stale
whatever is measured. Estimates are corrected all the same.
"""

LOAD_PATIENCE_US = 3_000_000
"""How long a loaded replica waits for other loads to end before it is measured while they run.

It is more than the worker waits before it starts the next load beside a slow one
(`serving.worker.loop.loader.SLOW_S`).
"""

_BUSY = (ReplicaStatus.LOADING, ReplicaStatus.MEASURING)


class Measuring:
    """The measurements of all slices. `remeasure` and `refine` are as in `Rules`."""

    def __init__(self, observed: ObservedState, remeasure: bool, refine: bool = True) -> None:
        self._observed = observed
        self._remeasure = remeasure
        self._refine = refine

    def is_loading(self, record: SliceRecord) -> bool:
        """Return whether anything is loading on a slice's cores."""
        return any(is_loading(each) for each in self._observed.on_cores(record))

    def next_coarse(self, record: SliceRecord, now_us: int) -> list[Command]:
        """Continue the first sweeps of a slice, one replica after the other.

        They begin once all loads of the slice are done (if all its replicas are to be loaded), except slow
        loads. Processes on the same cores take turns.
        """
        if self._is_measuring(record) or now_us < self._coarse_us(record):
            return []
        for replica in record.replicas.values():
            if replica.status is ReplicaStatus.MEASURING:
                measurement = replica.sweep.next_coarse()
                if measurement is not None:
                    record.measuring = replica.id
                    return [Measure(record.spec.name, replica.id, measurement)]
        return []

    def _is_measuring(self, record: SliceRecord) -> bool:
        return any(each.measuring for each in self._observed.on_cores(record))

    def _coarse_us(self, record: SliceRecord) -> int:
        """Return when first sweeps may go on: batches take longer during a load than alone."""
        if record.spec.memory_bytes or not self.is_loading(record):
            return 0
        measuring = [each for each in record.replicas.values() if each.status is ReplicaStatus.MEASURING]
        return min([each.loaded_us for each in measuring], default=0) + LOAD_PATIENCE_US

    def count_idle(self, idle: Collection[str]) -> None:
        """Count a tick; `idle` names the slices without work. Rehearsed slices are never measured idle."""
        for name, record in self._observed.measured.items():
            record.idle_ticks = record.idle_ticks + 1 if name in idle else 0

    def refine(self, record: SliceRecord, now_us: int) -> list[Command]:
        """Return the next measurement of a slice on an idle device, if one is due.

        A rehearsed slice only repeats its profile, and must never be taken for a measurement.
        """
        if record.spec.rehearsed or not self._is_quiet(record):
            return []
        budget_us = _budget_us(record)
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
            if self.is_renewed(record, replica, now_us):
                commands += self.refresh(record, replica, save=True)
        return commands

    def is_restless(self, record: SliceRecord, now_us: int) -> bool:
        """Return whether a slice may be measured, or becomes due for that as time goes on."""
        if record.status is not WorkerStatus.READY:
            return False
        replicas = record.replicas.values()
        if any(each.status is ReplicaStatus.MEASURING for each in replicas):
            return True
        if record.spec.rehearsed:
            return False
        budget_us = _budget_us(record)
        return any(
            each.freshness is Freshness.STALE or self._is_due(each, budget_us, now_us) for each in replicas
        )

    def due_us(self, record: SliceRecord, now_us: int) -> Iterable[int]:
        """Yield when a tick is due for measurements of the slice."""
        if record.status is not WorkerStatus.READY or record.spec.rehearsed:
            return
        budget_us = _budget_us(record)
        replicas = record.replicas.values()
        coarse = any(each.status is ReplicaStatus.MEASURING for each in replicas)
        if coarse and not self._is_measuring(record):
            yield max(now_us, self._coarse_us(record))
        if not record.measuring and any(self._is_due(replica, budget_us, now_us) for replica in replicas):
            yield now_us + REFINE_EVERY_US
        if self._remeasure:
            stale = [each for each in replicas if each.freshness is Freshness.STALE]
            yield from (replica.renew_us for replica in stale if replica.renew_us > now_us)

    def is_renewed(self, record: SliceRecord, replica: ReplicaRecord, now_us: int) -> bool:
        """Return whether the measurement just done was the last that a renewal could make."""
        sweep = replica.sweep
        if not sweep.renewing or sweep.next_renewal(_budget_us(record)) is not None:
            return False
        sweep.finish_renewal()
        replica.freshness, replica.renew_us = Freshness.FRESH, now_us + RENEW_EVERY_US
        return True

    def refresh(self, record: SliceRecord, replica: ReplicaRecord, save: bool = False) -> list[Command]:
        """Route by the present profile, and store it from time to time, but never half renewed."""
        replica.profile = Profile(
            replica.model, replica.variant, replica.device_kind, replica.sweep.points(),
            replica.load_us, replica.memory_bytes, "measured by this gateway",
            record.spec.share,
            import_bytes=(replica.profile.import_bytes or 0) if replica.profile else 0,
        )  # fmt: skip
        self._observed.learn(record.spec, replica.profile)
        commands: list[Command] = [route(record, replica)] if replica.status is ReplicaStatus.READY else []
        complete = replica.sweep.next_refinement(_budget_us(record)) is None
        if save or (not replica.sweep.renewing and (complete or replica.unsaved >= SAVE_EVERY)):
            trusted = replica.sweep.trusted()
            if trusted:
                replica.unsaved = 0
                commands.append(KeepProfile(replace(replica.profile, points=trusted)))
        return commands

    def _is_quiet(self, record: SliceRecord) -> bool:
        """Return whether the slice's whole device has been idle for a while.

        Slices of one device slow each other down, and a profile is of a slice alone.
        """
        return not any(
            other.measuring
            or any(
                replica.status in _BUSY
                or (replica.status is ReplicaStatus.READY and other.idle_ticks < REFINE_IDLE_TICKS)
                for replica in other.replicas.values()
            )
            for other in self._observed.on_device(record.spec.device)
        )

    def _is_due(self, replica: ReplicaRecord, budget_us: int, now_us: int) -> bool:
        """Return whether an idle slice should measure a replica.

        A stale profile that may not be measured again is not refined either: old and new runs do not belong
        together.
        """
        if replica.status is not ReplicaStatus.READY or not self._refine:
            return False
        if replica.sweep.renewing:
            return True
        if replica.freshness is Freshness.STALE:
            return self._remeasure and now_us >= replica.renew_us
        return replica.sweep.next_refinement(budget_us) is not None


def is_loading(record: SliceRecord) -> bool:
    """Return whether anything is loading on a slice."""
    return any(each.status is ReplicaStatus.LOADING for each in record.replicas.values())


def _budget_us(record: SliceRecord) -> int:
    slo_us = min((each.served.slo_us for each in record.replicas.values()), default=NEVER_US)
    return min(slo_us // 2, REFINE_BUDGET_MAX_US)


def route(record: SliceRecord, replica: ReplicaRecord) -> Route:
    """Return the command to route a replica with its profile; ValueError if it has none."""
    if replica.profile is None:
        raise ValueError(f"{replica.model} {replica.variant} on {record.spec.name} was never measured")
    return Route(record.spec.name, replica.id, replica.model, replica.variant, replica.profile)
