"""Where a variant is loaded first that no worker of this gateway has loaded yet.

A load may end its process, or hold the interpreter. If the process serves other variants, the first load runs
elsewhere, and the slices wait for it. It runs on a slice that serves nothing yet. Without one it runs in an
own process on the cores of the slice that serves least (`cpu-a+parser`), which ends after the load. If no
such process is possible, one slice goes first.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from serving.control.reconciling import LOAD_TRIES, START_TRIES
from serving.control.state.desired import DesiredReplica, DesiredSlice, DesiredState
from serving.control.state.observed import ObservedState
from serving.control.state.replicas import (
    LOADED,
    Key,
    ReplicaRecord,
    ReplicaStatus,
    SliceRecord,
    WorkerStatus,
)
from serving.values.slice_specs import SliceSpec, own_process, place_of
from serving.values.specs import ServedModel

KEPT_MAX = 10_000
"""How many loads are remembered. A variant that is forgotten has a first load again."""
PATIENCE = 2
"""A load beside batches may take so many times its earlier duration: it shares the cores with them."""


class Trials:
    """The first loads of all replicas that `observed` is to have."""

    def __init__(self, observed: ObservedState) -> None:
        self._observed = observed
        self._slices = observed.slices
        self._lost = observed.lost
        self._loaded: dict[Key, int] = {}  # microseconds of the load; the latest last
        self._places: dict[Key, str] = {}  # for variants never loaded: the process that goes first
        self._deadly = set[str]()
        self._looked: DesiredState | None = None
        self._models: dict[str, ServedModel] = {}
        self._unknown: dict[Key, dict[str, SliceSpec]] = {}  # never loaded: where they are desired
        self._harmed: dict[Key, set[str]] = {}  # of these, the slices where a first load would do harm

    def look(self, current: DesiredState, is_deadly: Callable[[ServedModel], bool]) -> bool:
        """Decide again where each first load runs; return whether anything is decided otherwise.

        `is_deadly`: whether a worker process has died busy with a model's present files. Only slices that
        have changed are looked at, but for a variant that cannot be loaded just anywhere.
        """
        fresh = current is not self._looked and current != self._looked
        self._looked = current
        if fresh:
            self._models = {model.name: model for model in current.models}
            self._unknown = self._never_loaded(current)
            self._harmed = {key: set() for key in self._unknown}
        for key in [key for key in self._unknown if key in self._loaded]:
            del self._unknown[key], self._harmed[key]
        deadly = {key[0] for key in self._unknown if is_deadly(self._models[key[0]])}
        if not self._unknown and not self._places and deadly == self._deadly:
            return fresh
        if deadly != self._deadly:
            self._deadly, fresh = deadly, True
        for key, specs in self._unknown.items():
            self._note_harm(key, specs if fresh else specs.keys() & self._observed.touched)
        found: dict[Key, str] = {}
        for key, specs in self._unknown.items():
            if self._harmed[key]:
                records = [self._slices.get(name) or SliceRecord(spec) for name, spec in specs.items()]
                found[key] = self._place(key, self._models[key[0]], records, found)
        places = {key: place for key, place in found.items() if place}
        before, self._places = self._places, places
        return fresh or places != before

    def _never_loaded(self, current: DesiredState) -> dict[Key, dict[str, SliceSpec]]:
        """Return the variants that were never loaded, with the slices where they are desired."""
        unknown: dict[Key, dict[str, SliceSpec]] = {}
        for each in current.slices:
            if each.spec.memory_bytes:
                continue  # requests decide what is loaded there
            for one in each.replicas:
                key = (one.model, one.variant, self._models[one.model].revision)
                if key not in self._loaded:
                    unknown.setdefault(key, {})[each.spec.name] = each.spec
        return unknown

    def _note_harm(self, key: Key, names: Iterable[str]) -> None:
        """Note on which of these slices the first load of a variant would do harm."""
        harmed = self._harmed[key]
        for name in names:
            record = self._slices.get(name)
            harms = record is not None and self._is_usable(record) and not self._harms_nobody(record, key)
            (harmed.add if harms else harmed.discard)(name)

    def added(self, current: DesiredState) -> DesiredState:
        """Return the desired state, with the processes for first loads."""
        if not self._places:
            return current
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
        """Return the process that must load the replica first; "" if the slice need not wait."""
        place = self._places.get(replica.key, "")
        return "" if place == record.spec.name or self._harms_nobody(record, replica.key) else place

    def loaded(self, key: Key, load_us: int) -> None:
        """Remember that a worker has loaded the variant."""
        self._loaded.pop(key, None)
        self._loaded[key] = load_us
        if len(self._loaded) > KEPT_MAX:
            del self._loaded[next(iter(self._loaded))]
            self._looked = None  # a variant may be unknown again

    def failed(self, record: SliceRecord, replica: ReplicaRecord) -> None:
        """Mark a failed load; if it was in a process of its own, all replicas that wait for it fail."""
        name = record.spec.name
        if self._places.get(replica.key) != name or name == record.spec.place:
            return
        for other in self._slices.values():
            for each in other.replicas.values():
                if each.key == replica.key and each.status is ReplicaStatus.ABSENT:
                    each.failures, each.reason = replica.failures, replica.reason
                    self._observed.touched.add(other.spec.name)

    def patience_us(self, record: SliceRecord, startup_us: int, stall_us: int) -> int:
        """Return how long a load in the worker may delay batches there, from its start; 0 without a load."""
        replica = record.replicas.get(record.loading)
        if replica is None:
            return 0
        took_us = self._loaded.get(replica.key)
        return startup_us if took_us is None else min(PATIENCE * took_us + stall_us, startup_us)

    # steps

    def _place(
        self, key: Key, model: ServedModel, records: Sequence[SliceRecord], found: Mapping[Key, str]
    ) -> str:
        """Return where a variant is loaded first, the same while it can be; "" if all slices may load it."""
        usable = [each for each in records if self._is_usable(each)]
        if all(self._harms_nobody(each, key) for each in usable):
            return ""
        for each in usable:
            if _status(each, key) is ReplicaStatus.LOADING:
                return each.spec.name
        before = self._places.get(key, "")
        calm = [each for each in usable if _failures(each, key) < LOAD_TRIES]
        hosts = {own_process(each.spec.name, model.name): each for each in usable if _has_room(each)}
        apart = model.isolate != "never" and bool(hosts)
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
        """Return whether a worker serves nothing that the load could end, or keep from coming back."""
        others = [each for each in record.replicas.values() if each.key != key]
        if any(each.status in LOADED for each in others):
            return False
        return key[0] not in self._deadly or all(each.model == key[0] for each in others)


def _has_room(record: SliceRecord) -> bool:
    """Return whether a second process may use the slice: on cores, and beside the shared process."""
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
