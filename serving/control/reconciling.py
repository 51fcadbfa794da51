"""The next commands that bring the observed state to the desired one, computed again after each event.

No plan is kept. From any observed state, it loads what is missing, then routes what is loaded, then unloads
what is not desired, in that order by model. So it goes on after any crash, and follows a new desired state.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from serving.control.commands import (
    Command,
    EndWorker,
    ForgetModel,
    LoadReplica,
    RetireModel,
    Route,
    ServeModel,
    StartWorker,
    StopWorker,
    UnloadReplica,
    Unroute,
)
from serving.control.measuring import route
from serving.control.state.desired import DesiredSlice, DesiredState
from serving.control.state.observed import RENAMED, ObservedState, plain
from serving.control.state.outstanding import Index, Outstanding, index, is_as
from serving.control.state.replicas import (
    Key,
    ReplicaRecord,
    ReplicaStatus,
    SliceRecord,
    WorkerStatus,
    why_absent,
)
from serving.policy.estimates.freshness import Freshness
from serving.values.slice_specs import SliceSpec
from serving.values.specs import ServedModel
from serving.values.vocabulary import NEVER_US

LOAD_TRIES = 3  # of one replica, before a rollout is given up
START_TRIES = 5  # of one worker in a row
_GONE = (ReplicaStatus.ABSENT, ReplicaStatus.FAILED)
_ALIVE = (WorkerStatus.STARTING, WorkerStatus.READY)
_OF_SLICES = (StartWorker, EndWorker, StopWorker, LoadReplica, UnloadReplica, Route, Unroute)


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference between observed and desired state, of a slice or of a replica there.

    `hopeless`: it failed so often that no rollout should wait for it; the controller still tries it.
    """

    sentence: str
    slice: str = ""
    key: Key | None = None
    hopeless: bool = False


class _Cover(Enum):
    """Whether a model has its other desired replicas, so that one may go.

    HOPELESS: it has none, because all of them failed. Then the old one is better than none.
    """

    THERE = 1
    COMING = 2
    HOPELESS = 3


