"""What is, held against what is wanted, every minute: cores, replicas, memory, and the load that was planned.

A worker that has left its cores is put back. Everything else is said, and mended by nobody here: control
loads and restarts on its own, and another placement is for an operator to ask for.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from router.management.operations.applied import PlannedFor, applied
from router.management.rounds import rounds
from router.settings import Settings
from serving.control.rollouts.rollout import RolloutState
from serving.control.state.desired import DesiredSlice, DesiredState
from serving.control.state.replicas import LOADED, ReplicaStatus
from serving.runtime.calls.gateway import Gateway
from serving.runtime.fleet import Fleet
from serving.values.slice_specs import SliceSpec

logger = logging.getLogger(__name__)

PERIOD_S = 60.0
CONFIRMED = 2
"""Checks in a row that find it before it is said: workers that restart and short bursts are no drift."""
LOW = 0.5
"""Of the requests that a placement was made for; a model that is asked less has more than it needs."""
WORKER_BYTES = 1 << 30
"""What a worker's process may hold beyond its replicas: activations, and libraries' own memory, of which
torch has 0.15 GB."""

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class ObservedReplica:
    """A replica that a worker has, or is to have."""

    model: str
    variant: str
    status: ReplicaStatus
    reason: str = ""
    memory_bytes: int = 0


@dataclass(frozen=True, slots=True)
class ObservedWorker:
    """A slice and its worker; `pid`: None where none runs."""

    spec: SliceSpec
    pid: int | None
    replicas: tuple[ObservedReplica, ...] = ()


@dataclass(frozen=True, slots=True)
class Sight:
    """All that is. `wanted`: None while a move to it is under way; `rates`: requests a second by model;
    `loads`: what the placement was made for."""

    workers: tuple[ObservedWorker, ...]
    wanted: DesiredState | None = None
    rates: Mapping[str, float] = field(default_factory=dict)
    loads: Mapping[str, PlannedFor] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Finding:
    """`key`: what it is about, the same as long as it lasts; `sentence`: with the figures of the moment;
    `mended`: it is over."""

    key: str
    sentence: str
    mended: bool = False


class PlacementDrift:
    """`look` says what is, but for the loads that the placement was made for, which `loads` reads from disk.
    `found`: sentences on what the last check found."""

    def __init__(
        self,
        look: Callable[[], Sight],
        loads: Callable[[], Mapping[str, PlannedFor]],
        period_s: float = PERIOD_S,
    ) -> None:
        self._look = look
        self._loads = loads
        self._period_s = period_s
        self._seen: dict[str, int] = {}  # checks in a row, by key
        self.found: tuple[str, ...] = ()

    async def run(self) -> None:
        """Check, again and again, until cancelled."""
        await rounds(self.check, self._period_s, logger, "the drift check failed")

    async def check(self) -> None:
        """Look once; what is new is logged."""
        loads = await asyncio.to_thread(self._loads)
        sight = replace(self._look(), loads=loads)
        findings = [*await asyncio.to_thread(examined, sight.workers), *drifted(sight)]
        self._seen = {each.key: self._seen.get(each.key, 0) + 1 for each in findings}
        told = [each for each in findings if each.mended or self._seen[each.key] >= CONFIRMED]
        for each in told:
            if each.mended or self._seen[each.key] == CONFIRMED:
                logger.warning("drift: %s", each.sentence)
        self.found = tuple(each.sentence for each in told)


def sight(fleet: Fleet, gateway: Gateway) -> Sight:
    """Return the observed state at this moment."""
    steady = fleet.movement is RolloutState.STEADY
    workers = (
        ObservedWorker(
            record.spec,
            fleet.pid(name),
            tuple(
                ObservedReplica(each.model, each.variant, each.status, each.reason, each.memory_bytes)
                for each in record.replicas.values()
            ),
        )
        for name, record in fleet.control.slices.items()
    )
    return Sight(tuple(workers), fleet.control.expected if steady else None, gateway.rates())


def planned(settings: Settings) -> Mapping[str, PlannedFor]:
    """Return the loads that the placement in force with these settings was made for; empty if none were
    stated."""
    found = applied(settings)
    return found.loads if found else {}


def drifted(sight: Sight) -> list[Finding]:
    """Return what differs from what is wanted, and from what the placement was made for."""
    return [*_replicas(sight), *_memory(sight.workers), *_rates(sight)]


def examined(workers: Iterable[ObservedWorker], proc: Path = _PROC) -> list[Finding]:
    """Return what worker processes do that their slices do not say; those off their cores are put back."""
    found: list[Finding] = []
    for each in workers:
        if each.pid is not None:
            with suppress(ProcessLookupError, FileNotFoundError):  # it has just ended
                found += _cores(each.spec, each.pid, proc)
                found += _resident(each.spec, each.pid, proc)
    return found


def _cores(spec: SliceSpec, pid: int, proc: Path) -> Iterator[Finding]:
    """Yield each thread has cores of its own: those of a worker stay within the slice's."""
    wanted = {*spec.cores}
    tasks = [int(each.name) for each in (proc / str(pid) / "task").iterdir()] if wanted else []
    strays: set[int] = set()
    for task in tasks:
        with suppress(ProcessLookupError):
            there = os.sched_getaffinity(task)
            if there != wanted and (task == pid or not there <= wanted):
                strays |= there
                _put_back(task, wanted)
    if not strays:
        return
    with suppress(ProcessLookupError):
        worker = f"the worker of slice {spec.name} (process {pid})"
        what = f"{worker} ran on {_named(strays)}, not on {_named(wanted)}"
        if os.sched_getaffinity(pid) == wanted:
            yield Finding(f"cores {spec.name}", f"{what}; it was put back", mended=True)
        else:
            yield Finding(f"cores {spec.name}", f"{what}, and cannot be put back: are these cores usable?")


