"""The gateway's end of one worker: orders out, events in, and the one report of its end.

Nothing here waits. What a stopped worker does not take stays in the transport's buffer, as references
to the request buffers: with one batch in flight per slice (the scheduler's rule) that is one batch,
and it goes when the worker is killed.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, Protocol, cast

from serving.runtime.clocks.alarm import Alarm
from serving.runtime.clocks.clock import now_us
from serving.runtime.workers.contract import WorkerProcess
from serving.runtime.workers.flight import Flight, check
from serving.values.specs import ModelSpec, Parameters, TensorSpec
from serving.values.tensor import Buffer
from serving.values.traces import NO_TRACE, TraceContext
from serving.worker.frames.batches import (
    NEVER_SHARE,
    SHARED,
    BatchInput,
    BatchResult,
    pack_leave,
    pack_run,
    unpack_failed,
    unpack_result,
)
from serving.worker.frames.orders import (
    Hello,
    Loaded,
    LoadOrder,
    MeasuredBatches,
    MeasureOrder,
    Raised,
    pack_load,
    pack_measure,
    pack_unload,
    unpack_hello,
    unpack_load_failed,
    unpack_loaded,
    unpack_measured,
    unpack_raised,
    unpack_unloaded,
)
from serving.worker.frames.shared import SHARED_BYTES_MAX, SharedArea
from serving.worker.frames.wire import (
    INLINE_BYTES_MAX,
    PAYLOAD_BYTES_MAX,
    Frame,
    FrameBuffer,
    FrameKind,
    ProtocolError,
    gather_bytes,
    pack_frame,
)

LAST_FRAME: Final = pack_frame(FrameKind.LAST, b"")

LET_GO: Final = "is left to the next gateway"
EXIT_WAIT_S: Final = 1.0
"""A process and its connection end together, in either order; how long the second may take."""


class LinkEvents(Protocol):
    """What a link reports: on the event loop, never from within a call of the link's methods."""

    def worker_ready(self, link: "Link") -> None:
        """Note that the worker said hello; `link.versions` tells what it runs on."""
        ...

    def replica_loaded(self, link: "Link", loaded: Loaded) -> None:
        """Note that the replica has run once and takes batches."""
        ...

    def replica_failed(self, link: "Link", replica: int, message: str) -> None:
        """Note that the replica could not be loaded, or failed on its own sample when measured; it is
        gone."""
        ...

    def replica_unloaded(self, link: "Link", replica: int) -> None:
        """Note that what `unload` asked for is done: the replica's memory is given back."""
        ...

    def batch_done(self, link: "Link", result: BatchResult) -> None: ...

    def batch_failed(self, link: "Link", batch_id: int, message: str, bad_input: bool = False) -> None:
        """Note that the batch failed alone: its model raised, or answered what its spec does not allow."""
        ...

    def measured(self, link: "Link", found: MeasuredBatches) -> None: ...

    def worker_lost(self, link: "Link", reason: str) -> None:
        """Note that the worker ended, for whatever reason, asked or not. This comes exactly once, and nothing
        follows it."""
        ...


