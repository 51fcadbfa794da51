"""The observed state: slices, their workers and replicas, and the models that the scheduler knows."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from serving.control.state.replicas import ReplicaRecord, ReplicaStatus, SliceRecord, WorkerStatus
from serving.profile.curve import Profile
from serving.profile.sweeping.sweep import Sweep
from serving.values.slice_specs import Share, SliceSpec
from serving.values.specs import Limits, ServedModel

KnownProfiles = Mapping[tuple[str, str, str], Profile]
"""Stored profiles by (slice, model, variant)."""


class ObservedState:
    """What is loaded where.

    `models`: as the scheduler last got them. `retiring`: the models that the scheduler was asked to retire,
    and whether it has answered all their requests. `lost`: devices that are gone, and why.

    `touched`: the slices with a change that the reconciliation has not seen. Whatever changes a record names
    its slice there, so that an event costs what has changed, however many slices there are. `limited`: the
    slices with too little memory for all their models; `measured`: those that are not rehearsed.
    """

    def __init__(
        self,
        models: Iterable[ServedModel],
        known: KnownProfiles,
        limits: Limits,
        kind_of: Callable[[SliceSpec], str],
    ) -> None:
        self.slices: dict[str, SliceRecord] = {}
        self.touched: set[str] = set()
        self.limited: dict[str, SliceRecord] = {}
        self.measured: dict[str, SliceRecord] = {}
        self._by_device: dict[str, dict[str, SliceRecord]] = {}
        self._apart: dict[str, dict[str, SliceRecord]] = {}  # by place: further processes on its cores
        self._held: dict[str, SliceSpec] | None = None
        self._paid: set[str] = set()  # the processes behind `_held`
        self.models: dict[str, ServedModel] = {model.name: model for model in models}
        self.retiring: dict[str, bool] = {}
        self.lost: dict[str, str] = {}
        self.known = dict(known)
        self._learnt: dict[tuple[str, Share, str, str], Profile] = {}  # by device, share, model, variant
        self._sweep_s = limits.sweep_s
        self._kind_of = kind_of
        self._count = self._entered = 0

    def enter(self, spec: SliceSpec) -> SliceRecord:
        """Return the record of a slice, a new one if it has none."""
        name = spec.name
        record = self.slices.get(name)
        if record is None:
            self._entered += 1
            self._held = None
            record = self.slices[name] = SliceRecord(spec, number=self._entered)
            self._by_device.setdefault(spec.device, {})[name] = record
            if spec.memory_bytes:
                self.limited[name] = record
            if not spec.rehearsed:
                self.measured[name] = record
            if name != spec.place:
                self._apart.setdefault(spec.place, {})[name] = record
        return record

    def remove(self, name: str) -> None:
        """Forget a slice."""
        spec = self.slices.pop(name).spec
        del self._by_device[spec.device][name]
        self.limited.pop(name, None)
        self.measured.pop(name, None)
        self._apart.get(spec.place, {}).pop(name, None)

    def on_device(self, device: str) -> Iterable[SliceRecord]:
        """Return the slices of a device."""
        return self._by_device.get(device, {}).values()

    def on_cores(self, record: SliceRecord) -> Sequence[SliceRecord]:
        """Return the processes on a slice's cores, with its own."""
        apart = self._apart.get(record.spec.place)
        if not apart:
            return (record,)
        shared = self.slices.get(record.spec.place)
        return [*([shared] if shared is not None else []), *apart.values()]

    def ordered(self, names: Iterable[str]) -> list[SliceRecord]:
        """Return the records of those names that have one, in the order of `slices`."""
        records = [self.slices[name] for name in names if name in self.slices]
        return sorted(records, key=lambda record: record.number)

    def replicas(self) -> Iterator[tuple[SliceRecord, ReplicaRecord]]:
        """Yield every replica with its slice."""
        for record in self.slices.values():
            for replica in record.replicas.values():
                yield record, replica

    def held(self) -> dict[str, SliceSpec]:
        """Return the slices that cost money, each once: its worker lives, or is to restart soon.

        The result is the same object as long as these are the same slices.
        """
        if self._held is None:
            there = (record.spec for record in self.slices.values() if record.spec.name in self._paid)
            self._held = {
                spec.place: spec if spec.name == spec.place else replace(spec, name=spec.place)
                for spec in there
            }
        return self._held

    def pay(self, names: Iterable[str]) -> None:
        """Note for slices that have changed whether they cost money now."""
        for name in names:
            record = self.slices.get(name)
            costs = record is not None and record.status not in (WorkerStatus.STOPPED, WorkerStatus.LOST)
            if costs is not (name in self._paid):
                (self._paid.add if costs else self._paid.discard)(name)
                self._held = None

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
        for record in self.on_device(spec.device):
            for replica in record.replicas.values() if record.spec.share == spec.share else ():
                if (replica.model, replica.variant) == (model, variant) and replica.profile is not None:
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
