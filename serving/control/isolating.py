"""Which models have a worker process of their own, so that the others of their slice outlive what they do.

A model that is stated to (`isolate: always`) has one from the start, one that is left to the gateway (`auto`)
once processes have died DEATHS_MAX times within WINDOW_US while they were busy with it, or once a load of it
has kept all else in its process from running for HELD_MAX_US. What is wanted is
divided accordingly before it is reconciled: the process is a slice on the same cores, so that it is made
before the shared one lets the model go. The mark is of the model's files: others are given the shared
process again.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace

from serving.control.commands import Isolate
from serving.control.desired import DesiredSlice, DesiredState
from serving.specs import ServedModel, own_process

DEATHS_MAX = 3
WINDOW_US = 300_000_000
HELD_MAX_US = 1_000_000
"""A load that keeps the interpreter so long makes others late by as much. Imports keep it for 0.1 s at most
(`python -m loadtests.loading`); a process that waits for a busy core is far from a second."""
KEPT_MAX = 1_000
"""Deaths of one model that are remembered: back-off lets a slice's worker die some 30 times in 5 minutes."""


@dataclass(frozen=True, slots=True)
class Isolation:
    """How a model stands. `stated`: its `isolate`; `processes`: those that it has to itself, or is to have;
    `why`: what it has done that it has them, "" where it is as stated; `deaths`: worker processes that died
    busy with it in the last WINDOW_US, `died` since the start. At `limit` deaths it is moved."""

    stated: str
    processes: tuple[str, ...]
    why: str
    deaths: int
    died: int
    limit: int = DEATHS_MAX


@dataclass(slots=True)
class _Record:
    """Deaths of one model, by these files, and since the start. `why`: it is to be alone, "" where not."""

    revision: str
    at_us: list[int] = field(default_factory=list)
    died: int = 0
    why: str = ""


class Isolating:
    """Of all models."""

    def __init__(self) -> None:
        self._records: dict[str, _Record] = {}
        self._divided: tuple[DesiredState, DesiredState, DesiredState] | None = (
            None  # of these two, the latest answer
        )

    def died(self, models: Collection[str], current: DesiredState, now_us: int) -> list[Isolate]:
        """A worker process is gone that was busy with these models: who gets one of its own for that."""
        served = {model.name: model for model in current.models}
        found: list[Isolate] = []
        for name in models:
            if name in served and self._count(served[name], now_us):
                why = f"{DEATHS_MAX} worker processes died of it within {WINDOW_US // 60_000_000} minutes"
                found += self._move(served[name], current, why)
        return found

    def held(self, model: ServedModel, held_us: int, current: DesiredState) -> list[Isolate]:
        """A load of a model is over that kept all else in its process from running for so long."""
        why = f"its load holds the interpreter for {held_us / 1e6:.1f} s"
        for each in current.models if held_us >= HELD_MAX_US else ():
            if (each.name, each.revision) == (model.name, model.revision):
                return self._move(each, current, why)
        return []

    def is_deadly(self, model: ServedModel) -> bool:
        """Whether a process has died busy with a model, by its present files."""
        record = self._records.get(model.name)
        return record is not None and record.revision == model.revision and bool(record.at_us)

    def _count(self, model: ServedModel, now_us: int) -> bool:
        """One more death; whether they are too many."""
        record = self._record(model)
        record.died += 1
        record.at_us = [*_lately(record, now_us), now_us][-KEPT_MAX:]
        return len(record.at_us) >= DEATHS_MAX

    def _record(self, model: ServedModel) -> _Record:
        """By its present files."""
        record = self._records.setdefault(model.name, _Record(model.revision))
        if record.revision != model.revision:
            record = self._records[model.name] = _Record(model.revision, died=record.died)
        return record

    def _move(self, model: ServedModel, current: DesiredState, why: str) -> list[Isolate]:
        """Mark it, if it is not marked yet: where it is alone that would help nobody."""
        record = self._record(model)
        shares = any(model.name in among and len(among) > 1 for _, among in _shared(current))
        if model.isolate != "auto" or record.why or not shares:
            return []
        record.why, self._divided = why, None
        return [Isolate(model.name, why)]

    def keep(self, current: DesiredState) -> None:
        """Something else is wanted: forget the marks of models that are gone, or stated otherwise."""
        stated = {model.name: model.isolate for model in current.models}
        for name, record in self._records.items():
            if record.why and stated.get(name) != "auto":
                record.why = ""
                record.at_us = []
                self._divided = None

    def divided(self, desired: DesiredState, whole: DesiredState) -> DesiredState:
        """What is wanted, with a slice on the same cores for each model that has a process of its own.

        `whole`: before it was filtered by load. Who is alone on a slice there shares nothing, and one with
        `memory_bytes` is left as it is: its models are loaded on demand within these.
        """
        known = self._divided
        if known is not None and known[0] is desired and known[1] is whole:
            return known[2]
        own = {model.name for model in desired.models if self._has_own(model)}
        found = desired
        if own:
            among = {each.spec.name: models for each, models in _shared(whole)}
            slices = (one for each in desired.slices for one in _split(each, own, among))
            found = replace(desired, slices=tuple(slices))
        self._divided = desired, whole, found
        return found

    def standing(self, model: ServedModel, whole: DesiredState, now_us: int) -> Isolation:
        """How a model stands in what is wanted before it is filtered by load."""
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
    """The slices that can be divided, with their models."""
    for each in whole.slices:
        if not each.spec.memory_bytes:
            yield each, {one.model for one in each.replicas}


def _split(each: DesiredSlice, own: Collection[str], among: "dict[str, set[str]]") -> Iterator[DesiredSlice]:
    """The slice without those models, unless nothing is left of it then, and one for each of them."""
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
