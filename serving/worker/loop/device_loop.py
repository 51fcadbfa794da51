"""The worker's loop on a GPU: up to two batches are under way, so that their copies and runs overlap.

The thread that receives also launches. Another one waits for answers, in order, and sends them. So a batch is
answered only once its outputs are in the host's memory. Work that the launching thread has to do, such as
warming models up, comes to it as jobs between batches.
"""

import os
import select
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import Future
from queue import Queue
from typing import Final, NamedTuple, TypeVar

from serving.worker.backends.contract import Backend
from serving.worker.device.pinning import CudaLocks, Locks, PinnedArea
from serving.worker.device.running import Flight
from serving.worker.frames.batches import RunOrder, unpack_run
from serving.worker.frames.shared import SharedArea
from serving.worker.frames.wire import Frame
from serving.worker.loop.serve import GONE, WorkerLoop
from serving.worker.process.output import SPEAKING
from serving.worker.replicas.padding import inputs_of
from serving.worker.replicas.replicas import MODEL_ERRORS, LoadedReplica

IN_FLIGHT_MAX: Final = 2
"""Batches on the device. The gateway sends one ahead while another runs; more would only wait there."""
CONTEXT_BROKEN: Final = 70
"""Exit status of a worker whose device answers nothing any more."""

_T = TypeVar("_T")


class _Launched(NamedTuple):
    """A batch under way."""

    order: RunOrder
    replica: LoadedReplica
    flight: Flight
    launched_ns: int
    padded_size: int


class DeviceLoop(WorkerLoop):
    """A worker's loop beside a GPU. `check`: raises what the device has met; `locks`: page-locks memory."""

    def __init__(
        self,
        sock: socket.socket,
        areas: tuple[SharedArea, SharedArea] | None,
        backend: Backend,
        device: str,
        check: Callable[[], None] | None = None,
        locks: Locks | None = None,
    ) -> None:
        self._check = check or _synchronize
        self._pinned = PinnedArea(locks or CudaLocks(), _note)
        self._jobs: Queue[Callable[[], None]] = Queue()
        self._ring, self._bell = os.pipe()
        self._room = threading.Semaphore(IN_FLIGHT_MAX)
        self._flights: Queue[_Launched | None] = Queue()
        self._landed_ns = 0
        super().__init__(sock, areas, backend, device, self.in_turn)
        self._answering = threading.Thread(target=self._answer_flights, name="answers", daemon=True)
        self._answering.start()

    def serve(self) -> None:
        """See `WorkerLoop`. What was launched is answered before it returns."""
        try:
            super().serve()
        finally:
            self._flights.put(None)
            self._answering.join()
            self._pinned.release()

    def _let_go(self) -> None:
        """See `WorkerLoop`. What was launched lands first, and its answers go nowhere."""
        self._flights.join()
        self._pinned.release()
        super()._let_go()

    def in_turn(self, work: Callable[[], _T]) -> _T:
        """Do this in the thread that launches batches, between two of them. Call it from another thread."""
        future: Future[_T] = Future()

        def job() -> None:
            try:
                future.set_result(work())
            except BaseException as error:
                future.set_exception(error)

        self._jobs.put(job)
        os.write(self._bell, b"!")
        return future.result()

    def _receive(self) -> Frame | None:
        while (frame := self._frames.next()) is None:
            ready, _, _ = select.select([self._sock.fileno(), self._ring], [], [])
            if self._ring in ready:
                os.read(self._ring, 1)
                self._flights.join()  # a job has the device for itself
                self._jobs.get()()
            if self._sock.fileno() in ready:
                count = self._sock.recv_into(self._frames.space())
                if not count:
                    return None
                self._frames.filled(count)
        return frame

    def _measure(self, frame: Frame) -> None:
        self._flights.join()
        super()._measure(frame)

    def _run(self, frame: Frame) -> None:
        order = unpack_run(frame, self._requests)
        mapping = self._requests.mapping if self._requests is not None else None
        if self._pinned.differs(mapping):
            self._flights.join()
            self._pinned.follow(mapping)
        self._room.acquire()
        try:
            launched = self._launch(order)
        except MODEL_ERRORS as error:
            self._room.release()
            self._fail(order, self._loader.find(order.replica), error)
            return
        if launched is not None:
            self._flights.put(launched)
            return
        self._room.release()
        self._flights.join()
        try:
            buffers = self._answer(order)
        except MODEL_ERRORS as error:
            self._fail(order, self._loader.find(order.replica), error)
        else:
            self._send(buffers)

    def _launch(self, order: RunOrder) -> _Launched | None:
        replica = self._loader.find(order.replica)
        if replica is None:
            raise LookupError(f"replica {order.replica} is not loaded here")
        if not replica.launches:
            return None
        SPEAKING.model = replica.order.model
        inputs = inputs_of(replica.order.inputs, order)
        launched_ns = time.perf_counter_ns()
        flight = replica.launch(inputs, order.parameters)
        return _Launched(order, replica, flight, launched_ns, replica.padded_size)

    def _fail(self, order: RunOrder, replica: LoadedReplica | None, error: BaseException) -> None:
        """Answer a batch with its model's error; end the worker if its device is of no use any more."""
        self._send(self._failed(order, replica, error))
        try:
            self._check()
        except Exception as fault:
            _note(f"the worker ends, because its device answers nothing any more: {fault}")
            os._exit(CONTEXT_BROKEN)

    # in the thread that answers

    def _answer_flights(self) -> None:
        while (launched := self._flights.get()) is not None:
            try:
                self._land(launched)
            except GONE:
                pass  # the gateway is gone: the loop finds its end of file
            except BaseException:  # nobody would answer any more
                traceback.print_exc()
                os._exit(1)
            self._room.release()
            self._flights.task_done()
        self._flights.task_done()

    def _land(self, launched: _Launched) -> None:
        order, spec = launched.order, launched.replica.order
        SPEAKING.model = spec.model
        try:
            found = launched.flight.land()
            ended_ns = time.perf_counter_ns()
            took_ns = ended_ns - max(launched.launched_ns, self._landed_ns)
            self._landed_ns = ended_ns
            took = ((took_ns + 999) // 1000, time.monotonic_ns() // 1000, launched.padded_size)
            buffers = self._packed(order, spec, found, took)
        except MODEL_ERRORS as error:
            self._fail(order, launched.replica, error)
        else:
            self._send(buffers)


def _synchronize() -> None:
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.synchronize()


def _note(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
