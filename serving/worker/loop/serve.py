"""The worker's loop: one frame at a time, blocking, on one thread, which is the shortest way. What takes long
and is no batch, loads and unloads, is another's (`loader.py`).

It ends when the gateway says so (LAST). At an end of file without it, the gateway is gone: the loop goes on
with the next gateway, if there is one in time.
"""

import socket
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from typing import Final

import numpy as np

from serving.values.tensor import Buffer
from serving.values.traces import NO_TRACE
from serving.worker.backends.contract import Backend
from serving.worker.frames.arrays import encode_outputs
from serving.worker.frames.batches import (
    SHARED,
    RunOrder,
    pack_failed,
    pack_result,
    unpack_leave,
    unpack_run,
)
from serving.worker.frames.orders import (
    LoadOrder,
    pack_hello,
    pack_load_failed,
    pack_measured,
    pack_raised,
    unpack_load,
    unpack_measure,
    unpack_unload,
)
from serving.worker.frames.shared import SHARED_BYTES_MAX, SharedArea
from serving.worker.frames.wire import (
    PAYLOAD_BYTES_MAX,
    Frame,
    FrameBuffer,
    FrameKind,
    ProtocolError,
    gather_bytes,
)
from serving.worker.loop.loader import Loader
from serving.worker.process.batch_trace import BATCH_TRACE
from serving.worker.process.memory import Memory
from serving.worker.process.orphans import Inheritance
from serving.worker.process.output import SPEAKING
from serving.worker.process.yardstick import Yardstick
from serving.worker.replicas.guards import refused_rows
from serving.worker.replicas.padding import inputs_of
from serving.worker.replicas.raising import Tracebacks
from serving.worker.replicas.replicas import (
    MODEL_ERRORS,
    InTurn,
    LoadedReplica,
    blames_input,
    describe,
    describe_to_client,
)
from serving.worker.replicas.sequences import STEPS
from serving.worker.replicas.streaming import RowSender

GONE: Final = (ConnectionError, TimeoutError)
"""What a socket raises once the gateway, or the way to it, is gone."""
_IOV_MAX = 512  # buffers of one sendmsg; Linux takes 1024


def _no_gateway() -> Inheritance | None:
    return None


