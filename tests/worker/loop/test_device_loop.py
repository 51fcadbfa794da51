"""Promises of a loop beside a device: two batches under way, answers after their events, failures alone."""

import os
import select
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from serving.values.specs import ModelSpec
from serving.worker.backends.python import PythonBackend
from serving.worker.frames.batches import (
    NEVER_SHARE,
    SHARED,
    BatchInput,
    BatchResult,
    pack_run,
    unpack_failed,
    unpack_result,
)
from serving.worker.frames.orders import LoadOrder, MeasureOrder, pack_load, pack_measure
from serving.worker.frames.shared import SharedArea
from serving.worker.frames.wire import FrameBuffer, FrameKind
from serving.worker.loop.device_loop import CONTEXT_BROKEN, IN_FLIGHT_MAX, DeviceLoop
from tests.runtime.recorder import model_spec, write_model
from tests.worker.device.locks import Noted
from tests.worker.device.stand_in import PATIENCE_S, StandIn

pytestmark = pytest.mark.live

TENSORS = """
import numpy as np
import torch
class Model:
    def predict_device(self, inputs, parameters):
        if inputs['X'][0, 0] < 0:
            raise ValueError('negative')
        return {'Y': inputs['X'] * 2}
    def sample(self, rows, size):
        return {'X': np.ones((rows, 1), np.float32)}
def load(artifact, options):
    return Model()
"""


class Gateway:
    """The other end of a loop that runs in a thread."""

    def __init__(self) -> None:
        self.streams = StandIn()
        self.streams.free = True
        self.fault = ""
        ours, theirs = socket.socketpair()
        ours.settimeout(PATIENCE_S)
        self.sock = ours
        backend = PythonBackend(1, "cpu", lambda _torch, _device: self.streams)
        self.locks = Noted()
        self.areas = SharedArea.create("requests"), SharedArea.create("answers")
        areas = tuple(SharedArea(os.dup(each.fd)) for each in self.areas)
        self.loop = DeviceLoop(theirs, (areas[0], areas[1]), backend, "cpu", self._check, self.locks)
        self.thread = threading.Thread(target=self._serve, args=(theirs,))
        self._frames = FrameBuffer()
        self.thread.start()
        assert self.hear()[0] is FrameKind.HELLO

    def _serve(self, theirs: socket.socket) -> None:
        with theirs:
            self.loop.serve()

    def _check(self) -> None:
        if self.fault:
            raise RuntimeError(self.fault)

    def load(self, model: ModelSpec, replica: int = 1) -> None:
        self.sock.sendall(pack_load(LoadOrder.of(replica, model, "only")))
        kind, told = self.hear()
        assert kind is FrameKind.LOADED, told

    def run(self, batch_id: int, number: float, replica: int = 1) -> None:
        data = np.array([[number]], np.float32).tobytes()
        entry = BatchInput("FP32", (1,), [data])
        self.sock.sendall(pack_run((batch_id, replica, 1, NEVER_SHARE, 0), [entry], [len(data)], ()) + data)

    def run_shared(self, batch_id: int, rows: int) -> None:
        """A batch of ones by shared memory, its answer likewise."""
        data = np.ones((rows, 1), np.float32).tobytes()
        self.areas[0].write([data], len(data))
        entry = BatchInput("FP32", (1,), [data])
        self.sock.sendall(pack_run((batch_id, 1, rows, 0, SHARED), [entry], [len(data)], ()))

    def hear(self) -> tuple[FrameKind, object]:
        while (frame := self._frames.next()) is None:
            count = self.sock.recv_into(self._frames.space())
            assert count, "the loop has ended"
            self._frames.filled(count)
        match frame.kind:
            case FrameKind.RESULT:
                return frame.kind, unpack_result(frame, self.areas[1])
            case FrameKind.FAILED:
                return frame.kind, unpack_failed(frame)
        return frame.kind, bytes(frame.meta)

    def answer(self) -> tuple[int, float]:
        """The batch of the next result, and its number."""
        kind, result = self.hear()
        assert isinstance(result, BatchResult), (kind, result)
        return result.batch_id, float(np.frombuffer(result.outputs[0].rows(0, 1), np.float32)[0])

    @property
    def silent(self) -> bool:
        return not select.select([self.sock], [], [], 0)[0]

    def close(self) -> None:
        self.streams.free = True
        self.streams.go()
        self.sock.close()
        self.thread.join(PATIENCE_S)
        assert not self.thread.is_alive()
        assert self.locks.locked == {}
        for area in self.areas:
            area.close()


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    gateway = Gateway()
    yield gateway
    gateway.close()