class Reconciling:
    """The comparison of `observed` with one desired state at a time.

    `waits_for`: the process that loads a replica before a slice does, "" if the slice need not wait.
    """

    def __init__(
        self, observed: ObservedState, waits_for: Callable[[SliceRecord, ReplicaRecord], str]
    ) -> None:
        self._observed = observed
        self._waits_for = waits_for
        self._slices = observed.slices
        self._outstanding = Outstanding(observed.slices, self._is_given_up)
        self._changed = set[str]()
        self._coming: dict[str, bool] = {}  # as `_awaits_others` has found in this pass
        self._held = set[str]()  # slices with replicas that wait for `_awaits_others`
        self._crowded = set[str]()  # new shares of GPUs on which another share is just leaving

    def expect(self, first: DesiredState) -> None:
        """Make the records of all desired replicas, before any command."""
        models = {model.name: model for model in first.models}
        for each in first.slices:
            self._enter(self._observed.enter(each.spec), each, models)

    def advance(self, current: DesiredState, now_us: int) -> list[Command]:
        """Return all commands that are possible now.

        Only slices that have changed are looked at, and those for which something else may have changed.
        """
        observed, outstanding = self._observed, self._outstanding
        outstanding.take(current)
        commands = self._serve(outstanding.models)
        full = outstanding.is_fresh() or bool(commands)
        names = (
            outstanding.all() if full else observed.touched.union(observed.limited, self._crowded, self._held)
        )
        observed.touched = {*names} if full else set()
        desired = outstanding.desired(names)
        self._held.clear()
        self._coming.clear()
        steps = [self._bring(each, outstanding.models, now_us) for each in desired]
        steps += [self._route(each, outstanding.models, now_us) for each in desired]
        outstanding.look(names)
        for model, kept in outstanding.kept.items():
            if kept and self._cover(model) is _Cover.THERE:
                names |= kept
        again = names.difference(outstanding.wanted)  # they may be looked at once more
        for record in observed.ordered(names):
            count = len(record.replicas)
            steps.append(self._let_go(record, now_us))
            if steps[-1] or len(record.replicas) != count:
                again.add(record.spec.name)
        steps.append(self._retire(outstanding.models))
        steps.append(self._stop(names, now_us))
        waiting = outstanding.desired(self._crowded)  # room may be there now
        steps += [self._bring(each, outstanding.models, now_us) for each in waiting]
        for step in steps:
            commands += step
            observed.touched.update(each.slice for each in step if isinstance(each, _OF_SLICES))
        outstanding.look(again)
        self._changed |= names
        return commands

    def changed(self) -> set[str]:
        """Return the slices that may have changed since the last call."""
        changed, self._changed = self._changed.union(self._observed.touched), set[str]()
        return changed

    def look_again(self) -> None:
        """Look at all slices again that wait for a first load elsewhere."""
        self._observed.touched |= self._outstanding.waiting

    def differences(self, current: DesiredState, in_order: bool = True) -> Iterator[Difference]:
        """Yield how the observed state differs from `current`. For a single one, not all need be sorted."""
        outstanding = self._outstanding
        outstanding.take(current)
        if outstanding.is_fresh():
            outstanding.look(outstanding.all())
            self._observed.touched |= outstanding.all()
        outstanding.look(self._observed.touched)
        lacking = outstanding.lacking
        for names in [lacking] if in_order else ((name,) for name in lacking):
            yield from self._differences_on(names)
        for name in [name for name in self._observed.models if name not in outstanding.models]:
            yield Difference(f"requests for {name} are still open")

    def _differences_on(self, names: Collection[str]) -> Iterator[Difference]:
        outstanding = self._outstanding
        for each in outstanding.desired(names):
            yield from self._lacks_on(each, outstanding.keys[each.spec.name])
        forsaken, records = set[str](), self._observed.ordered(names)
        for record in records:
            name, wanted = record.spec.name, outstanding.keys.get(record.spec.name, {})
            for replica in record.replicas.values():
                if replica.key not in wanted:
                    hopeless = self._cover(replica.model) is _Cover.HOPELESS
                    forsaken |= {name} if hopeless else set()
                    what = f"{replica.model} {replica.variant}"
                    yield Difference(f"{what} is still on {name}", name, replica.key, hopeless)
        for name in [each.spec.name for each in records if each.spec.name not in outstanding.wanted]:
            yield Difference(f"the worker of slice {name} has not ended", name, None, name in forsaken)

    def _lacks_on(self, each: DesiredSlice, desired: Index) -> Iterator[Difference]:
        name, record = each.spec.name, self._slices.get(each.spec.name)
        if record is None or record.status is not WorkerStatus.READY:
            lost = self._observed.lost.get(each.spec.domain)
            state = "not there" if record is None else record.status.value
            sentence = f"the worker of slice {name} is {f'lost: {lost}' if lost else state}"
            yield Difference(sentence, name, None, record is not None and self._is_hopeless(record))
            return
        there = record.by_key()
        for key, replica in {} if each.spec.memory_bytes else desired.items():
            found = there.get(key)
            if not is_as(found, replica):
                status = found.status if found else ReplicaStatus.ABSENT
                told = why_absent(record, found) if found else ""
                why = f": {told}" if told else ""
                sentence = f"{replica.model} {replica.variant} is {status.value} on {name}{why}"
                yield Difference(sentence, name, key, found is not None and found.failures >= LOAD_TRIES)

    def _is_hopeless(self, record: SliceRecord) -> bool:
        """Return whether a slice has no worker, and none is to be expected."""
        if record.status is WorkerStatus.READY:
            return False
        return record.spec.domain in self._observed.lost or record.failures >= START_TRIES

    def _is_given_up(self, record: SliceRecord, replica: ReplicaRecord | None) -> bool:
        """Return whether no model should wait for a replica that is desired on a slice."""
        return self._is_hopeless(record) or (replica is not None and replica.failures >= LOAD_TRIES)

    # steps, in the order in which they are taken

    def _serve(self, models: Mapping[str, ServedModel]) -> list[Command]:
        """Return commands that give the scheduler each model that is new, or has new settings.

        A model with new files is served with them when its first new replica is routed.
        """
        commands: list[Command] = []
        for name, model in models.items():
            told = self._observed.models.get(name)
            back = self._observed.retiring.pop(name, None) is not None
            if told == model and not back:
                continue
            if told is not None and told.revision != model.revision:
                if not back:
                    continue
                if told.spec.version != model.spec.version:  # it answers until the other one has the name
                    commands.append(ServeModel(told))
                    continue
            commands.append(self._tell(model))
            moved = told is not None and _but_for_place(told, model) == model
            for record, replica in self._observed.replicas():
                if replica.model == name and replica.served.revision == model.revision:
                    replica.served, replica.sweep.slo_us = model, model.slo_us
                    if replica.status is ReplicaStatus.READY and not moved:
                        commands.append(route(record, replica))  # the limits of its batches have changed
        return commands

    def _tell(self, model: ServedModel) -> ServeModel:
        self._observed.models[model.name] = model
        return ServeModel(model)

    def _bring(self, each: DesiredSlice, models: Mapping[str, ServedModel], now_us: int) -> list[Command]:
        """Start the worker of a desired slice, or load the missing replicas there."""
        record = self._observed.enter(each.spec)
        self._crowded.discard(each.spec.name)
        if record.status is WorkerStatus.STOPPED and each.spec.domain not in self._observed.lost:
            if self._is_crowded(record):
                self._crowded.add(each.spec.name)
                return []
            return [start(record, now_us)]
        self._enter(record, each, models)
        if record.status is not WorkerStatus.READY or each.spec.memory_bytes:
            return []
        there = record.by_key()
        found = [there[key] for key in index(each, models)]
        for one in found:
            one.waits_for = self._waits_for(record, one) if one.status is ReplicaStatus.ABSENT else ""
        absent = [one for one in found if one.status is ReplicaStatus.ABSENT and not one.waits_for]
        return [load(record, one, now_us) for one in absent]

    def _is_crowded(self, record: SliceRecord) -> bool:
        """Return whether a share of the same GPU is just leaving: it may have the place of this one."""
        if record.spec.part is None:
            return False
        wanted, there = self._outstanding.wanted, self._observed.on_device(record.spec.device)
        return any(_is_leaving(each) for each in there if each.spec.name not in wanted)

    def _enter(self, record: SliceRecord, each: DesiredSlice, models: Mapping[str, ServedModel]) -> None:
        """Make the records of the replicas that are new."""
        there = record.by_key()
        new = [
            (models[one.model], one.variant) for key, one in index(each, models).items() if key not in there
        ]
        known = self._observed.profile
        unknown = sum(known(record.spec, model.name, variant) is None for model, variant in new)
        for model, variant in new:
            self._observed.add(record, model, variant, unknown)

    def _route(self, each: DesiredSlice, models: Mapping[str, ServedModel], now_us: int) -> list[Command]:
        """Send batches to the replicas that stand by and are desired as routed."""
        record, commands = self._slices[each.spec.name], list[Command]()
        there = record.by_key()
        for key, desired in index(each, models).items():
            model, found = models[desired.model], there.get(key)
            if found is None or found.status is not ReplicaStatus.STANDING or not desired.routed:
                continue
            if self._observed.models[desired.model] != model:
                if self._awaits_others(model):
                    self._held.add(each.spec.name)
                    continue
                commands.append(self._tell(model))
            found.status = ReplicaStatus.READY
            commands.append(route(record, found))
            for other in record.replicas.values():  # of another revision: it is replaced
                same = (other.model, other.variant) == (found.model, found.variant)
                if same and other is not found and other.status is ReplicaStatus.READY:
                    commands.append(unload(record, other, now_us))
        return commands

    def _awaits_others(self, model: ServedModel) -> bool:
        """Return whether a model's name is to go to another version that is not loaded on all its slices yet.

        The name changes hands on all slices at once, so that an answer is of the version that it states.
        Where nothing answers under the name any more, it does not wait.
        """
        name = model.name
        if self._observed.models[name].spec.version == model.spec.version:
            return False
        if name not in self._coming:
            self._coming[name] = bool(self._observed.routed(name)) and self._outstanding.is_coming(model)
        return self._coming[name]

    def _let_go(self, record: SliceRecord, now_us: int) -> list[Command]:
        """Unroute or unload the replicas of a slice that are not desired so."""
        desired = self._outstanding.keys.get(record.spec.name)
        commands: list[Command] = []
        lent = record.spec.memory_bytes > 0 and desired is not None
        for replica in [*record.replicas.values()]:
            kept = (desired or {}).get(replica.key)
            if lent and kept is None and self._still_answers(replica.model):
                if replica.status is ReplicaStatus.STANDING:  # it was loaded for a request that waits
                    replica.status = ReplicaStatus.READY
                    commands.append(route(record, replica))
            elif kept is None and (replica.status in _GONE or record.status not in _ALIVE):
                del record.replicas[replica.id]
            elif lent:  # `serving/control/on_demand/on_demand.py` decides on evictions there
                continue
            elif replica.status is ReplicaStatus.READY:
                if (kept is None or not kept.routed) and self._cover(replica.model) is _Cover.THERE:
                    reason = "it is not wanted there any more"
                    name = record.spec.name
                    commands.append(Unroute(name, replica.model, replica.variant, reason))
                    replica.status = ReplicaStatus.STANDING
                    commands += [unload(record, replica, now_us)] if kept is None else []
            elif kept is None and replica.status is not ReplicaStatus.UNLOADING:
                commands.append(unload(record, replica, now_us))
        return commands

    def _still_answers(self, model: str) -> bool:
        """Return whether a model is no longer desired, but has open requests."""
        return model not in self._outstanding.models and not self._observed.retiring.get(model, False)

    def _cover(self, model: str) -> "_Cover":
        """Return whether a replica of a model may go.

        It may if all other desired replicas get batches, except those that failed long ago. If the model
        itself goes, all its requests must be answered.
        """
        if model not in self._outstanding.models:
            return _Cover.THERE if self._observed.retiring.get(model, False) else _Cover.COMING
        ready, coming, given_up = self._outstanding.counts(model)
        if coming:
            return _Cover.COMING
        return _Cover.THERE if ready or not given_up else _Cover.HOPELESS

    def _retire(self, models: Mapping[str, ServedModel]) -> list[Command]:
        """Retire the models that are not desired any more."""
        observed, commands = self._observed, list[Command]()
        for name in [name for name in observed.models if name not in models]:
            if name not in observed.retiring:
                observed.retiring[name] = False
                commands.append(RetireModel(name))
            elif observed.retiring[name] and not any(each.model == name for _, each in observed.replicas()):
                del observed.retiring[name], observed.models[name]
                commands.append(ForgetModel(name))
        return commands

    def _stop(self, names: Iterable[str], now_us: int) -> list[Command]:
        """End the workers of slices that are not desired and hold nothing."""
        commands: list[Command] = []
        wanted = self._outstanding.wanted
        for record in self._observed.ordered(name for name in names if name not in wanted):
            name = record.spec.name
            if record.replicas or record.status is WorkerStatus.STOPPING:
                continue
            if record.status is WorkerStatus.READY:
                commands.append(StopWorker(name))
            elif record.status is WorkerStatus.STARTING:
                commands.append(EndWorker(name, "it is not wanted any more"))
            else:
                self._observed.remove(name)
                continue
            record.status, record.heard_us = WorkerStatus.STOPPING, now_us
        return commands


