"""Promises of loading beside batches: one at a time, in order, each answered once, nothing stays behind."""

import gc
import threading
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from queue import Queue
from weakref import WeakSet

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.values.specs import TensorSpec
from serving.worker.frames.arrays import Arrays
from serving.worker.frames.orders import (
    LoadOrder,
    Raised,
    unpack_load_failed,
    unpack_loaded,
    unpack_raised,
    unpack_unloaded,
)
from serving.worker.frames.wire import FrameBuffer, FrameKind, ProtocolError
from serving.worker.loop.loader import SLOW_S, Loader
from serving.worker.process.memory import Memory

PATIENCE_S = 60.0
QUICK_S = 20.0
"""For what must not wait for what is held."""
SPEC = (TensorSpec("X", "FP32", (-1, 1)),)
Answer = tuple[FrameKind, int]


def order(replica: int, variant: str = "good") -> LoadOrder:
    return LoadOrder(replica, "m", Path("/m"), variant, None, (), SPEC, SPEC, (0, 0))


class Echo:
    """A model that is part of a cycle, so that only the collector can free it."""

    def __init__(self, variant: str) -> None:
        self.variant = variant
        self.me = self

    def predict(self, inputs: Arrays, parameters: object) -> Arrays:
        return inputs

    def sample(self, rows: int, size: int) -> Arrays:
        return {"X": np.ones((rows, 1), np.float32)}


class Rack:
    """A `Backend` whose loads can be held, and a loader on it. What it answers is kept in order."""

    def __init__(self, slow_s: float = SLOW_S) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.begun: Queue[int] = Queue()
        self.alive: WeakSet[Echo] = WeakSet()
        self.kept: list[list[int]] = []
        self.settled: list[str] = []
        self.answers: Queue[Answer] = Queue()
        self.raised: list[Raised] = []
        self.loader = Loader(self, Memory(), self._answer, slow_s)

    def prepare(self, order: LoadOrder) -> None:
        self.begun.put(order.replica)
        assert order.variant == "quick" or self.gate.wait(PATIENCE_S)

    def load(self, order: LoadOrder) -> Echo:
        if order.variant == "bad":
            raise KeyError(order.variant)
        model = Echo(order.variant)
        self.alive.add(model)
        return model

    def settle(self) -> None:
        self.settled.append(threading.current_thread().name)

    def keep(self, orders: Collection[LoadOrder]) -> None:
        self.kept.append([order.replica for order in orders])

    def hear(self) -> Answer:
        return self.answers.get(timeout=PATIENCE_S)

    def hear_all(self) -> list[Answer]:
        """What is answered until nothing is left to do."""
        self.loader.unload(-1)
        return list(iter(self.hear, (FrameKind.UNLOADED, -1)))

    def _answer(self, packed: bytes) -> None:
        frames = FrameBuffer()
        frames.space()[: len(packed)] = packed
        frames.filled(len(packed))
        frame = frames.next()
        assert frame is not None
        replica: dict[FrameKind, Callable[[], int]] = {
            FrameKind.LOADED: lambda: unpack_loaded(frame).replica,
            FrameKind.LOAD_FAILED: lambda: unpack_load_failed(frame)[0],
            FrameKind.UNLOADED: lambda: unpack_unloaded(frame),
        }
        if frame.kind is FrameKind.RAISED:
            self.raised.append(unpack_raised(frame))
        else:
            self.answers.put((frame.kind, replica[frame.kind]()))


@pytest.fixture
def rack() -> Iterator[Rack]:
    rack = Rack()
    yield rack
    rack.gate.set()
    rack.hear_all()


def hold(rack: Rack, replica: int) -> None:
    """A load that goes on until the gate is opened."""
    rack.gate.clear()
    rack.loader.load(order(replica))
    assert rack.begun.get(timeout=PATIENCE_S) == replica


def test_a_replica_runs_while_another_is_being_loaded(rack: Rack) -> None:
    rack.loader.load(order(1))
    assert rack.hear() == (FrameKind.LOADED, 1)
    rack.begun.get()
    hold(rack, 2)
    assert rack.loader.loading
    found = rack.loader.find(1)
    assert found is not None
    outputs, _ = found.predict({"X": np.ones((1, 1), np.float32)}, {})
    assert list(outputs) == ["X"]
    assert rack.loader.find(2) is None


def test_the_thread_that_runs_a_replica_is_settled_once_before(rack: Rack) -> None:
    rack.loader.load(order(1))
    rack.hear()
    for _ in range(3):
        rack.loader.find(1)
    assert rack.settled == [threading.current_thread().name]


def test_a_load_that_is_not_wanted_any_more_is_dropped_and_never_said_to_be_loaded(rack: Rack) -> None:
    hold(rack, 1)
    rack.loader.load(order(2))
    rack.loader.unload(1)
    rack.loader.unload(2)
    rack.gate.set()
    assert rack.hear_all() == [(FrameKind.UNLOADED, 1), (FrameKind.UNLOADED, 2)]
    assert rack.begun.empty()  # 2 was not even begun
    assert not rack.alive


