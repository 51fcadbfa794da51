"""What there is: slices, their workers and replicas, and the models that the scheduler knows."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from serving.control.replicas import ReplicaRecord, ReplicaStatus, SliceRecord, WorkerStatus
from serving.profile.curve import Profile
from serving.profile.sweep import Sweep
from serving.specs import Limits, ServedModel, Share, SliceSpec

KnownProfiles = Mapping[tuple[str, str, str], Profile]
"""Stored profiles by (slice, model, variant)."""


class ObservedState:
    """`models`: as the scheduler was told of them; `retiring`: those that it was told to let go, and whether
    all their requests have been answered; `lost`: devices that are gone, and why."""

    def __init__(
        self,
        models: Iterable[ServedModel],
        known: KnownProfiles,
        limits: Limits,
        kind_of: Callable[[SliceSpec], str],
    ) -> None:
        self.slices: dict[str, SliceRecord] = {}
        self.models: dict[str, ServedModel] = {model.name: model for model in models}
        self.retiring: dict[str, bool] = {}
        self.lost: dict[str, str] = {}
        self.known = dict(known)
        self._learnt: dict[tuple[str, Share, str, str], Profile] = {}  # by device, share, model, variant
        self._sweep_s = limits.sweep_s
        self._kind_of = kind_of
        self._count = 0

    def replicas(self) -> Iterator[tuple[SliceRecord, ReplicaRecord]]:
        """Every replica with its slice."""
        for record in self.slices.values():
            for replica in record.replicas.values():
                yield record, replica

    def held(self) -> dict[str, SliceSpec]:
        """The slices that are paid for, once each: a worker of theirs lives, or is to be there again soon."""
        gone = (WorkerStatus.STOPPED, WorkerStatus.LOST)
        there = (record.spec for record in self.slices.values() if record.status not in gone)
        return {spec.place: replace(spec, name=spec.place) for spec in there}

    def routed(self, model: str) -> list[ReplicaRecord]:
        """The replicas of a model that get batches."""
        ready = ReplicaStatus.READY
        return [each for _, each in self.replicas() if each.model == model and each.status is ready]

    def add(self, record: SliceRecord, served: ServedModel, variant: str, unknown: int = 1) -> ReplicaRecord:
        """A replica that is to be loaded. `unknown`: replicas there without a profile, which share the time
        for first sweeps."""
        self._count += 1
        profile = self.profile(record.spec, served.name, variant)
        budget_us = self._sweep_s * 1e6 / max(unknown, 1)
        sweep = Sweep(served.spec.batch_max, served.slo_us, served.spec.sizes, budget_us)
        if profile is not None:
            sweep.resume(profile)
        kind = self._kind_of(record.spec)
        replica = ReplicaRecord(self._count, served, variant, sweep, profile, kind)
        record.replicas[self._count] = replica
        return replica

    def learn(self, spec: SliceSpec, profile: Profile) -> None:
        """What was measured on such a slice, for replicas to come."""
        self._learnt[spec.device, spec.share, profile.model, profile.variant] = profile

    def profile(self, spec: SliceSpec, model: str, variant: str) -> Profile | None:
        """What is known of a variant on such a slice, measured here or stored; None where that is nothing."""
        for record, replica in self.replicas():
            same = (replica.model, replica.variant) == (model, variant) and replica.profile is not None
            if same and (record.spec.device, record.spec.share) == (spec.device, spec.share):
                return replica.profile
        return self.stored(spec, model, variant)

    def stored(self, spec: SliceSpec, model: str, variant: str) -> Profile | None:
        """What is known of a variant on such a slice, though no replica of it may be on one."""
        share = spec.share
        if (learnt := self._learnt.get((spec.device, share, model, variant))) is not None:
            return learnt
        for name in (spec.place, plain(spec.place)):
            known = self.known.get((name, model, variant))
            if known is not None and known.share == share:
                return known
        return None


def plain(slice_name: str) -> str:
    """The name as it was wanted, of a slice that was renamed since another of that name is there."""
    return slice_name.partition(RENAMED)[0]


RENAMED = "~"
