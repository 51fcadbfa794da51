"""Worker processes in virtual time: they start, load one replica after the other, unload, measure and die.

A slow load has the next one beside it, as in `serving.worker.loop.loader`.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from serving.control.commands import LoadReplica, Measure
from serving.control.on_demand.on_demand_model import BESIDE_MAX, SLOW_US
from serving.values.slice_specs import SliceSpec

Key = tuple[str, str]
"""Model, variant."""

SLOW: Final = "load is slow"
"""Happens to the worker alone."""

Happening = tuple[Any, ...]
"""The name of an event of control's, and its arguments but for the slice and the instant."""


@dataclass(frozen=True, slots=True)
class Weight:
    """What a variant takes to load, and what it then holds."""

    load_us: int = 400_000
    memory_bytes: int = 1 << 30


@dataclass(frozen=True, slots=True)
class WorkerTerms:
    """How workers fare. Times are microseconds, shares are of all tries.

    `weights` by model and variant. `broken`: models that cannot be loaded, on a device or on any (""). A
    worker dies `crash_mtbf_s` seconds after its start in the mean, 0: never. `hanging`: of starts, loads,
    unloads and stops, that never end. `row_us`: what a row takes while it is measured.
    """

    weights: Mapping[Key, Weight] = field(default_factory=dict)
    broken: frozenset[tuple[str, str]] = frozenset()  # (device, model)
    start_us: int = 200_000
    unload_us: int = 20_000
    stop_us: int = 50_000
    plan_us: int = 300_000
    row_us: int = 1_000
    starts_failing: float = 0.0
    loads_failing: float = 0.0
    hanging: float = 0.0
    crash_mtbf_s: float = 0.0

    def weight(self, key: Key) -> Weight:
        """Return the weight of a variant."""
        return self.weights.get(key, Weight())


class CommandError(RuntimeError):
    """Control asked for what no worker can do. The text says what and why."""


@dataclass(slots=True)
class VirtualWorker:
    """The process of one slice. `number`: of all that were ever started."""

    spec: SliceSpec
    number: int
    ready: bool = False
    stopping: bool = False
    loaded: dict[int, Key] = field(default_factory=dict)
    loads: deque[LoadReplica] = field(default_factory=deque)  # that wait
    begun: dict[int, LoadReplica] = field(default_factory=dict)  # by replica
    held_up: int = 0  # the replica that loads and is not slow yet
    leaving: set[int] = field(default_factory=set)
    measuring: int = 0


class Chances:
    """What goes wrong, drawn from one seed in the order in which it is asked for. `calm_us`: from then on
    nothing does but what always does."""

    def __init__(self, terms: WorkerTerms, seed: int, calm_us: int) -> None:
        self._terms = terms
        self._rng = np.random.default_rng([seed, 8])
        self._calm_us = calm_us

    def start(self, now_us: int) -> str:
        """Return how a worker's start ends: "" well, "hang" never, else why not."""
        return self._draw(self._terms.starts_failing, "could not be started", now_us)

    def load(self, load: LoadReplica, device: str, now_us: int) -> str:
        """Return how a load ends: as a start."""
        for place in (device, ""):
            if (place, load.model) in self._terms.broken:
                return f"{load.model} cannot be loaded{f' on {place}' if place else ''}"
        return self._draw(self._terms.loads_failing, "out of luck", now_us)

    def hangs(self, now_us: int) -> bool:
        """Return whether what is done now never ends."""
        return self._draw(0.0, "", now_us) == "hang"

    def lifetime_us(self, now_us: int) -> int | None:
        """Return after how long a worker that starts now dies; None: it does not."""
        if not self._terms.crash_mtbf_s:
            return None
        life_us = int(self._rng.exponential(self._terms.crash_mtbf_s) * 1e6) + 1
        return life_us if now_us + life_us < self._calm_us else None

    def jitter(self, typical_us: int) -> int:
        """Return a time of half to one and a half of what is typical."""
        return int(typical_us * (0.5 + float(self._rng.random())))

    def _draw(self, failing: float, reason: str, now_us: int) -> str:
        drawn = float(self._rng.random())
        if now_us >= self._calm_us:
            return ""
        if drawn < self._terms.hanging:
            return "hang"
        return reason if drawn < self._terms.hanging + failing else ""


def _loads(worker: VirtualWorker, replica: int) -> bool:
    return replica in worker.begun or any(replica == each.replica for each in worker.loads)