@pytest.fixture
def doubles(tmp_path: Path) -> ModelSpec:
    folder = tmp_path / "doubles"
    folder.mkdir()
    (folder / "model.py").write_text(TENSORS)
    return model_spec(folder, {"X": "FP32"}, {"Y": "FP32"})


def launched(gateway: Gateway, count: int) -> None:
    for _ in range(count):
        assert gateway.streams.launched.acquire(timeout=PATIENCE_S)


@pytest.fixture
def loaded(gateway: Gateway, doubles: ModelSpec) -> Gateway:
    gateway.load(doubles)
    while gateway.streams.launched.acquire(blocking=False):
        pass  # of its warm-up
    gateway.streams.free = False
    return gateway


def test_two_batches_are_under_way_at_most_and_are_answered_in_order(loaded: Gateway) -> None:
    for number in range(5):
        loaded.run(number, number)
    launched(loaded, IN_FLIGHT_MAX)
    assert loaded.silent
    for number in range(5):
        loaded.streams.free = True
        loaded.streams.go()
        assert loaded.answer() == (number, 2 * number)
    assert loaded.streams.flying_max == IN_FLIGHT_MAX


def test_a_batch_that_fails_harms_neither_the_one_before_nor_the_one_after(loaded: Gateway) -> None:
    loaded.run(1, 1)
    launched(loaded, 1)
    loaded.run(2, -1)
    kinds: dict[FrameKind, object] = dict(loaded.hear() for _ in range(3))
    assert kinds.keys() == {FrameKind.RESULT, FrameKind.RAISED, FrameKind.FAILED}
    assert kinds[FrameKind.FAILED] == (2, "ValueError: negative (model.py:7)", False)
    loaded.run(3, 3)
    launched(loaded, 1)
    loaded.streams.go()
    assert loaded.answer() == (3, 6)


def test_what_the_device_meets_fails_its_batch_alone_while_the_device_answers(loaded: Gateway) -> None:
    loaded.run(1, 1)
    loaded.run(2, 2)
    launched(loaded, 2)
    loaded.streams.marks[-4].fault = "launch failure"  # the first batch's last mark
    loaded.streams.go()
    assert [loaded.hear()[0] for _ in range(2)] == [FrameKind.RAISED, FrameKind.FAILED]
    assert loaded.answer() == (2, 4)


