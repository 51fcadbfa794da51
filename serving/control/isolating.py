"""Which models have own processes, so that the other models of their slices outlive what they do.

With `isolate: always` a model has one from the start. With `auto` it gets one in two cases:
- Processes died DEATHS_MAX times within WINDOW_US while they were busy with it.
- A load of it kept everything else in its process from running for HELD_MAX_US.

The desired state is divided accordingly before it is reconciled. The own process is a slice on the same
cores, so it is made before the shared one unloads the model. The mark belongs to the model's files: a model
with new files gets the shared process again.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace

from serving.control.commands import Isolate
from serving.control.state.desired import DesiredSlice, DesiredState
from serving.values.slice_specs import own_process
from serving.values.specs import ServedModel

DEATHS_MAX = 3
WINDOW_US = 300_000_000
HELD_MAX_US = 1_000_000
"""A load that keeps the interpreter for so long makes others late by as much.

Imports keep it for 0.1 s at most (`python -m loadtests.core.loading`); a process that waits for a busy core
is far from a second.
"""
DIVIDED_KEPT = 4
"""The latest results of `Isolating.divided`: of the present state, its target and the last good one."""
KEPT_MAX = 1_000
"""How many deaths of one model are kept: back-off lets a slice's worker die some 30 times in 5 minutes."""


@dataclass(frozen=True, slots=True)
class Isolation:
    """A model's isolation.

    `stated`: its `isolate`. `processes`: its own processes, present or to come. `why`: what it did to get
    them, "" if it is as stated. `deaths`: worker processes that died busy with it in the last WINDOW_US;
    `died`: since the start. At `limit` deaths it gets its own processes.
    """

    stated: str
    processes: tuple[str, ...]
    why: str
    deaths: int
    died: int
    limit: int = DEATHS_MAX


@dataclass(slots=True)
class _Record:
    """Deaths of one model, with these files, and since the start.

    `why`: it is to have own processes, "" if not.
    """

    revision: str
    at_us: list[int] = field(default_factory=list)
    died: int = 0
    why: str = ""


class Isolating:
    """The isolation of all models."""

    def __init__(self) -> None:
        self._records: dict[str, _Record] = {}
        self._divided: list[tuple[DesiredState, DesiredState, DesiredState]] = []

    def died(self, models: Collection[str], current: DesiredState, now_us: int) -> list[Isolate]:
        """Count the death of a worker busy with these models; return which of them are isolated for it."""
        served = {model.name: model for model in current.models}
        found: list[Isolate] = []
        for name in models:
            if name in served and self._count(served[name], now_us):
                why = f"{DEATHS_MAX} worker processes died of it within {WINDOW_US // 60_000_000} minutes"
                found += self._move(served[name], current, why)
        return found

    def held(self, model: ServedModel, held_us: int, current: DesiredState) -> list[Isolate]:
        """Isolate a model if its load kept everything else in its process from running for too long."""
        why = f"its load holds the interpreter for {held_us / 1e6:.1f} s"
        for each in current.models if held_us >= HELD_MAX_US else ():
            if (each.name, each.revision) == (model.name, model.revision):
                return self._move(each, current, why)
        return []

    def is_deadly(self, model: ServedModel) -> bool:
        """Return whether a process has died busy with a model, with its present files."""
        record = self._records.get(model.name)
        return record is not None and record.revision == model.revision and bool(record.at_us)

    def _count(self, model: ServedModel, now_us: int) -> bool:
        """Count one more death; return whether there are too many."""
        record = self._record(model)
        record.died += 1
        record.at_us = [*_lately(record, now_us), now_us][-KEPT_MAX:]
        return len(record.at_us) >= DEATHS_MAX

    def _record(self, model: ServedModel) -> _Record:
        """Return the model's record for its present files."""
        record = self._records.setdefault(model.name, _Record(model.revision))
        if record.revision != model.revision:
            record = self._records[model.name] = _Record(model.revision, died=record.died)
        return record

    def _move(self, model: ServedModel, current: DesiredState, why: str) -> list[Isolate]:
        """Mark the model if it is not marked yet. If it is alone, that would help no other model."""
        record = self._record(model)
        shares = any(model.name in among and len(among) > 1 for _, among in _shared(current))
        if model.isolate != "auto" or record.why or not shares:
            return []
        record.why, self._divided = why, []
        return [Isolate(model.name, why)]

    def keep(self, current: DesiredState) -> None:
        """Forget the marks of models that are gone, or are not `auto` any more."""
        stated = {model.name: model.isolate for model in current.models}
        for name, record in self._records.items():
            if record.why and stated.get(name) != "auto":
                record.why = ""
                record.at_us = []
                self._divided = []

    def divided(self, desired: DesiredState, whole: DesiredState) -> DesiredState:
        """Return the desired state, with a slice on the same cores for each own process.

        `whole`: the desired state before it was filtered by load. A model that is alone on a slice there
        shares nothing. A slice with `memory_bytes` stays as it is: its models are loaded on demand within
        that limit.
        """
        for one, other, known in self._divided:
            if one is desired and other is whole:
                return known
        own = {model.name for model in desired.models if self._has_own(model)}
        found = desired
        if own:
            among = {each.spec.name: models for each, models in _shared(whole)}
            slices = (one for each in desired.slices for one in _split(each, own, among))
            found = replace(desired, slices=tuple(slices))
        self._divided = [(desired, whole, found), *self._divided[: DIVIDED_KEPT - 1]]
        return found

    def standing(self, model: ServedModel, whole: DesiredState, now_us: int) -> Isolation:
        """Return a model's isolation. `whole`: the desired state before it is filtered by load."""
        record = self._records.get(model.name, _Record(model.revision))
        current = record.revision == model.revision
        processes = (
            own_process(each.spec.name, model.name)
            for each, among in (_shared(whole) if self._has_own(model) else ())
            if model.name in among and len(among) > 1
        )
        deaths = len(_lately(record, now_us)) if current else 0
        return Isolation(model.isolate, tuple(processes), record.why if current else "", deaths, record.died)

    def _has_own(self, model: ServedModel) -> bool:
        if model.isolate != "auto":
            return model.isolate == "always"
        record = self._records.get(model.name)
        return record is not None and record.revision == model.revision and bool(record.why)


def _lately(record: _Record, now_us: int) -> list[int]:
    return [at_us for at_us in record.at_us if at_us > now_us - WINDOW_US]


def _shared(whole: DesiredState) -> Iterator[tuple[DesiredSlice, set[str]]]:
    """Yield the slices that can be divided, with their models."""
    for each in whole.slices:
        if not each.spec.memory_bytes:
            yield each, {one.model for one in each.replicas}


def _split(each: DesiredSlice, own: Collection[str], among: "dict[str, set[str]]") -> Iterator[DesiredSlice]:
    """Yield the slice without those models, unless that is empty, and a slice for each of them."""
    spec = each.spec
    apart = [name for name in dict.fromkeys(one.model for one in each.replicas) if name in own]
    if not apart or len(among.get(spec.name, ())) < 2:
        yield each
        return
    shared = tuple(one for one in each.replicas if one.model not in own)
    if shared:
        yield replace(each, replicas=shared)
    for name in apart:
        replicas = tuple(one for one in each.replicas if one.model == name)
        yield DesiredSlice(replace(spec, name=own_process(spec.name, name)), replicas)
