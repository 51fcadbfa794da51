"""What is promised of control, watched from outside: nothing here knows how control decides.

The watch keeps a book of its own from the commands and events that pass, and holds each against it.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from serving.control.commands import (
    Cold,
    Command,
    EndWorker,
    Expect,
    ForgetModel,
    LoadReplica,
    Measure,
    Replan,
    RetireModel,
    Route,
    ServeModel,
    StartWorker,
    StopWorker,
    UnloadReplica,
    Unroute,
    Withdraw,
)
from serving.control.reconciling import LOAD_TRIES, START_TRIES
from serving.control.state.desired import DesiredReplica, DesiredState
from serving.control.state.timeouts import HEALTHY_US
from serving.simulation.governed.controlled import ControlledSimulation
from serving.simulation.governed.planning import VirtualPlan
from serving.simulation.governed.virtual_workers import Happening
from serving.values.slice_specs import SliceSpec
from serving.values.vocabulary import NEVER_US

Place = tuple[SliceSpec, str, str, str]
"""A slice (by the name that its planner gave), model, variant, revision."""


COMMANDS_MAX = 300
"""In any second: more is a loop."""


PATIENCE_US = 5_000_000
"""So long a worker that does not answer is waited for at least."""


@dataclass
class Held:
    """A replica that a worker was told to load."""

    key: tuple[str, str, str]
    loaded: bool = False
    leaving: bool = False
    turn_us: int = 0  # when it was told to load, or one that was told before had loaded


@dataclass
class Watched:
    """A worker that was told to start."""

    spec: SliceSpec
    ready: bool = False
    since_us: int = 0
    heard_us: int = 0  # when it last said something, or was told something with nothing else to do
    stopping: bool = False
    held: dict[int, Held] = field(default_factory=dict)
    routed: dict[tuple[str, str], int] = field(default_factory=dict)  # (model, variant) -> replica
    measuring: tuple[str, str] = ("", "")


class Watch(ControlledSimulation):
    """A run in which every command and every state between events is held against the promises."""

    def begin(self, known: Collection[tuple[object, ...]]) -> None:
        """To be called before anything else. `known`: (device, share, model, variant) with a profile."""
        self.known: set[tuple[object, ...]] = {*known}
        self.workers: dict[str, Watched] = {}
        self.served: set[str] = {model.name for model in self.control.desired.models}
        self.retired: set[str] = set()
        self.answered: set[str] = set()
        self.gone: set[str] = set()  # devices
        self.path: list[DesiredState] = [self.control.desired]
        self.home: DesiredState | None = None  # what was so before the move that is under way
        self.cause: tuple[str, Happening] = ("", ("asked",))
        self.told: set[tuple[str, str]] = (
            set()
        )  # of what the scheduler was told how cold it is, by this event
        self.taken: set[str] = set()  # models of which a replica was taken away, not by an accident
        self.mishaps: Counter[Hashable] = Counter()  # in a row: of slices, and of (slice, *key)
        self.cold: set[tuple[str, str]] = set()  # what may be asked for, and is loaded then
        self.busy: Mapping[str, Collection[str]] = {}  # by slice, as control was told with the last miss
        self.held_bytes: Mapping[tuple[str, str], int] = {}
        self.commands: Counter[int] = Counter()  # by second
        self.seen: Counter[str] = Counter()
        self.log: list[str] = []
        self.replans: list[str] = []

    # what passes

    def heard(self, slice_name: str, happening: Happening) -> None:
        """See `ControlledSimulation`."""
        self._note(f"-> {slice_name} {happening}")
        self.seen[happening[0]] += 1
        self.cause = (slice_name, happening)
        event, *arguments = happening
        worker = self.workers.get(slice_name)
        if event == "device_lost":
            self.gone.add(arguments[0])
        elif event == "device_back":
            self.gone.discard(arguments[0])
        elif event == "model_retired":
            self.answered.add(arguments[0])
        elif worker is not None:
            self._heard(slice_name, worker, event, arguments)

    def _heard(self, slice_name: str, worker: Watched, event: str, arguments: list[object]) -> None:
        name = _plain(worker.spec).name
        worker.heard_us = self.now_us
        if event == "worker_ready":
            worker.ready, worker.since_us = True, self.now_us
        elif event == "worker_lost":
            healthy = worker.ready and self.now_us - worker.since_us >= HEALTHY_US
            self.mishaps[name] = 1 if healthy else self.mishaps[name] + 1
            for held in worker.held.values():
                self.mishaps[name, *held.key] += not held.loaded  # it may have been that which killed it
            del self.workers[slice_name]
        elif event == "measured":
            self.known.add((worker.spec.device, worker.spec.share, *worker.measuring))
        elif event in ("replica_loaded", "replica_failed", "replica_unloaded"):
            number = arguments[0]
            assert isinstance(number, int)
            if event != "replica_unloaded":
                key = (name, *worker.held[number].key)
                self.mishaps[key] = self.mishaps[key] + 1 if event == "replica_failed" else 0
            if not worker.held[number].loaded:
                waiting = [*worker.held][[*worker.held].index(number) :]  # in the order of the orders
                for each in waiting:
                    worker.held[each].turn_us = self.now_us
            if event == "replica_loaded":
                worker.held[number].loaded = True
            else:
                assert number not in worker.routed.values() or event == "replica_failed", "unloaded, routed"
                del worker.held[number]

    def commanded(self, command: Command) -> None:
        """See `ControlledSimulation`."""
        if not isinstance(command, Measure | Route):
            self._note(f"{command}"[:150])
        self.commands[self.now_us // 1_000_000] += 1
        self.seen[type(command).__name__] += 1
        match command:
            case StartWorker(slice=name):
                assert name not in self.workers, f"{name} has a worker"
                spec = self.control.slices[name].spec
                assert spec.domain not in self.gone, f"{spec.domain} is gone"
                self.workers[name] = Watched(spec, heard_us=self.now_us)
            case StopWorker(slice=name):
                assert self.workers[name].ready, f"stop {name}"
                assert not self.workers[name].held, f"stop {name}: {self.workers[name].held}"
                assert not self.workers[name].stopping
                self.workers[name].stopping = True
            case EndWorker(slice=name, reason=reason):
                worker = self.workers[name]
                turns_us = [each.turn_us for each in worker.held.values() if not each.loaded]
                silent_us = self.now_us - min([worker.heard_us, *(turns_us if "load" in reason else ())])
                due = reason == "it stalls" or "not wanted" in reason or silent_us >= PATIENCE_US
                assert due, f"{command}: after {silent_us} us"
            case LoadReplica() | UnloadReplica() | Measure():
                self._order(command)
            case Route() | Unroute() | Withdraw():
                self._routing(command)
            case ServeModel(model=model):
                self.served.add(model.name)
                self.retired.discard(model.name)
                self.answered.discard(model.name)
            case RetireModel(model=name):
                assert name in self.served - self.retired, f"retire {name}"
                self.retired.add(name)
            case ForgetModel(model=name):
                assert name in self.retired & self.answered, f"forget {name}"
                assert not self.routed(name), f"forget {name}: {self.routed(name)}"
                self.served.discard(name)
                self.retired.discard(name)
                self.cold = {key for key in self.cold if key[0] != name}
            case Cold(model=model, variant=variant) | Expect(model=model, variant=variant):
                self.told.add((model, variant))
                never = isinstance(command, Cold) and command.load_us == NEVER_US
                (self.cold.discard if never else self.cold.add)((model, variant))
            case Replan(reason=reason):
                self.replans.append(reason)

    def _order(self, command: LoadReplica | UnloadReplica | Measure) -> None:
        worker = self.workers[command.slice]
        assert worker.ready, f"{command}"
        assert not worker.stopping, f"{command}"
        if all(each.loaded and not each.leaving for each in worker.held.values()):
            worker.heard_us = self.now_us
        held = worker.held.get(command.replica)
        if isinstance(command, LoadReplica):
            key = (command.model, command.variant, command.revision)
            assert held is None, f"{command}"
            assert all(each.key != key or each.leaving for each in worker.held.values()), f"twice: {command}"
            worker.held[command.replica] = Held(key, turn_us=self.now_us)
            return
        assert held is not None, f"{command}"
        assert not held.leaving, f"{command}"
        if isinstance(command, Measure):
            assert held.loaded, f"{command}"
            worker.measuring = held.key[:2]
        else:
            assert command.replica not in worker.routed.values(), f"{command}: routed"
            held.leaving = True

    def _routing(self, command: Route | Unroute | Withdraw) -> None:
        worker = self.workers.get(command.slice)
        if isinstance(command, Withdraw):
            if worker is not None:  # its device is lost, and the worker with it
                assert worker.spec.domain in self.gone, f"{command}"
                worker.routed.clear()
            return
        assert worker is not None, f"{command}"
        key = (command.model, command.variant)
        if isinstance(command, Unroute):
            assert key in worker.routed, f"{command}"
            del worker.routed[key]
            cause = self.cause[1][0]
            if worker.spec.memory_bytes:
                evicted = cause == "missed" and command.model in self.busy.get(command.slice, ())
                assert not evicted, f"{command}: it is busy"
            elif cause != "replica_failed":
                self.taken.add(command.model)
            return
        held = worker.held[command.replica]
        assert held.loaded, f"{command}"
        assert not held.leaving, f"{command}"
        assert held.key[:2] == key, f"{command}"
        assert (worker.spec.device, worker.spec.share, *key) in self.known, f"{command}: not measured"
        assert command.model in self.served, f"{command}: not served"
        if worker.routed.get(key) != command.replica:
            self._note(f"{command}"[:150])
        worker.routed[key] = command.replica

    def settled(self) -> None:
        """See `ControlledSimulation`."""
        routed = self.every() if self.taken else set()
        for model in self.taken - self.answered:
            here = {place for place in routed if place[1] == model}
            serving = [state for state in self.path if any(each.name == model for each in state.models)]
            wanted = [_places(state, model) for state in serving]
            assert any(self._is_covered(each, here) for each in wanted), f"{model} has {here} of {wanted}"
        self.taken.clear()
        self._check_residency()
        self.cause = ("", ("asked",))

    def _check_residency(self) -> None:
        """Who asks for what is cold is told at once, and memory suffices."""
        event, *arguments = self.cause[1]
        if event == "missed":
            assert tuple(arguments) in self.told, f"nothing was said of {arguments}"
        self.told.clear()
        for name, worker in self.workers.items() if self.held_bytes else ():
            held_bytes = sum(self.held_bytes[each.key[:2]] for each in worker.held.values())
            assert held_bytes <= worker.spec.memory_bytes, f"{name} holds {held_bytes}"

    def _is_covered(self, wanted: set[Place], here: set[Place]) -> bool:
        """Whether all that can be there is; never nothing where something is wanted."""
        there = {place for place in wanted if not self._is_hopeless(place)}
        return there <= here and bool(here or not wanted)

    def _is_hopeless(self, place: Place) -> bool:
        """Whether it cannot be there, as far as anybody knows."""
        spec, *key = place
        lost = spec.domain in self.gone or self.mishaps[spec.name] >= START_TRIES
        return lost or self.mishaps[spec.name, *key] >= LOAD_TRIES

    def planned(self, plan: VirtualPlan) -> None:
        """See `ControlledSimulation`."""
        self.want(plan.wanted, plan.by)

    def want(self, wanted: DesiredState, by: tuple[DesiredState, ...] = ()) -> None:
        """It was asked for: until then all of what was asked for before counts."""
        self._note(f"WANT {shown(wanted)} by {[shown(each) for each in by]}")
        if self.control.progress.state == "steady":
            self.path, self.home = [self.control.desired], self.control.desired
        self.path += [*by, wanted]

    def roll_back(self, now_us: int) -> Sequence[Command]:
        """Give up the move that is under way, if any: what was so before it is wanted again."""
        self._note("TURN BACK")
        moving = self.control.progress.state != "steady" and self.home is not None
        commands = self.control.roll_back(now_us)
        if moving and self.home is not None:
            assert _plain_slices(self.control.desired) == _plain_slices(self.home)
        return commands

    def conclude(self) -> None:
        """Long after the last accident: what is wanted is so, or it is said why not."""
        progress, wanted = self.control.progress, self.control.desired
        assert _plain_slices(wanted) in [_plain_slices(each) for each in self.path], "nobody asked for it"
        assert self.control.wake_us > self.now_us
        assert self.served == {model.name for model in wanted.models} or progress.reasons
        assert not self.retired or progress.reasons
        missing = {place for place in _places(wanted) - self.every() if not place[0].memory_bytes}
        assert all(self._is_hopeless(place) for place in missing), f"{missing} is missing"
        for spec, model, *_ in missing:
            named = [spec.device in each or spec.name in each or model in each for each in progress.reasons]
            assert any(named), f"{progress.reasons} do not say why {model} is not on {spec.name}"
        if progress.state == "steady":
            kept = {place for place in self.held() if self._is_kept(place, wanted)}
            assert self.every() <= _places(wanted) | kept, "more is routed than is wanted"
            assert self.held() <= _places(wanted, standing=True) | kept, "more is loaded than is wanted"
            slices = {_plain(each.spec) for each in wanted.slices} | {place[0] for place in kept}
            assert {_plain(each.spec) for each in self.workers.values()} <= slices
        else:
            assert progress.reasons, f"{progress}"
        assert max(self.commands.values(), default=0) < COMMANDS_MAX, self.commands.most_common(3)

    def _is_kept(self, place: Place, wanted: DesiredState) -> bool:
        """Whether it is there only because its model would have nothing else."""
        places = _places(wanted, place[1])
        return bool(places) and not places & self.every()

    # what there is

    def held(self) -> set[Place]:
        """All that is loaded, or to be."""
        return {
            (_plain(worker.spec), *held.key)
            for worker in self.workers.values()
            for held in worker.held.values()
        }

    def every(self) -> set[Place]:
        """All that is routed."""
        return {
            (_plain(worker.spec), *worker.held[number].key)
            for worker in self.workers.values()
            for number in worker.routed.values()
            if number in worker.held
        }

    def routed(self, model: str) -> list[Place]:
        """Of a model."""
        return [place for place in self.every() if place[1] == model]

    def _note(self, text: str) -> None:
        self.log.append(f"{self.now_us / 1e6:9.3f} {text}")


def _plain(spec: SliceSpec) -> SliceSpec:
    return replace(spec, name=spec.name.partition("~")[0])


def _plain_slices(wanted: DesiredState) -> list[tuple[SliceSpec, tuple[DesiredReplica, ...]]]:
    return [(_plain(each.spec), each.replicas) for each in wanted.slices]


def _places(wanted: DesiredState, model: str = "", *, standing: bool = False) -> set[Place]:
    revision = {each.name: each.revision for each in wanted.models}
    return {
        (_plain(each.spec), one.model, one.variant, revision[one.model])
        for each in wanted.slices
        for one in each.replicas
        if (one.routed or standing) and model in ("", one.model)
    }


def shown(wanted: DesiredState) -> str:
    """For the log."""
    there = []
    for each in wanted.slices:
        replicas = [f"{one.model}.{one.variant}{'' if one.routed else '-'}" for one in each.replicas]
        there.append(f"{each.spec.name} {each.spec.share}: {' '.join(replicas)}")
    return "; ".join(there)