def test_a_worker_whose_device_answers_nothing_any_more_ends(
    loaded: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes: list[int] = []
    ended = threading.Event()

    def leave(code: int) -> None:
        codes.append(code)
        ended.set()

    monkeypatch.setattr(os, "_exit", leave)
    loaded.fault = "CUDA error: an illegal memory access was encountered"
    loaded.run(1, -1)
    assert ended.wait(PATIENCE_S)
    assert codes == [CONTEXT_BROKEN]
    assert [loaded.hear()[0] for _ in range(2)] == [FrameKind.RAISED, FrameKind.FAILED]


def test_what_is_under_way_is_answered_after_the_gateway_asked_for_the_end(loaded: Gateway) -> None:
    loaded.run(1, 1)
    launched(loaded, 1)
    loaded.sock.shutdown(socket.SHUT_WR)
    loaded.streams.go()
    assert loaded.answer() == (1, 2)


def test_jobs_run_in_the_thread_that_launches_when_nothing_is_under_way(loaded: Gateway) -> None:
    loaded.run(1, 1)
    launched(loaded, 1)
    found: list[tuple[int | None, bool]] = []

    def job() -> None:
        found.append((threading.get_ident(), loaded.streams.marks[-1].passed.is_set()))

    waiting = threading.Thread(target=loaded.loop.in_turn, args=(job,))
    waiting.start()
    loaded.streams.go()
    waiting.join(PATIENCE_S)
    assert found == [(loaded.thread.ident, True)]
    assert loaded.answer() == (1, 2)
    with pytest.raises(ZeroDivisionError):
        loaded.loop.in_turn(lambda: 1 // 0)


def test_a_model_of_arrays_answers_as_on_a_cpu_behind_what_is_under_way(
    loaded: Gateway, tmp_path: Path
) -> None:
    loaded.load(
        model_spec(
            write_model(tmp_path / "n", "return {'Y': inputs['X'] + 1}"), {"X": "FP32"}, {"Y": "FP32"}
        ),
        2,
    )
    loaded.run(1, 1)
    launched(loaded, 1)
    loaded.run(2, 7, replica=2)
    loaded.streams.go()
    assert [loaded.answer(), loaded.answer()] == [(1, 2), (2, 8)]


def test_a_measurement_waits_for_what_is_under_way(loaded: Gateway) -> None:
    loaded.run(1, 1)
    launched(loaded, 1)
    loaded.sock.sendall(pack_measure(MeasureOrder(1, 4, 0, 1, 1000)))
    assert loaded.silent
    loaded.streams.free = True
    loaded.streams.go()
    assert [loaded.answer(), loaded.hear()[0]] == [(1, 2), FrameKind.MEASURED]


def test_every_size_of_batch_is_run_before_a_model_is_ready_and_in_the_thread_that_serves(
    gateway: Gateway, tmp_path: Path
) -> None:
    folder = tmp_path / "m"
    folder.mkdir()
    noted = tmp_path / "noted"
    note = "file.write(f'{len(inputs[\"X\"])} {threading.get_ident()}\\n')"
    first = f"with open({str(noted)!r}, 'a') as file: {note}\n        if inputs"
    code = TENSORS.replace("import torch", "import threading\nimport torch").replace("if inputs", first)
    (folder / "model.py").write_text(code)
    gateway.load(replace(model_spec(folder, {"X": "FP32"}, {"Y": "FP32"}), batch_max=5))
    told = [line.split() for line in noted.read_text().splitlines()]
    assert [rows for rows, _ in told] == ["1", "5", "4", "3", "2", "1"]
    assert {thread for _, thread in told} == {str(gateway.thread.ident)}


def test_a_size_that_cannot_run_fails_the_load(gateway: Gateway, tmp_path: Path) -> None:
    folder = tmp_path / "m"
    folder.mkdir()
    (folder / "model.py").write_text(TENSORS.replace("[0, 0] < 0", ".shape[0] > 3"))
    with pytest.raises(AssertionError, match="negative"):
        gateway.load(replace(model_spec(folder, {"X": "FP32"}, {"Y": "FP32"}), batch_max=5))


def test_large_batches_come_by_page_locked_memory_which_follows_its_growth(loaded: Gateway) -> None:
    loaded.streams.free = True
    for number, rows in enumerate((1_000, 500_000, 2_000)):
        loaded.run_shared(number, rows)
        kind, result = loaded.hear()
        assert isinstance(result, BatchResult), (kind, result)
        assert result.rows == rows
        for _ in result.copying():
            pass
        answer = np.frombuffer(result.outputs[0].rows(0, rows), np.float32)
        assert np.array_equal(answer, np.full(rows, 2, np.float32))
        (locked,) = loaded.locks.locked.values()
        assert locked == (1 << 20 if number == 0 else 1 << 21)