def _is_leaving(record: SliceRecord) -> bool:
    """Return whether a slice that is not desired waits for no other to take its batches."""
    return not any(each.status is ReplicaStatus.READY for each in record.replicas.values())


def _but_for_place(told: ServedModel, model: ServedModel) -> ServedModel:
    """Return `told` with the slices and the isolation of `model`."""
    return replace(told, slices=model.slices, isolate=model.isolate)


def excused(lack: Difference, last_good: DesiredState | None, target: DesiredState) -> bool:
    """Return whether a rollout from `last_good` to `target` need not wait for a difference.

    It need not wait for what had failed in the same place before the rollout, nor for what is to go anyway.
    """
    if not lack.hopeless or last_good is None:
        return lack.hopeless
    return wants(last_good, lack) or not wants(target, lack)


def wants(desired: DesiredState, lack: Difference) -> bool:
    """Return whether a desired state includes what the difference is about."""
    revisions = {model.name: model.revision for model in desired.models}
    for each in desired.slices:
        if each.spec.name == lack.slice:
            keys = ((one.model, one.variant, revisions.get(one.model)) for one in each.replicas)
            return lack.key is None or lack.key in keys
    return False


def start(record: SliceRecord, now_us: int) -> StartWorker:
    """Return the command to start a slice's worker."""
    record.status, record.since_us, record.retry_us = WorkerStatus.STARTING, now_us, NEVER_US
    record.heard_us = now_us
    return StartWorker(record.spec.name)


