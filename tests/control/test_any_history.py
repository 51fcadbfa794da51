"""Whatever happens, in whatever order: control asks only for what can be done, takes no model's last replica
away, and once nothing goes wrong any more all that is wanted comes true.

PENSTOCK_SEEDS raises the number of histories: `PENSTOCK_SEEDS=200 pytest tests/control` plays 2,000 new ones.
"""

import sys
from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from serving.control.commands import (
    Command,
    EndWorker,
    ForgetModel,
    LoadReplica,
    Measure,
    RetireModel,
    Route,
    ServeModel,
    StartWorker,
    StopWorker,
    UnloadReplica,
    Unroute,
    Withdraw,
)
from serving.control.control import Control
from serving.control.state.desired import DesiredState
from serving.values.slice_specs import SliceSpec, place_of
from serving.values.specs import Limits
from serving.values.vocabulary import NEVER_US
from tests.builders import KIND
from tests.control.wanted_states import DEVICES, KNOWN, MODELS, SLICES, VERSION, wanted_states
from tests.seeds import drawn

guilty = st.sampled_from(((), ("m",), ("m",), ("n",), ("m", "n")))
"""The models that a worker is busy with as it dies."""

PATIENCE_US = 5_000_000
"""So long a worker that does not answer is waited for at least."""
Place = tuple[str, str, str, str]
"""Slice, model, variant, revision."""


@dataclass
class Process:
    """A worker and what it was told. `loads`, `unloads`: of which it has not said yet that they are done.
    `heard_us`: when it last said something, or was told something with nothing else to do."""

    spec: SliceSpec
    heard_us: int
    ready: bool = False
    stopping: bool = False
    ending: bool = False
    keys: dict[int, tuple[str, str, str]] = field(default_factory=dict)
    loads: deque[int] = field(default_factory=deque)
    unloads: deque[int] = field(default_factory=deque)
    turn_us: int = 0  # when the first of `loads` became the first
    routed: dict[tuple[str, str], int] = field(default_factory=dict)
    measuring: Measure | None = None

    def order_load(self, number: int, now_us: int) -> None:
        """A load behind those that were told before."""
        if not self.loads:
            self.turn_us = now_us
        self.loads.append(number)

    def next_load(self, now_us: int) -> int:
        """The load that ends now; the one behind it is the first from now on."""
        self.turn_us = now_us
        return self.loads.popleft()


