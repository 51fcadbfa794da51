"""When a variant is back with its restarted worker: requests with enough slack wait for it.

The scheduler hears that before it hears that the worker is gone, so requests that wait there may stay. The
planned instant follows from the times of the slice's last start and the replica's last load. It changes only
with the state of the slice. If a replica is late, the scheduler expects it after as long again.
"""

from collections import Counter
from collections.abc import Callable, Iterable

from serving.control.commands import Cold, Command, Expect
from serving.control.on_demand.on_demand import LOAD_US
from serving.control.reconciling import LOAD_TRIES, START_TRIES
from serving.control.state.earliest import Earliest
from serving.control.state.observed import ObservedState
from serving.control.state.replicas import LOADED, ReplicaRecord, ReplicaStatus, SliceRecord, WorkerStatus
from serving.values.vocabulary import NEVER_US

Key = tuple[str, str]
"""Model and variant."""

SHIFT_US = 50_000
"""A smaller change of a planned instant is not worth a command."""


class Returning:
    """The expected returns on all slices, except on-demand ones (see
    `serving/control/on_demand/on_demand.py`)."""

    def __init__(self, observed: ObservedState, scales: Callable[[str], bool]) -> None:
        """Keep what the returns depend on. `scales`: whether the autoscaler places a model.

        If it does, it says itself when none will come.
        """
        self._observed = observed
        self._scales = scales
        self._said_us: dict[Key, int] = {}  # when the scheduler expects each
        self._planned: dict[Key, Earliest[int]] = {}  # of the replicas that are not ready, by id
        self._ready: Counter[Key] = Counter()  # replicas that get batches
        self._seen: dict[str, list[tuple[Key, int]]] = {}  # by slice: its replicas, ready ones with id 0
        self._unborn: set[str] = set()  # slices without a worker yet: they plan from the present instant

    def routed(self, record: SliceRecord) -> list[Key]:
        """Return the variants that get batches on a slice, and would with its next worker."""
        if record.spec.memory_bytes:
            return []
        ready = [each for each in record.replicas.values() if each.status is ReplicaStatus.READY]
        return sorted({(each.model, each.variant) for each in ready} - self._lent())

    def expect(self, keys: Iterable[Key], now_us: int) -> list[Command]:
        """Return commands that say when these variants are back, without those that will not come back."""
        commands: list[Command] = []
        self._look(self._observed.touched, now_us)
        for key in keys:
            back_us = self._back_us(key, now_us)
            if back_us < NEVER_US and key[0] in self._observed.models:
                self._said_us[key] = back_us
                commands.append(Expect(*key, back_us))
        return commands

    def review(self, changed: Iterable[str], now_us: int) -> list[Command]:
        """Return commands for variants that will come at another time than said before, or not at all.

        `changed`: the slices that may have changed since the last review.
        """
        commands: list[Command] = []
        self._look(changed, now_us)
        lent = self._lent() if self._said_us else set[Key]()
        for key, said_us in [*self._said_us.items()]:
            model, variant = key
            if self._ready[key] or model not in self._observed.models or key in lent:
                del self._said_us[key]
                continue
            back_us = self._back_us(key, now_us)
            if back_us == NEVER_US:
                del self._said_us[key]
                commands += [] if self._scales(model) else [Cold(model, variant, NEVER_US)]
            elif abs(back_us - said_us) > SHIFT_US:
                self._said_us[key] = back_us
                commands.append(Expect(*key, back_us))
        return commands

    def _lent(self) -> set[Key]:
        """Return the variants that a slice with too little memory loads on demand."""
        return {
            (each.model, each.variant)
            for record in self._observed.limited.values()
            for each in record.replicas.values()
        }

    # what is planned, slice by slice

    def _look(self, names: Iterable[str], now_us: int) -> None:
        """Plan again for slices that may have changed."""
        for name in names:
            for key, number in self._seen.pop(name, ()):
                if number:
                    self._planned[key].set(number, NEVER_US)
                else:
                    self._ready[key] -= 1
            self._unborn.discard(name)
            record = self._observed.slices.get(name)
            if record is None:
                continue
            if record.status is WorkerStatus.STOPPED:
                self._unborn.add(name)
            seen = self._seen[name] = []
            for each in record.replicas.values():
                key = (each.model, each.variant)
                if each.status is ReplicaStatus.READY:
                    self._ready[key] += 1
                    seen.append((key, 0))
                elif not record.spec.memory_bytes:
                    self._planned.setdefault(key, Earliest()).set(each.id, _planned_us(record, each, now_us))
                    seen.append((key, each.id))

    def _back_us(self, key: Key, now_us: int) -> int:
        """Return when the next replica is planned to get batches; NEVER_US if none will."""
        self._look([*self._unborn], now_us)
        planned = self._planned.get(key)
        return NEVER_US if planned is None else planned.least_us


def _planned_us(record: SliceRecord, replica: ReplicaRecord, now_us: int) -> int:
    """Return when a replica is loaded on its slice, after those before it."""
    begin_us = _worker_us(record, now_us)
    if begin_us == NEVER_US or replica.failures >= LOAD_TRIES or replica.status is ReplicaStatus.UNLOADING:
        return NEVER_US
    if replica.status is ReplicaStatus.FAILED:
        return replica.retry_us if replica.retry_us == NEVER_US else replica.retry_us + _load_us(replica)
    for each in record.replicas.values():
        begin_us += 0 if each.status in LOADED or each.status is ReplicaStatus.FAILED else _load_us(each)
        if each is replica:
            break
    return begin_us


def _worker_us(record: SliceRecord, now_us: int) -> int:
    """Return when a slice's worker can load, or when it last reported a finished load."""
    if record.failures >= START_TRIES:
        return NEVER_US
    if record.status is WorkerStatus.WAITING:
        return record.retry_us + record.start_us
    if record.status is WorkerStatus.STARTING:
        return record.since_us + record.start_us
    if record.status is WorkerStatus.READY:
        return record.heard_us
    if record.status is WorkerStatus.STOPPED:  # the slice is new: its worker starts at once
        return now_us + record.start_us
    return NEVER_US


def _load_us(replica: ReplicaRecord) -> int:
    known_us = replica.profile.load_us if replica.profile is not None else 0
    return replica.load_us or known_us or LOAD_US