def _begin(record: SliceRecord, now_us: int) -> None:
    """Start the clock of a worker that gets an order and had none."""
    under_way = (ReplicaStatus.LOADING, ReplicaStatus.UNLOADING)
    if not any(each.status in under_way for each in record.replicas.values()):
        record.heard_us = now_us


def load(record: SliceRecord, replica: ReplicaRecord, now_us: int) -> LoadReplica:
    """Return the command to load a replica."""
    _begin(record, now_us)
    record.begin_load(replica, now_us)
    replica.status, replica.retry_us = ReplicaStatus.LOADING, NEVER_US
    replica.freshness = Freshness.FRESH  # earlier findings went with the worker
    served = replica.served
    return LoadReplica(
        record.spec.name, replica.id, replica.model, replica.variant, served.spec, served.revision
    )


def unload(record: SliceRecord, replica: ReplicaRecord, now_us: int) -> UnloadReplica:
    """Return the command to unload a replica."""
    _begin(record, now_us)
    replica.status = ReplicaStatus.UNLOADING
    return UnloadReplica(record.spec.name, replica.id)


def resolved(
    states: Sequence[DesiredState], kept: Iterable[DesiredState], slices: Mapping[str, SliceRecord]
) -> list[DesiredState]:
    """Return the states with final names for their slices.

    A slice that equals one that is there, or one of the `kept` states to go back to, is that slice. If
    another slice has its name, it gets a free one: `name~2`, `name~3` and so on.
    """
    known = {each.spec.name: each.spec for state in kept for each in state.slices}
    ending = {name for name, each in slices.items() if each.status is WorkerStatus.STOPPING}
    for name, record in slices.items():
        place = record.spec.place
        if name not in ending or name != place:  # an own process alone takes its place's name, too
            known[place] = replace(record.spec, name=place)
    names: dict[SliceSpec, str] = {}
    for state in states:
        for each in state.slices:
            if each.spec not in names:
                names[each.spec] = _name(each.spec, known, ending.union(names.values()))
    return [
        replace(
            state,
            slices=tuple(
                replace(each, spec=replace(each.spec, name=names[each.spec])) for each in state.slices
            ),
        )
        for state in states
    ]


def _name(spec: SliceSpec, known: Mapping[str, SliceSpec], taken: Collection[str]) -> str:
    name = plain(spec.name)
    for each, there in known.items():
        if plain(each) == name and replace(there, name=spec.name) == spec and each not in taken:
            return each
    return next(each for each in _names(name) if each not in known and each not in taken)


def _names(name: str) -> Iterator[str]:
    yield name
    number = 1
    while True:
        number += 1
        yield f"{name}{RENAMED}{number}"