class WorkerLoop:
    """One slice's replicas behind one socket. `areas`: shared memory for requests and answers, or None.
    `next_gateway`: waits for one that takes the worker over."""

    def __init__(
        self,
        sock: socket.socket,
        areas: tuple[SharedArea, SharedArea] | None,
        backend: Backend,
        device: str = "cpu",
        in_turn: InTurn | None = None,
    ) -> None:
        """Create the loop. `in_turn`: as for `serving.worker.replicas.replicas.load_replica`."""
        self._sock = sock
        self._requests = areas[0] if areas else None
        self._answers = areas[1] if areas else None
        self._memory, self._yardstick = Memory(device), Yardstick(device)
        self._sending = threading.Lock()
        self._tracebacks = Tracebacks()
        self._loader = Loader(backend, self._memory, lambda frame: self._send((frame,)), in_turn=in_turn)
        self._frames = FrameBuffer()
        self._handlers: dict[FrameKind, Callable[[Frame], None]] = {
            FrameKind.RUN: self._run,
            FrameKind.LOAD: self._load,
            FrameKind.UNLOAD: self._unload,
            FrameKind.MEASURE: self._measure,
            FrameKind.LEAVE: lambda _frame: None,  # its batch is over
            FrameKind.LAST: self._end,
        }
        self._behind: deque[Frame] = deque()  # came while a stream ran
        self._gone: set[tuple[int, int]] = set()  # batch and row, of that stream and of those behind
        self._at_end = False  # the gateway has closed its end, as was seen then
        self._dismissed = False  # it has said that the worker is to end
        self.next_gateway: Callable[[], Inheritance | None] = _no_gateway

    @property
    def loading(self) -> bool:
        """Whether a load or unload is under way."""
        return self._loader.loading

    def serve(self) -> None:
        """Serve until a gateway ends the worker, or is gone and no other takes it over. Raises ProtocolError
        if it sends what no gateway sends."""
        while True:
            with suppress(*GONE):
                self._serve_gateway()
            if self._dismissed:
                return
            self._let_go()
            found = self.next_gateway()
            if found is None:
                return
            self._take_up(found)

    def _serve_gateway(self) -> None:
        self._send((pack_hello(self._requests is not None, {"numpy": np.__version__}),))
        while (frame := self._following()) is not None:
            handler = self._handlers.get(frame.kind)
            if handler is None:
                raise ProtocolError(f"a gateway sends no {frame.kind.name} frames")
            handler(frame)

    def _let_go(self) -> None:
        """Forget what the gateway has asked for and not got. Its replicas stay."""
        self._loader.let_go()
        self._behind.clear()
        self._gone.clear()
        self._at_end = False

    def _take_up(self, found: Inheritance) -> None:
        """Go on with the next gateway's connection and shared memory."""
        for area in (self._requests, self._answers):
            if area is not None:
                area.close()
        self._requests, self._answers = map(SharedArea, found.areas) if found.areas else (None, None)
        self._sock.close()
        self._sock, self._frames = socket.socket(fileno=found.connection), FrameBuffer()
        self._loader.clear_kept_later()

    def _following(self) -> Frame | None:
        if self._behind:
            return self._behind.popleft()
        return None if self._at_end else self._receive()

    def _receive(self) -> Frame | None:
        while (frame := self._frames.next()) is None:
            count = self._sock.recv_into(self._frames.space())
            if not count:
                return None
            self._frames.filled(count)
        return frame

    def _send(self, buffers: Sequence[Buffer]) -> None:
        waiting = [memoryview(buffer) for buffer in buffers if len(buffer)]
        with self._sending:  # the loader sends, too, and one frame may take several calls
            while waiting:
                sent = self._sock.sendmsg(waiting[:_IOV_MAX])
                while waiting and sent >= len(waiting[0]):
                    sent -= len(waiting.pop(0))
                if sent:
                    waiting[0] = waiting[0][sent:]

    def _run(self, frame: Frame) -> None:
        order = unpack_run(frame, self._requests)
        try:
            buffers = self._answer(order)
        except MODEL_ERRORS as error:
            buffers = self._failed(order, self._loader.find(order.replica), error)
        self._send(buffers)

    def _failed(self, order: RunOrder, replica: LoadedReplica | None, error: BaseException) -> list[Buffer]:
        """Return the frames of a batch that its model raised on."""
        failed = pack_failed(order.batch_id, describe_to_client(error), blames_input(error))
        return [*self._told(error, replica, "while it answered"), failed]

    def _told(self, error: BaseException, replica: LoadedReplica | None, doing: str) -> list[Buffer]:
        """Return the frame for the gateway's log; none where no model has raised, or it blames the input."""
        if replica is None or blames_input(error):
            return []
        return [pack_raised(self._tracebacks.of(error, replica.order, doing))]

    def _answer(self, order: RunOrder) -> list[Buffer]:
        replica = self._loader.find(order.replica)
        if replica is None:
            raise LookupError(f"replica {order.replica} is not loaded here")
        SPEAKING.model = replica.order.model
        if replica.order.decoupled:
            return self._stream(order, replica)
        specs = replica.order.inputs
        if replica.order.sequence is not None and len(order.inputs) > len(specs):
            specs = (*specs, STEPS)
        inputs = inputs_of(specs, order)
        BATCH_TRACE.context = order.trace
        found, compute_us = replica.predict(inputs, order.parameters)
        took = (compute_us, replica.ended_us, replica.padded_size)
        buffers = self._packed(order, replica.order, found, took)
        replica.keep()
        return buffers

    def _stream(self, order: RunOrder, replica: LoadedReplica) -> list[Buffer]:
        """Send the answers of a decoupled model's batch, and return the frame that ends it."""
        order.payload = memoryview(bytearray(order.payload))  # frames that come meanwhile take its place
        inputs = inputs_of(replica.order.inputs, order)
        sender = RowSender(order, replica.order.outputs, self._send)

        def gone() -> frozenset[int]:
            self._look()
            left = {row for batch, row in self._gone if batch == order.batch_id}
            return frozenset(left | sender.refused)

        try:
            with closing(replica.answers(inputs, order.parameters, gone)) as answers:
                for row, answer in answers:
                    sender.send(row, answer)
        finally:
            self._gone = {each for each in self._gone if each[0] > order.batch_id}
        return [sender.end(replica.padded_size)]

    def _look(self) -> None:
        """Take what has come while a stream runs. A LEAVE counts at once, a load begins; other frames wait
        for their turn."""
        while not self._at_end:
            while (frame := self._frames.next()) is not None:
                if frame.kind is FrameKind.LEAVE:
                    self._gone.add(unpack_leave(frame))
                elif frame.kind is FrameKind.LOAD:
                    self._load(frame)
                else:
                    meta, payload = memoryview(bytes(frame.meta)), memoryview(bytearray(frame.payload))
                    self._behind.append(Frame(frame.kind, meta, payload))
            try:
                count = self._sock.recv_into(self._frames.space(), 0, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            self._at_end = not count
            self._frames.filled(count)

    def _packed(
        self, order: RunOrder, spec: LoadOrder, found: object, took: tuple[int, int, int]
    ) -> list[Buffer]:
        """Return the answer to a batch; `took`: compute time in us, when it ended, and its padded size."""
        any_datatype = order.inputs[0].datatype if order.inputs else ""
        outputs = encode_outputs(spec.outputs, found, order.rows, any_datatype)
        refused = refused_rows(spec.outputs, outputs, order.rows)
        data: list[Buffer] = [output.data for output in outputs]
        count = gather_bytes(data)
        if count > PAYLOAD_BYTES_MAX:
            raise OverflowError(f"the outputs take {count} bytes, at most {PAYLOAD_BYTES_MAX} fit a frame")
        flags = 0
        if self._answers is not None and order.share_over < count <= SHARED_BYTES_MAX:
            self._answers.write(data, count)
            flags, data = SHARED, []
        head = pack_result(
            (order.batch_id, *took, order.rows, flags),
            outputs,
            count,
            refused,
        )
        return [head, *data]

    def _end(self, _frame: Frame) -> None:
        self._at_end = self._dismissed = True

    def _load(self, frame: Frame) -> None:
        self._loader.load(unpack_load(frame))

    def _unload(self, frame: Frame) -> None:
        self._loader.unload(unpack_unload(frame))

    def _measure(self, frame: Frame) -> None:
        order = unpack_measure(frame)
        replica = self._loader.find(order.replica)
        if replica is None:
            self._send((pack_load_failed(order.replica, "it was to be measured but is not loaded here"),))
            return
        complaint, told = "", list[Buffer]()
        SPEAKING.model, BATCH_TRACE.context = replica.order.model, NO_TRACE
        try:
            answer = pack_measured(replica.measure(order, self._memory, self._yardstick))
        except MODEL_ERRORS as error:
            complaint = f"of {order.rows} rows of size {order.size}: {describe(error)}"
            told = self._told(error, replica, f"on its sample of {order.rows} rows of size {order.size}")
        if complaint:  # a replica that cannot run its own sample is no replica
            name = f"{replica.order.model} {replica.order.variant}"
            answer = pack_load_failed(order.replica, f"{name} failed on its sample {complaint}")
            self._loader.unload(order.replica, told=False)
        self._send((*told, answer))