class Link(asyncio.BufferedProtocol):
    """One worker. `areas`: shared memory for requests and answers; None for a worker that is far away.
    `on_raised`: hears what the slice's models raise, before the event that says what failed by it.
    `pieces_of`: of how many rows the pieces of a batch are, in order; () where all are one. `on_row`: takes
    each answer of a row of a decoupled model's batch."""

    inline_bytes_max = INLINE_BYTES_MAX

    def __init__(
        self,
        slice_name: str,
        events: LinkEvents,
        process: WorkerProcess | None = None,
        areas: tuple[SharedArea, SharedArea] | None = None,
    ) -> None:
        self.slice = slice_name
        self.pid = process.pid if process else 0
        self.overran = False  # it was ended as it held more than it may
        self.ahead_us = 0  # its clock, which is another on another machine
        self.versions: dict[str, str] = {}
        self.on_raised: Callable[[str, Raised], None] = lambda _slice, _raised: None
        self.pieces_of: Callable[[int], Sequence[int]] = lambda _batch: ()
        self.on_row: Callable[[BatchResult], None] = lambda _answer: None
        self.ended = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._events = events
        self._process = process
        self._areas = areas
        self._hello: Hello | None = None
        self._replicas: dict[int, tuple[TensorSpec, ...]] = {}
        self._decoupled: set[int] = set()  # of these replicas
        self._going: set[int] = set()  # unloaded, their memory not given back yet
        self._flights: dict[int, Flight] = {}
        self._request_area_user = self._answer_area_user = -1  # batch ids; an area holds one batch at a time
        self._laying = False  # a batch is written to shared memory, in portions
        self._behind: list[list[Buffer]] = []  # orders that wait for that
        self._copying = False  # an answer is copied out of shared memory, in portions
        self._frames = FrameBuffer()
        self._transport: asyncio.Transport | None = None
        self._outgoing: asyncio.Transport | None = None  # the same, until `close`
        self._fault = ""
        self.crashed = False  # what it computed or loaded has ended the process, and nothing outside of it
        self._connection_ended = False
        self._exit: str | None = None if process else "its connection was closed"
        self._exit_alarm: Alarm | None = None
        self._handlers: dict[FrameKind, Callable[[Frame], None]] = {
            FrameKind.RESULT: self._on_result,
            FrameKind.ROW: self._on_row,
            FrameKind.FAILED: self._on_failed,
            FrameKind.HELLO: self._on_hello,
            FrameKind.LOADED: self._on_loaded,
            FrameKind.LOAD_FAILED: self._on_load_failed,
            FrameKind.UNLOADED: self._on_unloaded,
            FrameKind.MEASURED: self._on_measured,
            FrameKind.RAISED: lambda frame: self.on_raised(self.slice, unpack_raised(frame)),
        }

    # ---- orders; after `close` or the worker's end they do nothing: `worker_lost` says it all

    def load(self, replica: int, model: ModelSpec, variant: str, revision: str = "") -> None:
        """Load and warm up beside batches, after the loads and unloads ordered before; `replica_loaded` or
        `replica_failed` follows. `revision` says what the model's files are. KeyError: no such variant."""
        order = LoadOrder.of(replica, model, variant, revision)
        self._replicas[replica] = model.outputs
        if model.decoupled:
            self._decoupled.add(replica)
        self._send_load(order, model)

    def unload(self, replica: int) -> None:
        """Drop a replica, loaded or not yet: `replica_unloaded` follows when the batches sent before have run
        and its memory is given back, and no other event of it. A second time does nothing."""
        self._replicas.pop(replica, None)
        self._decoupled.discard(replica)
        if replica not in self._going:
            self._going.add(replica)
            self._send(pack_unload(replica))

    def measure(self, order: MeasureOrder) -> None:
        """Run the replica's own sample; `measured` or `replica_failed` follows."""
        self._send(pack_measure(order))

    def run(
        self,
        batch_id: int,
        replica: int,
        rows: int,
        inputs: Sequence[BatchInput],
        parameters: Parameters,
        trace: TraceContext = NO_TRACE,
    ) -> None:
        """Run a batch; `batch_done` or `batch_failed` follows. KeyError: no such replica was loaded.

        The buffers must stay unchanged until then: they are sent as they are, without a copy. `trace`: for
        the server that a `remote` replica asks.
        """
        outputs = self._replicas[replica]
        transport = self._outgoing
        if transport is None:
            return
        byte_counts = [gather_bytes(entry.buffers) for entry in inputs]
        total = sum(byte_counts)
        datatype = inputs[0].datatype if inputs else ""
        self._flights[batch_id] = Flight(rows, outputs, datatype, replica in self._decoupled)
        if total > PAYLOAD_BYTES_MAX:
            message = f"the batch's inputs take {total} bytes, at most {PAYLOAD_BYTES_MAX} fit a frame"
            self._loop.call_soon(self._fail, batch_id, message)
            return
        share_over = NEVER_SHARE
        area: SharedArea | None = None
        if self._hello is not None and self._hello.shared and self._areas is not None:
            if self._answer_area_user < 0:
                self._answer_area_user = batch_id
                share_over = self.inline_bytes_max
            if self.inline_bytes_max < total <= SHARED_BYTES_MAX and self._request_area_user < 0:
                self._request_area_user = batch_id
                area = self._areas[0]
        head, said = (batch_id, replica, rows, share_over), (parameters, trace)
        if area is None:
            self._put(_run_frame(head, inputs, byte_counts, said, 0))
            return
        laid = [buffer for entry in inputs for buffer in entry.buffers]
        self._lay(area.writing(laid, total), partial(_run_frame, head, inputs, byte_counts, said))

    def leave(self, batch_id: int, row: int) -> None:
        """Say that nobody waits for a row's answers any more. The batch goes on for others."""
        if batch_id in self._flights and self._outgoing is not None:
            self._put([pack_leave(batch_id, row)])

    def close(self) -> None:
        """Ask the worker to finish what it was sent and exit; `worker_lost` follows."""
        outgoing, self._outgoing = self._outgoing, None
        if outgoing is not None and not self._laying:
            self._finish(outgoing)

    def kill(self, reason: str = "") -> None:
        """End the worker now; `worker_lost` follows, with the reason where there is one."""
        if self.ended.is_set():
            return
        self._fault = self._fault or reason
        if self._process is not None:
            self._process.kill()
        elif self._transport is not None:
            self._transport.abort()

    def let_go(self) -> None:
        """Leave the worker to the next gateway; `worker_lost` follows."""
        self._exit = LET_GO
        if self._transport is not None:
            self._transport.abort()

    def blame(self, reason: str) -> None:
        """Give the worker up: whatever it does from now on, it is lost for this reason. `kill` follows."""
        self._fault = self._fault or reason

    # ---- what the transport and the supervisor tell

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = self._outgoing = cast(asyncio.Transport, transport)
        # uvloop keeps up to the high-water mark until the end of the loop's turn, after all the answers of
        # the batch before: 300 us in which the worker idles, instead of 30.
        self._transport.set_write_buffer_limits(high=0)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002  # the frame knows better
        return self._frames.space()

    def buffer_updated(self, nbytes: int) -> None:
        self._frames.filled(nbytes)
        self._handle_frames()

    def _handle_frames(self) -> None:
        try:
            while not (self._fault or self._copying) and (frame := self._frames.next()) is not None:
                handler = self._handlers.get(frame.kind)
                if handler is None:
                    raise ProtocolError(f"a worker sends no {frame.kind.name} frames")
                if self._hello is None and frame.kind is not FrameKind.HELLO:
                    raise ProtocolError(f"its first frame is {frame.kind.name}, expected HELLO")
                handler(frame)
        except ProtocolError as error:
            self._condemn(f"sent garbage: {error}")

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  # the exit says more
        self._transport = self._outgoing = None
        self._connection_ended = True
        self._settle()

    def exited(self, how: str, crashed: bool = False) -> None:
        """Note that the process is gone and reaped. `how`: in words, like "was killed by SIGKILL". `crashed`:
        by what it did itself."""
        self._exit, self.crashed = how, crashed and not self._fault
        self._settle()

    def fail_to_start(self, reason: str) -> None:
        """Note that there is no process and no connection; `worker_lost` follows."""
        self._fault = f"could not be started: {reason}"
        self._loop.call_soon(self.connection_lost, None)

    # ---- inside

    def _send_load(self, order: LoadOrder, model: ModelSpec) -> None:  # noqa: ARG002  for workers far away
        self._send(pack_load(order))

    def _send(self, frame: bytes) -> None:
        if self._outgoing is not None:
            self._put([frame])

    def _finish(self, outgoing: asyncio.Transport) -> None:
        outgoing.write(LAST_FRAME)
        if outgoing.can_write_eof():  # TLS has no half end
            outgoing.write_eof()

    def _put(self, frame: list[Buffer]) -> None:
        if self._laying:
            self._behind.append(frame)
        elif self._transport is not None:
            self._transport.writelines(frame)

    def _lay(self, writing: Iterator[int], frame: Callable[[int], list[Buffer]]) -> None:
        """Write the next portion of a batch into shared memory; after the last, send its frame and what waits
        behind."""
        if self._transport is None:
            return
        flags = SHARED
        try:
            self._laying = next(writing, None) is not None
        except OSError:  # no memory to grow by: the socket needs none
            self._laying = False
            self._request_area_user = -1
            flags = 0
        if self._laying:
            self._loop.call_soon(self._lay, writing, frame)
            return
        for each in (frame(flags), *self._behind):
            self._transport.writelines(each)
        self._behind.clear()
        if self._outgoing is None:  # it was closed meanwhile
            self._finish(self._transport)

    def _flight(self, batch_id: int) -> Flight:
        flight = self._flights.get(batch_id)
        if flight is None:
            raise ProtocolError(f"an answer to batch {batch_id}, which it does not have")
        return flight

    def _land(self, batch_id: int) -> None:
        del self._flights[batch_id]
        if self._request_area_user == batch_id:
            self._request_area_user = -1
        if self._answer_area_user == batch_id:
            self._answer_area_user = -1

    def _fail(self, batch_id: int, message: str) -> None:
        if not self.ended.is_set():
            del self._flights[batch_id]
            self._events.batch_failed(self, batch_id, message)

    def _on_result(self, frame: Frame) -> None:
        result = unpack_result(frame, self._areas[1] if self._areas else None)
        result.ended_us -= self.ahead_us
        flight = self._flight(result.batch_id)
        check(result, flight, flight.rows)
        if not result.is_shared:
            self._land(result.batch_id)
            self._events.batch_done(self, result)
        elif self._transport is not None:
            self._copying = True
            self._transport.pause_reading()
            self._copy(result, result.copying(self.pieces_of(result.batch_id)))

    def _on_row(self, frame: Frame) -> None:
        answer = unpack_result(frame, None)
        flight = self._flight(answer.batch_id)
        if not flight.decoupled or answer.size >= flight.rows:
            raise ProtocolError(f"an answer of row {answer.size} of batch {answer.batch_id}, which has none")
        check(answer, flight, 1)
        self.on_row(answer)

    def _copy(self, result: BatchResult, copying: Iterator[int]) -> None:
        """Copy the next portion of an answer out of shared memory; after the last, the batch is done.
        Meanwhile what the worker says waits."""
        if self._transport is None:
            return
        if not self._fault and next(copying, None) is not None:
            self._loop.call_soon(self._copy, result, copying)
            return
        self._copying = False
        if not self._fault:
            self._land(result.batch_id)
            self._events.batch_done(self, result)
        if not self._transport.is_closing():
            self._transport.resume_reading()
        self._handle_frames()

    def _on_failed(self, frame: Frame) -> None:
        batch_id, message, bad_input = unpack_failed(frame)
        self._flight(batch_id)
        self._land(batch_id)
        self._events.batch_failed(self, batch_id, message, bad_input)

    def _on_hello(self, frame: Frame) -> None:
        if self._hello is not None:
            raise ProtocolError("a second HELLO")
        self._hello = unpack_hello(frame)
        if self._process is not None:  # whose process is the worker's keeper
            self.pid = self._hello.pid
        self.versions = self._hello.versions
        self._events.worker_ready(self)

    # A replica that was unloaded meanwhile does not matter any more: its late answers are dropped.

    def _on_loaded(self, frame: Frame) -> None:
        loaded = unpack_loaded(frame)
        if loaded.replica in self._replicas:
            self._events.replica_loaded(self, loaded)

    def _on_load_failed(self, frame: Frame) -> None:
        replica, message = unpack_load_failed(frame)
        if self._replicas.pop(replica, None) is not None:
            self._events.replica_failed(self, replica, message)

    def _on_unloaded(self, frame: Frame) -> None:
        replica = unpack_unloaded(frame)
        if replica not in self._going:
            raise ProtocolError(f"gave back replica {replica}, which nobody has unloaded")
        self._going.remove(replica)
        self._events.replica_unloaded(self, replica)

    def _on_measured(self, frame: Frame) -> None:
        found = unpack_measured(frame)
        if found.replica in self._replicas:
            self._events.measured(self, found)

    def _condemn(self, fault: str) -> None:
        self._fault = fault
        self.kill()
        if self._transport is not None:
            self._transport.abort()

    def _settle(self) -> None:
        if self.ended.is_set():
            return
        if not (self._connection_ended and self._exit is not None):
            if self._exit_alarm is None:
                self._exit_alarm = Alarm(self._force)
                now = now_us()
                self._exit_alarm.set(now + int(EXIT_WAIT_S * 1e6), now)
            return
        if self._exit_alarm is not None:
            self._exit_alarm.close()
        self._end(self._fault or self._exit)

    def _force(self, _now: int) -> None:
        if self._connection_ended:  # yet the process lives
            self.kill()
            self._end(self._fault or "closed its connection without exiting, and was killed")
        elif self._transport is not None:  # a child of the worker holds its socket
            self._transport.abort()

    def _end(self, reason: str) -> None:
        self.ended.set()
        for area in self._areas or ():
            self._loop.run_in_executor(None, area.close)
        self._areas = None
        self._events.worker_lost(self, reason)


def _run_frame(
    batch: tuple[int, int, int, int],
    inputs: Sequence[BatchInput],
    byte_counts: Sequence[int],
    said: tuple[Parameters, TraceContext],
    flags: int,
) -> list[Buffer]:
    """Return a RUN; `batch` is (batch id, replica, rows, share_over), `said` its parameters and its trace."""
    batch_id, replica, rows, share_over = batch
    buffers: list[Buffer] = [
        pack_run((batch_id, replica, rows, share_over, flags), inputs, byte_counts, *said)
    ]
    if not flags:
        for entry in inputs:
            buffers.extend(entry.buffers)
    return buffers