def test_a_slow_load_delays_only_itself() -> None:
    rack = Rack(slow_s=0.0)
    rack.gate.clear()
    rack.loader.load(order(1))
    rack.loader.load(order(2, "quick"))
    assert rack.hear() == (FrameKind.LOADED, 2)
    rack.loader.unload(2)
    assert rack.hear() == (FrameKind.UNLOADED, 2)
    assert rack.kept[-1] == [1]  # the code of what is under way is not dropped
    assert rack.loader.loading
    rack.gate.set()
    assert rack.hear() == (FrameKind.LOADED, 1)


def test_a_slow_load_that_is_not_wanted_any_more_is_given_back_when_it_ends() -> None:
    rack = Rack(slow_s=0.0)
    rack.gate.clear()
    rack.loader.load(order(1))
    assert rack.begun.get(timeout=PATIENCE_S) == 1
    rack.loader.unload(1)
    assert rack.answers.empty()
    rack.gate.set()
    assert rack.hear() == (FrameKind.UNLOADED, 1)
    assert not rack.alive


def test_a_slow_load_that_is_not_wanted_any_more_delays_nothing_behind_it() -> None:
    rack = Rack(slow_s=0.0)
    rack.gate.clear()
    rack.loader.load(order(1))
    assert rack.begun.get(timeout=PATIENCE_S) == 1
    rack.loader.unload(1)
    rack.loader.load(order(2, "quick"))
    assert rack.answers.get(timeout=QUICK_S) == (FrameKind.LOADED, 2)
    rack.gate.set()
    assert rack.hear() == (FrameKind.UNLOADED, 1)


def test_a_failed_load_is_answered_and_the_next_one_goes_on(rack: Rack) -> None:
    for replica, variant in ((1, "bad"), (2, "good")):
        rack.loader.load(order(replica, variant))
    assert rack.hear_all() == [(FrameKind.LOAD_FAILED, 1), (FrameKind.LOADED, 2)]


def test_a_number_that_is_taken_is_an_error_of_the_gateways(rack: Rack) -> None:
    rack.loader.load(order(1))
    with pytest.raises(ProtocolError, match="replica 1 a second time"):
        rack.loader.load(order(1))
    rack.hear()
    with pytest.raises(ProtocolError, match="replica 1 a second time"):
        rack.loader.load(order(1))
    rack.loader.unload(1)
    rack.loader.load(order(1))
    assert rack.hear_all() == [(FrameKind.UNLOADED, 1), (FrameKind.LOADED, 1)]


@pytest.mark.slow
def test_a_cycle_that_was_frozen_with_later_imports_is_freed_and_what_stays_is_kept(
    rack: Rack, monkeypatch: pytest.MonkeyPatch
) -> None:
    # every load is taken for a large import
    monkeypatch.setattr("serving.worker.process.garbage.MODULES_MANY", 0)
    for replica in (1, 2):
        rack.loader.load(order(replica))
        rack.hear()
    rack.loader.unload(1)
    assert rack.hear() == (FrameKind.UNLOADED, 1)
    assert len(rack.alive) == 1
    assert rack.kept[-1] == [2]
    assert gc.get_freeze_count() > 1000  # frozen again


def test_a_failed_measurements_replica_goes_without_a_word(rack: Rack) -> None:
    rack.loader.load(order(1))
    rack.hear()
    rack.loader.unload(1, told=False)
    assert rack.loader.find(1) is None
    assert rack.hear_all() == []
    assert not rack.alive


def test_collections_are_paused_only_while_it_loads(rack: Rack) -> None:
    hold(rack, 1)
    assert not gc.isenabled()
    rack.gate.set()
    rack.hear_all()
    assert gc.isenabled()


@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["good", "bad", "unload"]), st.integers(0, 2)), max_size=12))
def test_whatever_is_ordered_each_load_has_one_end_and_only_what_is_wanted_stays(
    asked: list[tuple[str, int]],
) -> None:
    """The oracle is what the gateway knows: what it loaded and did not unload is there, unless it failed."""
    rack = Rack()
    expected: list[Answer] = []
    numbers: dict[int, int] = {}  # the latest of each of three places: numbers are never used again
    wanted: dict[int, str] = {}
    for position, (what, place) in enumerate(asked):
        if what != "unload" and place not in numbers:
            numbers[place] = position
            wanted[position] = what
            rack.loader.load(order(position, what))
        elif what == "unload" and place in numbers:
            number = numbers.pop(place)
            wanted.pop(number)
            rack.loader.unload(number)
            expected.append((FrameKind.UNLOADED, number))
    answers = rack.hear_all()
    assert [each for each in answers if each[0] is FrameKind.UNLOADED] == expected
    for number, variant in wanted.items():
        kind = FrameKind.LOADED if variant == "good" else FrameKind.LOAD_FAILED
        assert [each for each in answers if each[1] == number] == [(kind, number)]
    for number in {number for _, number in expected}:
        ends = [kind for kind, replica in answers if replica == number]
        assert ends[-1] is FrameKind.UNLOADED
        assert len(ends) <= 2
    good = {number for number, variant in wanted.items() if variant == "good"}
    assert {number for number in range(len(asked)) if rack.loader.find(number) is not None} == good
    assert len(rack.alive) == len(good)
