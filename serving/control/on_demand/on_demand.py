"""On-demand loading, on slices with less memory than all their desired replicas need.

`serving/control/on_demand/slice_memory.py` decides, for one slice, which models are there. This module turns
its orders into commands. It tells the scheduler which variants are cold, and when a loading one will be
ready. A model with changed files is evicted before it is loaded again: for a moment it is cold.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping

from serving.control.commands import Cold, Command, Expect, Unroute
from serving.control.on_demand.on_demand_model import (
    BeginLoad,
    BeginUnload,
    LoadFigures,
    LoadState,
    Order,
    Ready,
    Refuse,
)
from serving.control.on_demand.slice_memory import SliceMemory
from serving.control.reconciling import load, unload
from serving.control.state.desired import DesiredSlice, DesiredState
from serving.control.state.observed import ObservedState
from serving.control.state.replicas import ReplicaRecord, ReplicaStatus, SliceRecord, WorkerStatus
from serving.policy.residency import Key
from serving.profile.curve import Profile
from serving.values.specs import ServedModel
from serving.values.vocabulary import NEVER_US

Busy = Mapping[str, Collection[str]]
"""By slice, the models with running or waiting requests."""

LOAD_US = 1_400_000
"""The assumed time of the first load of a variant that was never loaded here: most of it is imports."""
PROCESS_BYTES = 8 << 20
"""The assumed memory of a variant that was never loaded here, besides its artifact."""


class OnDemandLoading:
    """The on-demand loading of all such slices."""

    def __init__(self, observed: ObservedState) -> None:
        self._observed = observed
        self._places: dict[str, SliceMemory] = {}  # by slice
        self._desired: dict[str, Mapping[Key, ServedModel]] = {}
        self._filled: set[str] = set()  # the slices that know of their worker
        self._cold: set[Key] = set()  # the scheduler knows that these are cold or loading
        self._rates: Mapping[str, float] = {}

    def advance(self, current: DesiredState, now_us: int) -> list[Command]:
        """Return the commands that follow from the desired state."""
        commands: list[Command] = []
        if not (self._observed.limited or self._places or self._cold):
            return commands
        self._observed.touched.update(self._observed.limited)
        models = {model.name: model for model in current.models}
        limited = [each for each in current.slices if each.spec.memory_bytes]
        for each in limited:
            commands += self._want(each, models, now_us)
        kept = {each.spec.name for each in limited}
        for name in [name for name in self._places if name not in kept]:
            if self._desired.pop(name, None) is not None:
                self._places[name].want({}, now_us)  # replicas leave it as they leave other slices
            self._filled.discard(name)
            if name not in self._observed.slices:
                del self._places[name]
        for name, place in self._places.items():
            if name in self._filled:
                commands += self._carry_out(name, place.go_on(now_us), now_us)
        self._give_reasons()
        return [*commands, *self._say(now_us)]

    def due_us(self, now_us: int) -> int:
        """Return when `advance` may have something to do if no event comes before."""
        return min((place.due_us(now_us) for place in self._places.values()), default=NEVER_US)

    def missed(self, key: Key, rates: Mapping[str, float], busy: Busy, now_us: int) -> list[Command]:
        """Load a variant that is on no slice, because a request came: on the slice that has it soonest."""
        self._rates = rates
        places = [(place.ready_in_us(key, now_us), name) for name, place in self._places.items()]
        for ready_us, name in sorted(places):
            if ready_us < NEVER_US and name in self._filled:
                found = self._places[name].ask(key, rates, busy.get(name, ()), now_us)
                if not any(isinstance(order, Refuse) for order in found):
                    return self._carry_out(name, found, now_us)
        return self._tell(key, self._ready_in_us(key, now_us))  # waiting requests ask for it again

    def loaded(
        self, record: SliceRecord, replica: ReplicaRecord, busy: Collection[str] | None, now_us: int
    ) -> list[Command]:
        """Take a loaded replica."""
        place = self._places.get(record.spec.name)
        if place is None:
            return []
        key, cost = _key(replica), (replica.load_us, replica.memory_bytes)
        commands = self._carry_out(record.spec.name, place.loaded(key, cost, now_us, busy), now_us)
        return [*commands, *self._retract(place, key, commands, now_us)]

    def failed(self, record: SliceRecord, replica: ReplicaRecord, now_us: int) -> list[Command]:
        """Take a replica that could not be loaded or measured: its worker has dropped it."""
        name, key = record.spec.name, _key(replica)
        place = self._places.get(name)
        if place is None:
            return []
        replica.status, replica.retry_us = ReplicaStatus.ABSENT, NEVER_US  # the SliceMemory retries
        commands = self._carry_out(name, place.failed(key, now_us), now_us)
        commands += self._retract(place, key, commands, now_us)
        if place.residence(key) is LoadState.LEAVING:
            commands += self._carry_out(name, place.unloaded(key, now_us), now_us)
        return commands

    def unloaded(self, record: SliceRecord, replica: ReplicaRecord, now_us: int) -> list[Command]:
        """Take the end of an unload: the memory is free."""
        place = self._places.get(record.spec.name)
        if place is None:
            return []
        return self._carry_out(record.spec.name, place.unloaded(_key(replica), now_us), now_us)

    def lost(self, record: SliceRecord, now_us: int) -> list[Command]:
        """Take the loss of a slice's worker."""
        place = self._places.get(record.spec.name)
        if place is None:
            return []
        self._filled.discard(record.spec.name)
        return self._carry_out(record.spec.name, place.lost(now_us), now_us)

    # steps

    def _want(self, each: DesiredSlice, models: Mapping[str, ServedModel], now_us: int) -> list[Command]:
        name, record = each.spec.name, self._observed.slices[each.spec.name]
        place = self._places.setdefault(name, SliceMemory(each.spec.memory_bytes))
        keys = dict(self._keys(record, each, models))
        commands: list[Command] = []
        if name not in self._desired:  # evict what was to go while the slice was not desired
            leaving = [key for key in keys if place.residence(key) is LoadState.LEAVING]
            commands += [command for key in leaving for command in self._unload(record, key, now_us)]
        before = self._desired.get(name, {})
        renewed = [key for key in keys if key in before and keys[key].revision != before[key].revision]
        if keys.keys() != before.keys() or renewed:
            self._desired[name] = keys
            for key in renewed:
                place.renew(key)
            figures = {key: self._figure(record, served, key[1]) for key, served in keys.items()}
            commands += self._carry_out(name, place.want(figures, now_us), now_us)
            if name in self._filled:
                commands += self._carry_out(name, place.fill(self._rates, now_us), now_us)
        if record.status is WorkerStatus.READY and name not in self._filled:
            self._filled.add(name)
            commands += self._carry_out(name, place.fill(self._rates, now_us), now_us)
        return commands

    def _keys(
        self, record: SliceRecord, each: DesiredSlice, models: Mapping[str, ServedModel]
    ) -> Iterator[tuple[Key, ServedModel]]:
        """Yield what may be on the slice: desired replicas, and retired models that still answer requests.

        A desired replica is left out while the slice still has it with other files.
        """
        stale = {
            _key(one)
            for one in record.replicas.values()
            if one.model in models and one.served.revision != models[one.model].revision
        }
        for desired in each.replicas:
            key = (desired.model, desired.variant)
            if key not in stale:
                yield key, models[desired.model]
        for one in record.replicas.values():
            if one.model not in models and not self._observed.retiring.get(one.model, False):
                yield _key(one), one.served

    def _figure(self, record: SliceRecord, model: ServedModel, variant: str) -> LoadFigures:
        profile = self._observed.profile(record.spec, model.name, variant)
        load_us = profile.load_us if profile is not None else 0
        share = 1.0 if variant == model.answering_variant else 0.0
        artifact_bytes = model.spec.variant(variant).artifact_bytes
        held_bytes = memory_estimate(profile, artifact_bytes, record.spec.memory_bytes)
        known = profile is not None and profile.memory_bytes > 0
        return LoadFigures(held_bytes, load_us or LOAD_US, share, model.slo_us, known)

    def _carry_out(self, name: str, orders: Iterable[Order], now_us: int) -> list[Command]:
        record = self._observed.slices[name]
        commands: list[Command] = []
        for order in orders:
            model, variant = key = order.key
            if isinstance(order, BeginLoad):
                found = next((one for one in record.replicas.values() if _key(one) == key), None)
                if found is not None:
                    commands.append(load(record, found, now_us))
            elif isinstance(order, BeginUnload):
                commands += self._unload(record, key, now_us)
            elif isinstance(order, Ready) and model in self._observed.models:
                self._cold.add(key)
                commands.append(Expect(model, variant, order.ready_us))
            elif isinstance(order, Refuse):
                commands += self._tell(key, self._ready_in_us(key, now_us))
        return commands

    def _unload(self, record: SliceRecord, key: Key, now_us: int) -> list[Command]:
        """Unload a replica; the scheduler hears that it is cold before it hears that it is gone."""
        commands: list[Command] = []
        for one in [*record.replicas.values()]:
            if _key(one) != key or one.status in (ReplicaStatus.ABSENT, ReplicaStatus.UNLOADING):
                continue
            if one.status is ReplicaStatus.READY:
                others = [other for other in self._observed.routed(one.model) if other is not one]
                if not any(other.variant == one.variant for other in others):
                    commands += self._tell(key, self._load_us(key, now_us))
                reason = "others need its memory more"
                commands.append(Unroute(record.spec.name, one.model, one.variant, reason))
            commands.append(unload(record, one, now_us))
        return commands

    def _say(self, now_us: int) -> Iterator[Command]:
        """Yield commands for changes of cold variants that the scheduler does not know yet."""
        routed = {_key(one) for _, one in self._observed.replicas() if one.status is ReplicaStatus.READY}
        here = {key for name in self._filled for key in self._desired.get(name, {})}
        for key in sorted(here - routed - self._cold):
            yield from self._tell(key, self._load_us(key, now_us))
        for key in sorted(self._cold - here - routed):
            yield from self._tell(key, NEVER_US)
        self._cold &= here - routed

    def _tell(self, key: Key, load_us: int) -> list[Command]:
        if key[0] not in self._observed.models:  # the model is forgotten
            self._cold.discard(key)
            return []
        self._cold.add(key)
        reasons = [place.why_never(key) for place in self._places.values()] if load_us == NEVER_US else []
        return [Cold(*key, load_us, next(filter(None, reasons), ""))]

    def _retract(
        self, place: SliceMemory, key: Key, told: Iterable[Command], now_us: int
    ) -> Iterable[Command]:
        """Tell the scheduler that an expected variant will not come, even if no request asked for it."""
        there = place.residence(key) in (LoadState.RESIDENT, LoadState.LOADING, LoadState.QUEUED)
        if there or key not in self._cold or any(isinstance(each, Cold) for each in told):
            return []
        return self._tell(key, self._ready_in_us(key, now_us))

    def _give_reasons(self) -> None:
        """Set the reason of replicas that cannot be loaded before something changes."""
        for name, place in self._places.items():
            for replica in self._observed.slices[name].replicas.values():
                if replica.status is ReplicaStatus.ABSENT and (why := place.why_never(_key(replica))):
                    replica.reason = why

    def _load_us(self, key: Key, now_us: int) -> int:
        """Return the time in us of the variant's own load, whatever else is loading now."""
        return min((place.load_us(key, now_us) for place in self._places.values()), default=NEVER_US)

    def _ready_in_us(self, key: Key, now_us: int) -> int:
        """Return when the variant could be ready, after the present loads."""
        return min((place.ready_in_us(key, now_us) for place in self._places.values()), default=NEVER_US)


def memory_estimate(profile: Profile | None, artifact_bytes: int, limit_bytes: int) -> int:
    """Return the assumed memory in bytes of a variant before it was loaded on a slice of `limit_bytes`.

    A profile that does not count imports apart is too high, because the first load of a process brings them.
    If only that keeps the variant out, it is assumed to need all of the slice: its load will show its real
    size.
    """
    least_bytes = artifact_bytes + PROCESS_BYTES
    if profile is None or not profile.memory_bytes:
        return least_bytes
    if profile.import_bytes is None and least_bytes <= limit_bytes:
        return min(profile.memory_bytes, limit_bytes)
    return profile.memory_bytes


def _key(replica: ReplicaRecord) -> Key:
    return replica.model, replica.variant
