"""The observed state: slices, their workers and replicas, and the models that the scheduler knows."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from serving.control.replicas import ReplicaRecord, ReplicaStatus, SliceRecord, WorkerStatus
from serving.profile.curve import Profile
from serving.profile.sweep import Sweep
from serving.slice_specs import Share, SliceSpec
from serving.specs import Limits, ServedModel

KnownProfiles = Mapping[tuple[str, str, str], Profile]
"""Stored profiles by (slice, model, variant)."""


class ObservedState:
    """What is loaded where.

    `models`: as the scheduler last got them. `retiring`: the models that the scheduler was asked to retire,
    and whether it has answered all their requests. `lost`: devices that are gone, and why.
    """

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
        """Yield every replica with its slice."""
        for record in self.slices.values():
            for replica in record.replicas.values():
                yield record, replica

    def held(self) -> dict[str, SliceSpec]:
        """Return the slices that cost money, each once: its worker lives, or is to restart soon."""
        gone = (WorkerStatus.STOPPED, WorkerStatus.LOST)
        there = (record.spec for record in self.slices.values() if record.status not in gone)
        return {
            spec.place: spec if spec.name == spec.place else replace(spec, name=spec.place) for spec in there
        }

    def routed(self, model: str) -> list[ReplicaRecord]:
        """Return the replicas of a model that get batches."""
        ready = ReplicaStatus.READY
        return [each for _, each in self.replicas() if each.model == model and each.status is ready]

    def add(self, record: SliceRecord, served: ServedModel, variant: str, unknown: int = 1) -> ReplicaRecord:
        """Add a replica that is to be loaded.

        `unknown`: how many replicas on the slice have no profile; they share the time for first sweeps.
        """
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
        """Keep a profile that was measured on such a slice, for later replicas."""
        self._learnt[spec.device, spec.share, profile.model, profile.variant] = profile

    def profile(self, spec: SliceSpec, model: str, variant: str) -> Profile | None:
        """Return the profile of a variant on such a slice, measured here or stored; None if there is none."""
        for record, replica in self.replicas():
            same = (replica.model, replica.variant) == (model, variant) and replica.profile is not None
            if same and (record.spec.device, record.spec.share) == (spec.device, spec.share):
                return replica.profile
        return self.stored(spec, model, variant)

    def stored(self, spec: SliceSpec, model: str, variant: str) -> Profile | None:
        """Return the profile of a variant on such a slice, even without a replica; None if there is none."""
        share = spec.share
        if (learnt := self._learnt.get((spec.device, share, model, variant))) is not None:
            return learnt
        for name in (spec.place, plain(spec.place)):
            known = self.known.get((name, model, variant))
            if known is not None and known.share == share:
                return known
        return None


def plain(slice_name: str) -> str:
    """Return a slice's desired name, without the mark for a name that was taken."""
    return slice_name.partition(RENAMED)[0]


RENAMED = "~"