class AnyHistory(RuleBasedStateMachine):
    """Events in any order that workers could give them; `processes` is what a driver would have."""

    def __init__(self) -> None:
        super().__init__()
        first = tuple(replace(model, slices=("d0", "cpu0")) for model in MODELS)
        limits = Limits(sweep_s=0.01)
        self.control = Control((SLICES[0], SLICES[2]), first, KNOWN, limits, lambda _: KIND)
        self.now_us = 0
        self.processes: dict[str, Process] = {}
        self.lost: set[str] = set()
        self.retiring: set[str] = set()
        self.loaded: set[tuple[str, str, str]] = set()
        self.asked: list[DesiredState] = [self.control.desired]
        self.way: list[DesiredState] = []  # the states that were last asked for, one after the other
        self.do(self.control.start(0))

    # what is asked

    @rule(wanted=wanted_states, by=st.lists(wanted_states, max_size=2))
    def want(self, wanted: DesiredState, by: list[DesiredState]) -> None:
        self.way = [*by, wanted]
        self.asked += self.way
        self.do(self.control.want(wanted, self.now_us, by))

    @rule()
    def roll_back(self) -> None:
        self.do(self.control.roll_back(self.now_us))

    # what happens

    @rule(after_us=st.sampled_from((0, 1000, 200_000, 11_000_000, 130_000_000)))
    def tick(self, after_us: int) -> None:
        self.now_us += after_us
        if self.control.wake_us <= self.now_us:
            self.do(self.control.tick(self.now_us, [*self.processes]))

    @rule(data=st.data())
    def worker_ready(self, data: st.DataObject) -> None:
        self._each(data, [name for name, each in self.processes.items() if not each.ready], self._start)

    @rule(data=st.data())
    def worker_lost(self, data: st.DataObject) -> None:
        self._each(data, [*self.processes], lambda name: self._lose(name, data.draw(guilty)))

    @rule(data=st.data())
    def replica_loaded(self, data: st.DataObject) -> None:
        self._each(data, [name for name, each in self.processes.items() if each.loads], self._load)

    @rule(data=st.data())
    def replica_failed(self, data: st.DataObject) -> None:
        def fail(name: str) -> None:
            process = self.heard(name)
            number = process.next_load(self.now_us)
            if number in process.unloads:
                self._unloaded(name, number)
            else:
                del process.keys[number]
                self.do(self.control.replica_failed(name, number, "no luck", self.now_us), fault=True)

        self._each(data, [name for name, each in self.processes.items() if each.loads], fail)

    @rule(data=st.data())
    def replica_unloaded(self, data: st.DataObject) -> None:
        self._each(data, [name for name, each in self.processes.items() if _free(each)], self._unload)

    @rule(data=st.data())
    def measured(self, data: st.DataObject) -> None:
        self._each(data, [name for name, each in self.processes.items() if each.measuring], self._measure)

    @rule(device=st.sampled_from(DEVICES))
    def device_lost(self, device: str) -> None:
        self.lost.add(device)
        self.do(self.control.device_lost(device, "it is gone", self.now_us), fault=True)
        for name in [name for name, each in self.processes.items() if each.spec.device == device]:
            self._lose(name)

    @rule(device=st.sampled_from(DEVICES))
    def device_back(self, device: str) -> None:
        self.lost.discard(device)
        self.do(self.control.device_back(device, self.now_us))

    @precondition(lambda self: self.retiring)
    @rule(data=st.data())
    def model_retired(self, data: st.DataObject) -> None:
        self._each(data, sorted(self.retiring), self._retire)

    @invariant()
    def is_never_late(self) -> None:
        progress = self.control.progress
        assert 1 <= progress.step <= progress.steps

    def teardown(self) -> None:
        """Nothing goes wrong any more."""
        if sys.exc_info()[0] is not None:
            return  # a promise was broken before: that is what to report
        for device in DEVICES:
            self.device_back(device)
        for _ in range(2000):
            if not self._go_on():
                break
        progress, wanted, expected = self.control.progress, self.control.desired, self.control.expected
        assert progress.state == "steady", progress
        assert progress.waiting == (), progress
        assert self.routed() == _places(expected, routed=True)
        assert self.held() == _places(expected, routed=False)
        there = {name: process.spec for name, process in self.processes.items()}
        assert there == {each.spec.name: each.spec for each in expected.slices}
        by_place = {(place_of(place), *key) for place, *key in _places(expected, routed=False)}
        assert by_place == _places(wanted, routed=False)
        assert not self.retiring
        plain = [[(each.spec.share, each.replicas) for each in state.slices] for state in self.asked]
        assert [(each.spec.share, each.replicas) for each in wanted.slices] in plain

    def _go_on(self) -> bool:
        """Whatever a worker has to say next; whether there was anything."""
        for name, process in [*self.processes.items()]:
            if process.stopping or process.ending:
                self._lose(name)
            elif not process.ready:
                self._start(name)
            elif process.loads:
                self._load(name)
            elif _free(process):
                self._unload(name)
            elif process.measuring:
                self._measure(name)
            else:
                continue
            return True
        if self.retiring:
            self._retire(min(self.retiring))
        elif self.control.wake_us < NEVER_US:
            self.now_us = max(self.now_us, self.control.wake_us)
            self.do(self.control.tick(self.now_us, [*self.processes]))
        else:
            return False
        return True

    # one event of a worker

    @staticmethod
    def _each(data: st.DataObject, names: list[str], act: Callable[[str], None]) -> None:
        if names:
            act(data.draw(st.sampled_from(names)))

    def _start(self, name: str) -> None:
        self.heard(name).ready = True
        self.do(self.control.worker_ready(name, self.now_us))

    def _lose(self, name: str, busy_with: Collection[str] = ()) -> None:
        del self.processes[name]
        self.do(self.control.worker_lost(name, "died", self.now_us, busy_with), fault=True)

    def _load(self, name: str) -> None:
        process = self.heard(name)
        number = process.next_load(self.now_us)
        if number in process.unloads:
            self._unloaded(name, number)
        else:
            self.loaded.add(process.keys[number])
            self.do(self.control.replica_loaded(name, number, (5, 7), self.now_us))

    def _unload(self, name: str) -> None:
        self._unloaded(name, _free(self.processes[name])[0])

    def _unloaded(self, name: str, number: int) -> None:
        process = self.heard(name)
        process.unloads.remove(number)
        del process.keys[number]
        self.do(self.control.replica_unloaded(name, number, self.now_us))

    def _measure(self, name: str) -> None:
        process = self.heard(name)
        assert process.measuring is not None
        wanted, process.measuring = process.measuring.measurement, None
        latencies = [100] * wanted.repeats
        self.do(self.control.measured(name, (wanted.rows, wanted.size), latencies, self.now_us))

    def _retire(self, model: str) -> None:
        self.retiring.discard(model)
        self.do(self.control.model_retired(model, self.now_us))

    # commands

    def heard(self, name: str) -> Process:
        """It says something."""
        self.processes[name].heard_us = self.now_us
        return self.processes[name]

    def do(self, commands: Iterable[Command], *, fault: bool = False) -> None:
        """Carry out commands where possible. `fault`: no plan takes away what goes here.

        A model that a state on the way leaves out may go, because that state was asked for.
        """
        before = {place[1] for place in self.routed()}
        for command in commands:
            self._carry_out(command)
        states = (*self.way, self.control.desired)
        wanted = set.intersection(*({place[1] for place in _places(each, routed=True)} for each in states))
        gone = before - {place[1] for place in self.routed()}
        assert fault or not gone & wanted, f"{gone} had replicas, and has none"
        for name in {model for _, model, _, _ in self.routed()}:
            versions = {revision == VERSION for _, model, _, revision in self.routed() if model == name}
            assert len(versions) == 1, f"two versions of {name} get its batches"

    def _carry_out(self, command: Command) -> None:
        match command:
            case StartWorker(slice=name):
                assert name not in self.processes
                spec = self.control.slices[name].spec
                assert spec.device not in self.lost
                self.processes[name] = Process(spec, self.now_us)
            case EndWorker(slice=name, reason=reason):
                process = self.processes[name]
                turn_us = process.turn_us if process.loads and "load" in reason else process.heard_us
                silent_us = self.now_us - min(process.heard_us, turn_us)
                assert "not wanted" in reason or silent_us >= PATIENCE_US, f"{command}: after {silent_us} us"
                process.ending = True
            case StopWorker(slice=name):
                assert not self._ready(name).keys
                self.processes[name].stopping = True
            case LoadReplica():
                process, key = self._ready(command.slice), (command.model, command.variant, command.revision)
                assert command.replica not in process.keys
                there = [process.keys[number] for number in process.keys if number not in process.unloads]
                assert key not in there
                self._load_first(process, key)
                process.keys[command.replica] = key
                process.order_load(command.replica, self.now_us)
            case UnloadReplica(slice=name, replica=number):
                process = self._ready(name)
                assert number in process.keys
                assert number not in process.unloads
                assert number not in process.routed.values()
                process.unloads.append(number)
            case Measure(slice=name, replica=number):
                process = self._ready(name)
                assert number in process.keys
                assert number not in (*process.loads, *process.unloads)
                assert process.measuring is None
                process.measuring = command
            case Route() | Unroute() | Withdraw():
                self._route(command)
            case RetireModel(model=name):
                self.retiring.add(name)
            case ServeModel(model=model):
                self.retiring.discard(model.name)
            case ForgetModel(model=name):
                assert name not in {
                    key[0]
                    for process in self.processes.values()
                    for key in process.keys.values()
                    if process.spec.device not in self.lost  # else its end is still to be said
                }

    def _load_first(self, process: Process, key: tuple[str, str, str]) -> None:
        """What no worker has loaded yet is loaded beside no other model, where there may be a second process
        for it."""
        if key not in self.loaded and process.spec.device == "cpu":
            under_way = (*process.loads, *process.unloads)
            beside = {each[0] for number, each in process.keys.items() if number not in under_way}
            assert beside <= {key[0]}, f"{key} is loaded beside {beside}"

    def _route(self, command: Route | Unroute | Withdraw) -> None:
        process = self.processes.get(command.slice)
        if isinstance(command, Withdraw):
            if process is not None:  # with its device: that it has gone will be said
                process.routed.clear()
            return
        assert process is not None
        key = (command.model, command.variant)
        if isinstance(command, Unroute):
            del process.routed[key]
            return
        assert process.keys[command.replica][:2] == key
        assert command.replica not in (*process.loads, *process.unloads)
        process.routed[key] = command.replica

    def _ready(self, name: str) -> Process:
        process = self.processes[name]
        assert process.ready
        assert not process.stopping
        if not (process.loads or process.unloads or process.measuring):
            process.heard_us = self.now_us
        return process

    def routed(self) -> set[Place]:
        return {
            (name, *process.keys[number])
            for name, process in self.processes.items()
            for number in process.routed.values()
        }

    def held(self) -> set[Place]:
        return {(name, *key) for name, process in self.processes.items() for key in process.keys.values()}


def _free(process: Process) -> list[int]:
    """Those that are loaded and to be unloaded; a worker ends the measurement that it was given before."""
    measured = process.measuring.replica if process.measuring is not None else None
    return [number for number in process.unloads if number not in process.loads and number != measured]


def _places(wanted: DesiredState, *, routed: bool) -> set[Place]:
    revision = {model.name: model.revision for model in wanted.models}
    return {
        (each.spec.name, one.model, one.variant, revision[one.model])
        for each in wanted.slices
        for one in each.replicas
        if one.routed or not routed
    }


AnyHistory.TestCase.settings = settings(
    max_examples=drawn(100),
    stateful_step_count=40,
    suppress_health_check=[HealthCheck.too_slow],
)
TestAnyHistory = pytest.mark.slow(pytest.mark.timeout(0)(AnyHistory.TestCase))
