"""What one desired state still wants of each slice, kept from event to event.

A gateway may have hundreds of slices, and most events concern one. So each slice is looked at again only
after a change there (`ObservedState.touched`), and counts say what that means for its models.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum

from serving.control.state.desired import DesiredReplica, DesiredSlice, DesiredState
from serving.control.state.replicas import Key, ReplicaRecord, ReplicaStatus, SliceRecord, WorkerStatus
from serving.values.specs import ServedModel

Index = Mapping[Key, DesiredReplica]


class _Place(IntEnum):
    """What a slice has of a model that it should answer for."""

    READY = 0
    COMING = 1
    GIVEN_UP = 2


class Outstanding:
    """The comparison of records with a desired state.

    `lacking`: the slices that differ from it. `waiting`: those with a replica that waits for its first load
    elsewhere. `kept`: by model, those with a replica that goes once others get its batches.
    """

    def __init__(
        self,
        slices: Mapping[str, SliceRecord],
        given_up: Callable[[SliceRecord, ReplicaRecord | None], bool],
    ) -> None:
        """Compare `slices`. `given_up`: whether a desired replica on a slice is not to be waited for."""
        self._slices = slices
        self._given_up = given_up
        self._current: DesiredState | None = None
        self.models: dict[str, ServedModel] = {}
        self.wanted: dict[str, DesiredSlice] = {}
        self.keys: dict[str, Index] = {}
        self._order: dict[str, int] = {}
        self._fresh = True
        self._forget()

    def _forget(self) -> None:
        self.lacking: set[str] = set()
        self.waiting: set[str] = set()
        self.kept: dict[str, set[str]] = {}
        self._kept_on: dict[str, tuple[str, ...]] = {}
        self._counted: dict[str, list[tuple[str, _Place]]] = {}
        self._counts: dict[str, list[int]] = {}  # by model, of each _Place

    def take(self, current: DesiredState) -> None:
        """Compare with this desired state from now on."""
        before = self._current
        if current is before:
            return
        self._current = current
        if before is not None and current == before:
            return
        self.models = {model.name: model for model in current.models}
        self.wanted = {each.spec.name: each for each in current.slices}
        self.keys = {name: index(each, self.models) for name, each in self.wanted.items()}
        self._order = {name: place for place, name in enumerate(self.wanted)}
        self._forget()
        self._fresh = True

    def is_fresh(self) -> bool:
        """Return once for each desired state whether it has just been taken; no slice was looked at then."""
        fresh, self._fresh = self._fresh, False
        return fresh

    def all(self) -> set[str]:
        """Return the slices that are there, and those that are desired."""
        return {*self.wanted, *self._slices}

    def desired(self, names: Iterable[str]) -> list[DesiredSlice]:
        """Return those of the slices that are desired, in the order of the desired state."""
        order = self._order
        places = sorted((order[name], name) for name in names if name in order)
        return [self.wanted[name] for _, name in places]

    def look(self, names: Iterable[str]) -> None:
        """Compare slices again that may have changed."""
        for name in names:
            record, there = self._slices.get(name), dict[Key, ReplicaRecord]()
            if record is not None:
                there = record.by_key()
            self._count(name, record, there)
            self._note_kept(name, there)
            _set(self.lacking, name, self._lacks(name, record, there))
            _set(self.waiting, name, self._waits(name, record, there))

    def counts(self, model: str) -> tuple[int, int, int]:
        """Return how many slices get a model's batches, will get them, and are given up.

        Only the slices count that should get them, and always have them loaded.
        """
        ready, coming, given_up = self._counts.get(model, (0, 0, 0))
        return ready, coming, given_up

    def is_coming(self, model: ServedModel) -> bool:
        """Return whether a slice that always has a model loaded is still to load it as it is desired."""
        for each in self.wanted.values():
            keys = [
                (one.model, one.variant, model.revision)
                for one in each.replicas
                if one.model == model.name and one.routed
            ]
            record = self._slices.get(each.spec.name)
            if not keys or each.spec.memory_bytes or record is None:
                continue
            there = record.by_key()
            for found in map(there.get, keys):
                loaded = found is not None and found.status in (ReplicaStatus.STANDING, ReplicaStatus.READY)
                if not loaded and not self._given_up(record, found):
                    return True
        return False

    # one slice

    def _count(self, name: str, record: SliceRecord | None, there: Mapping[Key, ReplicaRecord]) -> None:
        for model, place in self._counted.pop(name, ()):
            self._counts[model][place] -= 1
        each = self.wanted.get(name)
        if each is None or each.spec.memory_bytes:
            return
        counted = self._counted[name] = []
        for key, one in self.keys[name].items():
            if not one.routed:
                continue
            found, place = there.get(key), _Place.COMING
            if found is not None and found.status is ReplicaStatus.READY:
                place = _Place.READY
            elif record is not None and self._given_up(record, found):
                place = _Place.GIVEN_UP
            counted.append((one.model, place))
            self._counts.setdefault(one.model, [0, 0, 0])[place] += 1

    def _note_kept(self, name: str, there: Mapping[Key, ReplicaRecord]) -> None:
        for model in self._kept_on.pop(name, ()):
            self.kept[model].discard(name)
        wanted = self.keys.get(name, {})
        ready = (each for each in there.values() if each.status is ReplicaStatus.READY)
        models = tuple({each.model for each in ready if not _is_routed(wanted.get(each.key))})
        if models:
            self._kept_on[name] = models
            for model in models:
                self.kept.setdefault(model, set()).add(name)

    def _lacks(self, name: str, record: SliceRecord | None, there: Mapping[Key, ReplicaRecord]) -> bool:
        each = self.wanted.get(name)
        if each is None:
            return record is not None
        wanted = self.keys[name]
        if (
            record is None
            or record.status is not WorkerStatus.READY
            or any(key not in wanted for key in there)
        ):
            return True
        if each.spec.memory_bytes:
            return False
        return any(not is_as(there.get(key), one) for key, one in wanted.items())

    def _waits(self, name: str, record: SliceRecord | None, there: Mapping[Key, ReplicaRecord]) -> bool:
        if record is None or record.status is not WorkerStatus.READY or record.spec.memory_bytes:
            return False
        wanted = self.keys.get(name, {})
        return any(key in wanted and each.status is ReplicaStatus.ABSENT for key, each in there.items())


def index(each: DesiredSlice, models: Mapping[str, ServedModel]) -> Index:
    """Return the desired replicas of a slice by key."""
    return {(one.model, one.variant, models[one.model].revision): one for one in each.replicas}


def is_as(found: ReplicaRecord | None, desired: DesiredReplica) -> bool:
    """Return whether a replica is loaded, and gets batches, as desired."""
    status = ReplicaStatus.READY if desired.routed else ReplicaStatus.STANDING
    return found is not None and found.status is status


def _is_routed(desired: DesiredReplica | None) -> bool:
    return desired is not None and desired.routed


def _set(names: set[str], name: str, there: bool) -> None:
    (names.add if there else names.discard)(name)