def _put_back(task: int, cores: set[int]) -> None:
    try:
        os.sched_setaffinity(task, cores)
    except ProcessLookupError:
        raise
    except OSError as error:  # they are not this process's to use any more
        logger.debug("thread %d cannot be put back: %s", task, error)


def _resident(spec: SliceSpec, pid: int, proc: Path) -> Iterator[Finding]:
    """Yield a worker that holds too much memory of its own. Weights that workers share are files, and are not
    counted."""
    if not spec.memory_bytes:
        return
    for line in (proc / str(pid) / "status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "RssAnon":
            held = int(value.split()[0]) << 10
            if held > spec.memory_bytes + WORKER_BYTES:
                what = f"the worker of slice {spec.name} holds {_mb(held)}, of which its replicas may have"
                yield Finding(f"resident {spec.name}", f"{what} {_mb(spec.memory_bytes)}")


def _memory(workers: Iterable[ObservedWorker]) -> Iterator[Finding]:
    for each in workers:
        held = sum(replica.memory_bytes for replica in each.replicas if replica.status in LOADED)
        if 0 < each.spec.memory_bytes < held:
            what = f"the replicas of slice {each.spec.name} hold {_mb(held)}"
            yield Finding(f"memory {each.spec.name}", f"{what}; it may have {_mb(each.spec.memory_bytes)}")


def _replicas(sight: Sight) -> Iterator[Finding]:
    if sight.wanted is None:
        return
    wanted = {each.spec.name: each for each in sight.wanted.slices}
    there = {each.spec.name: each for each in sight.workers}
    for name, each in wanted.items():
        if name not in there:
            yield Finding(f"absent {name}", f"slice {name} is wanted and is not there")
        else:
            yield from _of_slice(each, there[name])
    for name in there:
        if name not in wanted:
            yield Finding(f"surplus {name}", f"slice {name} is there and is not wanted")


def _of_slice(wanted: DesiredSlice, worker: ObservedWorker) -> Iterator[Finding]:
    name = wanted.spec.name
    aims = {(each.model, each.variant): each for each in wanted.replicas}
    there = {(each.model, each.variant): each for each in worker.replicas}
    for key, aim in aims.items() if not wanted.spec.memory_bytes else ():  # else they are loaded on demand
        has = there.get(key)
        status = has.status if has else ReplicaStatus.ABSENT
        if status is not ReplicaStatus.READY and (aim.routed or status is not ReplicaStatus.STANDING):
            why = f" ({has.reason})" if has and has.reason else ""
            what = f"slice {name}: {' '.join(key)} is wanted, and is {status.value}{why}"
            yield Finding(f"replica {name} {' '.join(key)}", what)
    for key, has in there.items():
        if key not in aims and has.status in LOADED:
            what = f"slice {name}: {' '.join(key)} is loaded, and is not wanted"
            yield Finding(f"unwanted {name} {' '.join(key)}", what)


def _rates(sight: Sight) -> Iterator[Finding]:
    for model, load in sight.loads.items():
        rate = sight.rates.get(model)
        if rate is None:
            continue
        carried = load.capacity / (load.rows or 1.0)
        asked = f"{model} is asked {rate:.3g} requests a second"
        if rate > carried:
            what = f"{asked}, more than the {carried:.3g} that its placement carries"
            yield Finding(f"more {model}", f"{what}; `penstock place --apply` looks for another")
        elif rate < LOW * load.requests:
            what = f"{asked}, less than half of the {load.requests:.3g} that its placement was made for"
            advice = "`penstock place --apply` says whether another is worth its moves"
            yield Finding(f"less {model}", f"{what}; {advice}")


def _named(cores: Iterable[int]) -> str:
    listed = [str(core) for core in sorted(cores)]
    return f"{'cores' if len(listed) > 1 else 'core'} {', '.join(listed)}"


def _mb(size_bytes: int) -> str:
    return f"{size_bytes / (1 << 20):,.0f} MB"
