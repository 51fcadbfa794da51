"""Where a variant is loaded first that no worker of this gateway has loaded yet.

A load may end the process in which it runs, or hold its interpreter. Where that process serves others, the
first load takes place elsewhere and the slices wait for it: on a slice that serves nothing yet, else in a
process of its own on the cores of the slice that serves least (`cpu-a+parser`), which ends once the variant
was loaded there. Where no such process may be, one slice goes first.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from serving.control.desired import DesiredReplica, DesiredSlice, DesiredState
from serving.control.observed import ObservedState
from serving.control.reconciling import LOAD_TRIES, START_TRIES
from serving.control.replicas import LOADED, Key, ReplicaRecord, ReplicaStatus, SliceRecord, WorkerStatus
from serving.specs import ServedModel, own_process, place_of

KEPT_MAX = 10_000
"""Loads that are remembered. What is forgotten is tried first once more."""
PATIENCE = 2
"""A load beside batches may take so many times what it took before: they share the cores, and their slice is
slower for it."""


class Trials:
    """Of all that `holdings` is to have."""

    def __init__(self, holdings: ObservedState) -> None:
        self._slices = holdings.slices
        self._lost = holdings.lost
        self._loaded: dict[Key, int] = {}  # what the load took, microseconds; the latest last
        self._places: dict[Key, str] = {}  # of what was never loaded: the process that goes first
        self._deadly = set[str]()

    def look(self, current: DesiredState, is_deadly: Callable[[ServedModel], bool]) -> None:
        """Say anew where each first load takes place. `is_deadly`: whether a worker process has died busy
        with a model's present files."""
        models = {model.name: model for model in current.models}
        desired: dict[Key, list[SliceRecord]] = {}
        for each in current.slices:
            if each.spec.memory_bytes:
                continue  # what is loaded there, and when, follows from what is asked for
            for one in each.replicas:
                key = (one.model, one.variant, models[one.model].revision)
                if key not in self._loaded:
                    record = self._slices.get(each.spec.name) or SliceRecord(each.spec)
                    desired.setdefault(key, []).append(record)
        self._deadly = {key[0] for key in desired if is_deadly(models[key[0]])}
        found: dict[Key, str] = {}
        for key, records in desired.items():
            found[key] = self._place(key, models[key[0]], records, found)
        self._places = {key: place for key, place in found.items() if place}

    def added(self, current: DesiredState) -> DesiredState:
        """What is wanted, with the processes in which something is loaded first."""
        specs = {each.spec.name: each.spec for each in current.slices}
        apart: dict[str, list[DesiredReplica]] = {}
        for (model, variant, _), place in self._places.items():
            if place not in specs and place_of(place) in specs:
                apart.setdefault(place, []).append(DesiredReplica(model, variant, routed=False))
        if not apart:
            return current
        more = (
            DesiredSlice(replace(specs[place_of(name)], name=name), tuple(replicas))
            for name, replicas in apart.items()
        )
        return replace(current, slices=(*current.slices, *more))

    def waits_for(self, record: SliceRecord, replica: ReplicaRecord) -> str:
        """The process that is to load it before this one; "" where it need not wait."""
        place = self._places.get(replica.key, "")
        return "" if place == record.spec.name or self._harms_nobody(record, replica.key) else place

    def loaded(self, key: Key, load_us: int) -> None:
        """A worker has loaded it."""
        self._loaded.pop(key, None)
        self._loaded[key] = load_us
        if len(self._loaded) > KEPT_MAX:
            del self._loaded[next(iter(self._loaded))]

    def failed(self, record: SliceRecord, replica: ReplicaRecord) -> None:
        """It could not be loaded: where that was in a process for it alone, all who wait failed."""
        name = record.spec.name
        if self._places.get(replica.key) != name or name == record.spec.place:
            return
        for other in self._slices.values():
            for each in other.replicas.values():
                if each.key == replica.key and each.status is ReplicaStatus.ABSENT:
                    each.failures, each.reason = replica.failures, replica.reason

    def patience_us(self, record: SliceRecord, startup_us: int, stall_us: int) -> int:
        """For how long from its beginning the load that runs in a worker may hold up batches there; 0 where
        none does."""
        replica = record.replicas.get(record.loading)
        if replica is None:
            return 0
        took_us = self._loaded.get(replica.key)
        return startup_us if took_us is None else min(PATIENCE * took_us + stall_us, startup_us)

    # steps

    def _place(
        self, key: Key, model: ServedModel, records: Sequence[SliceRecord], found: Mapping[Key, str]
    ) -> str:
        """Where it is loaded first; "" where all may load it at once. It stays there while it can be."""
        usable = [each for each in records if self._is_usable(each)]
        if all(self._harms_nobody(each, key) for each in usable):
            return ""
        for each in usable:
            if _status(each, key) is ReplicaStatus.LOADING:
                return each.spec.name
        before = self._places.get(key, "")
        calm = [each for each in usable if _failures(each, key) < LOAD_TRIES]
        hosts = {own_process(each.spec.name, model.name): each for each in usable if _has_room(each)}
        apart = model.isolate == "auto" and bool(hosts)
        if apart and before in hosts:
            return before
        free = [each.spec.name for each in calm if self._harms_nobody(each, key)]
        if free:
            return before if before in free else free[0]
        if apart:
            same = [place for other, place in found.items() if other[0] == model.name and place in hosts]
            return same[0] if same else min(hosts, key=lambda name: _serves(hosts[name]))
        if before in [each.spec.name for each in calm]:
            return before
        return min(calm, key=_serves).spec.name if calm else ""

    def _is_usable(self, record: SliceRecord) -> bool:
        if record.spec.domain in self._lost:
            return False
        return record.status is WorkerStatus.READY or record.failures < START_TRIES

    def _harms_nobody(self, record: SliceRecord, key: Key) -> bool:
        """Whether a worker serves nothing that its load could take along, or keep from coming back."""
        others = [each for each in record.replicas.values() if each.key != key]
        if any(each.status in LOADED for each in others):
            return False
        return key[0] not in self._deadly or all(each.model == key[0] for each in others)


def _has_room(record: SliceRecord) -> bool:
    """Whether a second process may be on its share: there may on cores, beside the shared process."""
    return record.spec.device == "cpu" and record.spec.name == record.spec.place


def _find(record: SliceRecord, key: Key) -> ReplicaRecord | None:
    return next((each for each in record.replicas.values() if each.key == key), None)


def _status(record: SliceRecord, key: Key) -> ReplicaStatus:
    found = _find(record, key)
    return found.status if found is not None else ReplicaStatus.ABSENT


def _failures(record: SliceRecord, key: Key) -> int:
    found = _find(record, key)
    return found.failures if found is not None else 0


def _serves(record: SliceRecord) -> int:
    return sum(each.status in LOADED for each in record.replicas.values())