class Workers:
    """All processes. `tell(after_us, worker, *happening)` is called for what will happen to a worker, if it
    lives then."""

    def __init__(self, terms: WorkerTerms, chances: Chances, tell: Callable[..., None]) -> None:
        self._terms = terms
        self._chances = chances
        self._tell = tell
        self._count = 0
        self.by_slice: dict[str, VirtualWorker] = {}
        self.failed: set[str] = set()  # domains on which no worker can start

    def live(self, slice_name: str, what: str) -> VirtualWorker:
        """Return the worker of a slice that takes commands; CommandError where there is none."""
        worker = self.by_slice.get(slice_name)
        if worker is None or not worker.ready or worker.stopping:
            state = (
                "no worker" if worker is None else "a worker that stops" if worker.stopping else "no answer"
            )
            raise CommandError(f"{what}: {state} on slice {slice_name}")
        return worker

    def start(self, spec: SliceSpec, now_us: int) -> None:
        """Start a new process for a slice that has none."""
        if spec.name in self.by_slice:
            raise CommandError(f"start: slice {spec.name} has a worker")
        self._count += 1
        worker = self.by_slice[spec.name] = VirtualWorker(spec, self._count)
        after_us, fate = self._chances.jitter(self._terms.start_us), self._chances.start(now_us)
        if spec.domain in self.failed:
            fate = f"finds no {spec.domain}"
        if fate != "hang":
            self._tell(after_us, worker, "worker_lost" if fate else "worker_ready", *([fate] if fate else []))
        life_us = self._chances.lifetime_us(now_us)
        if life_us is not None:
            self._tell(life_us, worker, "worker_lost", "died")

    def stop(self, slice_name: str, after_us: int, now_us: int) -> None:
        """Stop a worker: it ends what it has, within `after_us`, and exits."""
        worker = self.by_slice.get(slice_name)
        if worker is None:
            raise CommandError(f"stop: no worker on slice {slice_name}")
        worker.stopping = True
        after_us += self._chances.jitter(self._terms.stop_us)
        if not self._chances.hangs(now_us):
            self._tell(after_us, worker, "worker_lost", "stopped")

    def load(self, load: LoadReplica, now_us: int) -> None:
        """Load a replica after those that were asked for before."""
        worker = self.live(load.slice, f"load {load.model}")
        if load.replica in worker.loaded or _loads(worker, load.replica):
            raise CommandError(f"load {load.model}: replica {load.replica} of {load.slice} is loaded")
        worker.loads.append(load)
        self._begin(worker, now_us)

    def unload(self, slice_name: str, replica: int, after_us: int, now_us: int) -> None:
        """Give a replica's memory back, once its batches are done after so long. One that is being loaded is
        dropped then, and never said to be loaded."""
        worker = self.live(slice_name, "unload")
        loads = _loads(worker, replica)
        if not (loads or replica in worker.loaded) or replica in worker.leaving:
            raise CommandError(f"unload: replica {replica} is not on slice {slice_name}")
        worker.leaving.add(replica)
        if not loads and not self._chances.hangs(now_us):
            after_us += self._chances.jitter(self._terms.unload_us)
            self._tell(after_us, worker, "replica_unloaded", replica)

    def measure(self, command: Measure) -> None:
        """Time batches of a loaded replica."""
        worker, wanted = self.live(command.slice, "measure"), command.measurement
        if command.replica not in worker.loaded or command.replica in worker.leaving:
            raise CommandError(f"measure: replica {command.replica} is not on slice {command.slice}")
        if worker.measuring:
            raise CommandError(f"measure: slice {command.slice} measures replica {worker.measuring}")
        worker.measuring = command.replica
        took_us = [self._terms.row_us * wanted.rows] * wanted.repeats
        self._tell(sum(took_us), worker, "measured", (wanted.rows, wanted.size), took_us)

    def happens(self, worker: VirtualWorker, happening: Happening, now_us: int) -> Happening | None:
        """Return what its gateway sees of it, if anything; None also where that worker is gone. Its state is
        as after it."""
        if self.by_slice.get(worker.spec.name) is not worker:
            return None
        event = happening[0]
        if event == "worker_ready":
            worker.ready = True
        elif event == "worker_lost":
            del self.by_slice[worker.spec.name]
        elif event == SLOW:
            self._go_on(worker, happening[1], now_us)
            return None
        elif event in ("replica_loaded", "replica_failed"):
            load = worker.begun.pop(happening[1])
            if load.replica in worker.leaving:
                happening = ("replica_unloaded", load.replica)
                worker.leaving.discard(load.replica)
            elif event == "replica_loaded":
                worker.loaded[load.replica] = (load.model, load.variant)
            self._go_on(worker, load.replica, now_us)
        elif event == "replica_unloaded":
            del worker.loaded[happening[1]]
            worker.leaving.discard(happening[1])
        elif event == "measured":
            worker.measuring = 0
        return happening

    def _go_on(self, worker: VirtualWorker, replica: int, now_us: int) -> None:
        """Note that that load holds up no other any more."""
        if worker.held_up == replica:
            worker.held_up = 0
        self._begin(worker, now_us)

    def _begin(self, worker: VirtualWorker, now_us: int) -> None:
        """Begin the first of the waiting loads, if no load is under way that is not slow."""
        if not worker.loads or worker.held_up or len(worker.begun) == BESIDE_MAX:
            return
        load = worker.loads.popleft()
        worker.begun[load.replica] = load
        worker.held_up = load.replica
        self._tell(SLOW_US, worker, SLOW, load.replica)
        weight = self._terms.weight((load.model, load.variant))
        fate = self._chances.load(load, worker.spec.device, now_us)
        took_us = self._chances.jitter(weight.load_us)
        if fate == "hang":
            return
        if fate:
            self._tell(took_us // 2, worker, "replica_failed", load.replica, fate)
        else:
            self._tell(took_us, worker, "replica_loaded", load.replica, (took_us, weight.memory_bytes))
