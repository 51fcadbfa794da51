"""One rehearsed worker: the worker's side of the wire, without a model behind it.

It answers as `serving.worker.loop.serve` does, at the instants that its pace names. It waits for nothing: its
host calls it when its socket has bytes or room, and at the instants that it asked for.
"""

import socket
import sys
from collections import deque
from collections.abc import Callable, Sequence
from math import prod
from struct import Struct
from typing import Final, Protocol

from serving.profile.derived.latency import Latency
from serving.values.specs import SizeHint
from serving.values.tensor import ITEM_BYTES, Buffer, text_size
from serving.worker.frames.batches import SHARED, RunOrder, TensorPlace, pack_failed, pack_result, unpack_run
from serving.worker.frames.orders import (
    Loaded,
    LoadOrder,
    MeasuredBatches,
    MeasureOrder,
    pack_hello,
    pack_load_failed,
    pack_loaded,
    pack_measured,
    pack_unloaded,
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
from serving.worker.rehearsed.answers import answer_of
from serving.worker.rehearsed.neighbours import Key
from serving.worker.rehearsed.notes import Begin
from serving.worker.rehearsed.timing import Pace

_IOV_MAX: Final = 512  # buffers of one sendmsg; Linux takes 1024
_LENGTH: Final = Struct("<I")
LOST: Final = "was lost, as its rehearsal says"


class Surroundings(Protocol):
    """What a session has of its host."""

    def now_us(self) -> int:
        """Return the instant, by the machine's monotonic clock."""
        ...

    def at(self, due_us: int, call: Callable[[], None]) -> None:
        """Call `call` at `due_us`."""
        ...

    def watch(self, sock: socket.socket, writable: bool) -> None:
        """Tell also (or no longer) when the socket takes bytes."""
        ...

    def latency(self, begin: Begin, order: LoadOrder) -> Latency:
        """Return what the profiles say of a variant there; LookupError says that they say nothing."""
        ...

    def ended(self, session: "Session", how: str, crashed: bool) -> None:
        """Note that a session has ended."""
        ...


class _Replica:
    """A variant that counts as loaded from `ready_us` on."""

    __slots__ = ("latency", "order", "ready")

    def __init__(self, order: LoadOrder, latency: Latency) -> None:
        self.order = order
        self.latency = latency
        self.ready = False


class Session:
    """A worker of a rehearsed slice, from its HELLO to its end."""

    def __init__(
        self,
        begin: Begin,
        sock: socket.socket,
        areas: tuple[SharedArea, SharedArea],
        pace: Pace,
        host: Surroundings,
    ) -> None:
        self.begin = begin
        self.sock = sock
        self.busy_until_us = 0
        self.computes: Key = ("", "")  # the latest of its batches
        self._requests, self._answers = areas
        self._pace = pace
        self._host = host
        self._frames = FrameBuffer()
        self._replicas: dict[int, _Replica] = {}
        self._loads_until_us = 0
        self._waiting: deque[memoryview] = deque()  # bytes that the socket did not take yet
        self._pending = 0  # answers that are still to come
        self._at_end = False  # the gateway has closed its side
        self._over = False
        self._handlers: dict[FrameKind, Callable[[Frame], None]] = {
            FrameKind.RUN: self._run,
            FrameKind.LOAD: self._load,
            FrameKind.UNLOAD: self._unload,
            FrameKind.MEASURE: self._measure,
            FrameKind.LEAVE: lambda _frame: None,  # a made-up answer has one part
            FrameKind.LAST: lambda _frame: None,  # an end of file follows
        }
        if pace.lost_us < float("inf"):
            host.at(round(pace.lost_us), lambda: self.end(LOST))

    def start(self) -> None:
        """Say HELLO."""
        self._send([pack_hello(True, {"rehearsed": f"{self.begin.kind} {self.begin.share}"})])

    def readable(self) -> None:
        """Take what has come: orders, or the end."""
        try:
            count = self.sock.recv_into(self._frames.space())
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            count = 0
        if not count:
            self._at_end = True
            self._leave_if_done()
            return
        self._frames.filled(count)
        try:
            while not self._over and (frame := self._frames.next()) is not None:
                handler = self._handlers.get(frame.kind)
                if handler is None:
                    raise ProtocolError(f"a gateway sends no {frame.kind.name} frames")
                handler(frame)
        except ProtocolError as error:
            sys.stderr.write(f"slice {self.begin.slice}: the gateway {error}\n")
            self.end("exited with 2", crashed=True)

    def writable(self) -> None:
        """Send what has waited."""
        self._flush()

    def end(self, how: str, crashed: bool = False) -> None:
        """End the session, as if its process was killed. A second call does nothing."""
        if self._over:
            return
        self._over = True
        self.busy_until_us = 0
        self._host.ended(self, how, crashed)
        self.sock.close()
        for area in (self._requests, self._answers):
            area.close()

    # orders

    def _load(self, frame: Frame) -> None:
        order = unpack_load(frame)
        if order.replica in self._replicas:
            raise ProtocolError(f"orders replica {order.replica} a second time")
        try:
            latency = self._host.latency(self.begin, order)
        except LookupError as error:
            message = f"{order.model} {order.variant} could not be loaded: {error.args[0]}"
            self._later(self._loads_until_us, pack_load_failed(order.replica, message))
            return
        profile = latency.profile
        replica = self._replicas[order.replica] = _Replica(order, latency)
        self._loads_until_us = max(self._host.now_us(), self._loads_until_us) + profile.load_us
        loaded = Loaded(
            order.replica, profile.load_us, profile.memory_bytes, min(profile.warm_us, profile.load_us),
            profile.import_bytes or 0,
        )  # fmt: skip
        self._pending += 1
        self._host.at(self._loads_until_us, lambda: self._be_loaded(replica, loaded))

    def _be_loaded(self, replica: _Replica, loaded: Loaded) -> None:
        if self._over:
            return
        if self._replicas.get(loaded.replica) is replica:
            replica.ready = True
            self._send([pack_loaded(loaded)])
        self._answered()

    def _unload(self, frame: Frame) -> None:
        number = unpack_unload(frame)
        self._replicas.pop(number, None)
        self._later(max(self._loads_until_us, self.busy_until_us), pack_unloaded(number))

    def _run(self, frame: Frame) -> None:
        order = unpack_run(frame, self._requests)
        replica = self._replicas.get(order.replica)
        if replica is None or not replica.ready:
            self._send([pack_failed(order.batch_id, f"replica {order.replica} is not loaded here")])
            return
        size = _size(replica.order, order)
        order.payload = memoryview(b"")  # it is void once the next frame is received
        work_us = self._pace.work_us(replica.latency, order.rows, size)
        self.computes = replica.order.model, replica.order.variant
        start_us = max(self._host.now_us(), self.busy_until_us)
        end_us = self.busy_until_us = self._pace.ends_us(start_us, work_us)
        self._pending += 1
        self._host.at(end_us, lambda: self._answer(replica, order, (end_us - start_us, end_us)))

    def _answer(self, replica: _Replica, order: RunOrder, times: tuple[int, int]) -> None:
        """Send the answer of a batch. `times`: the compute time, and the end of the compute."""
        if self._over:
            return
        outputs = answer_of(replica.order.outputs, (replica.order.inputs, order.inputs), order.rows)
        data: list[Buffer] = [output.data for output in outputs]
        count = gather_bytes(data)
        if count > PAYLOAD_BYTES_MAX:
            message = f"the outputs take {count} bytes, at most {PAYLOAD_BYTES_MAX} fit a frame"
            self._send([pack_failed(order.batch_id, message)])
            self._answered()
            return
        flags = 0
        if order.share_over < count <= SHARED_BYTES_MAX:
            self._answers.write(data, count)
            flags, data = SHARED, []
        head = pack_result((order.batch_id, *times, 0, order.rows, flags), outputs, count)
        self._send([head, *data])
        self._answered()

    def _measure(self, frame: Frame) -> None:
        order = unpack_measure(frame)
        replica = self._replicas.get(order.replica)
        if replica is None or not replica.ready:
            self._send([pack_load_failed(order.replica, "it was to be measured but is not loaded here")])
            return
        took_us = self._measured(replica.latency, order)
        start_us = max(self._host.now_us(), self.busy_until_us)
        self.busy_until_us = start_us + sum(took_us)
        found = MeasuredBatches(order.replica, order.rows, order.size, took_us)
        self._later(self.busy_until_us, pack_measured(found))

    def _measured(self, latency: Latency, order: MeasureOrder) -> list[int]:
        took_us = [self._pace.work_us(latency, order.rows, order.size)]
        while len(took_us) < order.repeats and sum(took_us) + took_us[-1] <= order.budget_us:
            took_us.append(self._pace.work_us(latency, order.rows, order.size))
        return took_us

    # bytes out

    def _later(self, due_us: int, frame: bytes) -> None:
        self._pending += 1
        self._host.at(due_us, lambda: self._say(frame))

    def _say(self, frame: bytes) -> None:
        if not self._over:
            self._send([frame])
            self._answered()

    def _answered(self) -> None:
        self._pending -= 1
        self._leave_if_done()

    def _leave_if_done(self) -> None:
        """End, once the gateway wants no more and has all that it asked for."""
        if self._at_end and not self._pending and not self._waiting:
            self.end("exited with 0")

    def _send(self, buffers: Sequence[Buffer]) -> None:
        waits = bool(self._waiting)
        self._waiting.extend(memoryview(buffer) for buffer in buffers if len(buffer))
        if not waits:
            self._flush()

    def _flush(self) -> None:
        try:
            while self._waiting:
                sent = self.sock.sendmsg([*self._waiting][:_IOV_MAX])
                while self._waiting and sent >= len(self._waiting[0]):
                    sent -= len(self._waiting.popleft())
                if sent:
                    self._waiting[0] = self._waiting[0][sent:]
        except (BlockingIOError, InterruptedError):
            self._host.watch(self.sock, True)
            return
        except OSError:  # the gateway is gone
            self.end("exited with 0")
            return
        self._host.watch(self.sock, False)
        self._leave_if_done()


def _size(load: LoadOrder, order: RunOrder) -> int:
    """Return the size of the batch's largest row, as the edge tells it; 0 of a model without sizes."""
    hint = load.hint
    if hint is None:
        return 0
    begin = 0
    for spec, place in zip(load.inputs, order.inputs, strict=False):
        if spec.name == hint.input:
            data = order.payload[begin : begin + place.byte_count]
            return hint.place(_longest(hint, place, data, order.rows))[0]
        begin += place.byte_count
    return 0


def _longest(hint: SizeHint, place: TensorPlace, data: memoryview, rows: int) -> int:
    if place.datatype != "BYTES":  # the size of the longest row, to which others are filled up
        return prod(place.dims) * (1 if hint.unit == "values" else ITEM_BYTES[place.datatype])
    longest = at = 0
    for _ in range(rows * prod(place.dims)):
        end = at + _LENGTH.size
        if end > len(data):
            break
        (length,) = _LENGTH.unpack_from(data, at)
        at = end + length
        element = data[end:at]
        longest = max(longest, text_size(element) if hint.unit == "text" else len(element))
    return longest
