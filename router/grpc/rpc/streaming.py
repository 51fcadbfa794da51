"""ModelStreamInfer: many requests and their answers on one call, for either server.

Each request is a call of the core. Models with one answer are answered in the order of their requests, models
with any number as the answers come; an error is an answer too, and the stream goes on. So does Triton
(triton-inference-server/server, src/grpc/stream_infer_handler.cc). A request is read only when there is room
for it, so a client that does not take its answers is paused.
"""

import asyncio
import logging
from asyncio import CancelledError
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final  # Any: neither grpc nor the generated messages carry types
from urllib.parse import unquote

import grpc

from router.grpc.rpc.calls import Calls, abort, fields_of, reply_of
from router.grpc.rpc.inference import Asked, Inferences, is_expiring
from router.logs.access import say_access
from router.protocol.outcomes import ANSWERS, INTERNAL_ERROR, worded
from router.security.auth.identity import CALLER, Identity
from router.tensors.answer.streamed import stream_answer, stream_end, stream_error
from router.tensors.messages import NAME, early_text
from router.tensors.parts.errors import RETRY_US, RequestError, memory_full
from router.tensors.request.decoded import Decoded
from serving.policy.limits.memory import SMALL_BYTES
from serving.ports import Reply, Serving
from serving.values.specs import Limits
from serving.values.tensor import Tensor
from serving.values.versions import ONLY
from serving.values.vocabulary import COMPLETED, DRAINING, MEMORY_FULL, QUEUE_FULL

logger = logging.getLogger(__name__)

STREAM: Final = "ModelStreamInfer"
STATUS_FIELD: Final = "triton_grpc_error"
"""Metadata of a stream: `true` asks for the first error as the stream's status, which ends it."""
OK: Final = grpc.StatusCode.OK.name
BROKEN: Final = grpc.StatusCode.INTERNAL.name
_ID: Final = 3  # the field of a ModelInferRequest with its id


class Streams:
    """The open streams of an edge. `path`: what the access log calls them, where there is one."""

    def __init__(self, serving: Serving, calls: Calls, inferences: Inferences, limits: Limits) -> None:
        self.serving = serving
        self.calls = calls
        self.inferences = inferences
        self.limits = limits
        self.access = False
        self.path = ""
        self._open: set[ModelStream] = set()
        calls.on_stop(self._stop)

    @property
    def count(self) -> int:
        """How many are open."""
        return len(self._open)

    def handler(self, path: str, access: bool) -> Any:
        """Return the handler of the method."""
        self.path, self.access = path, access
        return self.calls.stream(self._serve)

    def _stop(self) -> None:
        """Have every stream end once its requests are answered."""
        for each in tuple(self._open):
            each.stop()

    async def _serve(self, context: Any) -> None:
        limits = self.limits
        if len(self._open) >= limits.infer_stream_count:
            most = f"{limits.infer_stream_count} streams open (limits.infer_stream_count)"
            full = RequestError(QUEUE_FULL, f"the gateway has its limit of {most}", RETRY_US)
            self.calls.refused(context.invocation_metadata(), QUEUE_FULL)
            await abort(context, reply_of(full))
        stream = ModelStream(self, context, CALLER.get())
        self._open.add(stream)
        try:
            await stream.run()
        finally:
            self._open.discard(stream)


class StreamRequest:
    """A request of a stream. `wire`: its answer, while answers before it are missing; `asked_us`: when it
    came; `in_turn`: it has one answer, which comes in the order of the requests; `request_id`: the core's, 0
    where it is answered; `unread_bytes`: of its answers."""

    __slots__ = (
        "asked", "asked_us", "decoded", "id", "in_turn", "is_over", "model", "request_id", "unread_bytes",
        "wire",
    )  # fmt: skip

    def __init__(self, asked_us: int) -> None:
        self.asked_us = asked_us
        self.id = ""
        self.model = ""
        self.asked: Asked | None = None
        self.decoded: Decoded | None = None
        self.in_turn = True
        self.request_id = 0
        self.wire: bytes | None = None
        self.unread_bytes = 0
        self.is_over = False


class ModelStream:
    """One stream. `_under_way`: requests whose last answer is not written; `_in_order`: those of them that
    are answered in turn; `_ready`: answers to write."""

    def __init__(self, streams: Streams, context: Any, identity: Identity | None) -> None:
        metadata: Sequence[tuple[str, Any]] = context.invocation_metadata()
        self._streams = streams
        self._serving = streams.serving
        self._limits = streams.limits
        self._context = context
        self._fields: Mapping[str, str] = fields_of(metadata)
        self._by_status = str(self._fields.get(STATUS_FIELD, "")).lower() == "true"
        self._identity = identity
        self._tenant = streams.calls.tenant(identity, self._fields)
        self._under_way: set[StreamRequest] = set()
        self._in_order: deque[StreamRequest] = deque()
        self._ready: deque[tuple[bytes, StreamRequest]] = deque()
        self._unread_bytes = 0
        self._changed = asyncio.Event()  # there is something to write, or an end
        self._room = asyncio.Event()  # another request may be read
        self._room.set()
        self._is_waiting = False  # for room, or for a message
        self._is_stopping = streams.calls.stopping.is_set()
        self._failure: Reply | None = None  # ends the stream
        self._is_over = False
        self._reading: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Serve the stream to its end."""
        reading = self._reading = asyncio.ensure_future(self._read_all())
        reading.add_done_callback(lambda _: self._changed.set())
        try:
            await self._write_all(reading)
        finally:
            self._is_over = True
            reading.cancel()
            self._give_up()
            with suppress(CancelledError, Exception):
                await reading
        if self._failure is not None:
            await abort(self._context, self._failure)
        if self._is_stopping:
            await abort(self._context, Reply(DRAINING))

    def stop(self) -> None:
        """Read no more: the gateway ends. What was read is answered."""
        self._is_stopping = True
        if self._reading is not None and self._is_waiting:
            self._reading.cancel()
        self._changed.set()

    # requests

    async def _read_all(self) -> None:
        while not self._is_stopping:
            self._is_waiting = True
            try:
                await self._room.wait()
                message = await self._context.read()
            finally:
                self._is_waiting = False
            if message is grpc.aio.EOF:
                return
            await self._begin(bytes(message))

    def _has_room(self) -> bool:
        limits = self._limits
        return (
            len(self._under_way) < limits.infer_stream_requests
            and self._unread_bytes <= limits.infer_stream_bytes
        )

    async def _begin(self, message: bytes) -> None:
        """Submit a request, or queue the error that is its answer."""
        streams, now_us = self._streams, self._serving.now_us()
        request = StreamRequest(now_us)
        self._under_way.add(request)
        self._in_order.append(request)
        self._look()
        try:
            refusal = streams.calls.hold(request, len(message))
            if refusal is not None:
                self._serving.refused(early_text(message, NAME), refusal.outcome, self._tenant)
                raise refusal
            left_s = self._context.time_remaining()
            asked = request.asked = Asked(
                self._fields, self._tenant, self._identity, left_s, now_us, now_us, streams=True
            )
            if streams.inferences.is_bulk(message):
                message = await streams.inferences.open(message, asked)
            self._submit(request, await streams.inferences.read_whole(message, asked))
        except RequestError as error:
            self._fail(request, reply_of(error), message)
        except Exception:
            logger.exception("a request of a gRPC stream failed")
            self._answer_error(request, INTERNAL_ERROR, BROKEN, message)
        finally:
            streams.calls.submitted(request)

    def _submit(self, request: StreamRequest, decoded: Decoded) -> None:
        request.decoded = decoded
        request.id, request.model = decoded.id, decoded.call.model.name
        if decoded.call.model.spec.decoupled:
            request.in_turn = False
            self._in_order.pop()  # it was the last
            decoded.call.on_answer = partial(self._take, request)
        request_id = self._serving.submit(decoded.call, partial(self._deliver, request))
        if not request.is_over:
            request.request_id = request_id

    # answers

    def _deliver(self, request: StreamRequest, reply: Reply) -> None:
        """Take the core's reply; the core calls this once, perhaps before `submit` returns."""
        request.request_id = 0
        decoded, asked = request.decoded, request.asked
        if self._is_over or request.is_over or decoded is None or asked is None:
            return
        if reply.outcome is not COMPLETED:
            self._fail(request, reply)
            return
        if not request.in_turn:
            self._end(
                request,
                stream_end(request.id, decoded.call.model.spec, reply.version)
                if decoded.empty_final
                else b"",
                OK,
            )
            return
        inferences = self._streams.inferences
        if inferences.stores_much(decoded, reply):
            inferences.bulk.begin(inferences.store(decoded, reply), partial(self._stored, request, reply))
        else:
            self._answer(request, decoded, reply, asked)

    def _stored(self, request: StreamRequest, reply: Reply, task: "asyncio.Task[None]") -> None:
        """Answer a request once its large outputs are in the client's memory."""
        error = CancelledError() if task.cancelled() else task.exception()
        decoded, asked = request.decoded, request.asked
        if self._is_over or request.is_over or decoded is None or asked is None:
            return
        if error is None:
            self._answer(request, decoded, reply, asked)
        elif isinstance(error, RequestError):
            self._fail(request, reply_of(error))
        else:
            logger.error("storing a streamed answer of '%s' failed", request.model, exc_info=error)
            self._answer_error(request, INTERNAL_ERROR, BROKEN)

    def _answer(self, request: StreamRequest, decoded: Decoded, reply: Reply, asked: Asked) -> None:
        try:
            answer, _ = self._streams.inferences.write(decoded, reply, asked)
        except RequestError as error:  # its outputs have no room in the client's memory
            self._fail(request, reply_of(error))
            return
        except Exception:
            logger.exception("encoding a streamed answer of '%s' failed", request.model)
            self._answer_error(request, INTERNAL_ERROR, BROKEN)
            return
        self._end(request, stream_answer(answer, True), OK)

    def _take(self, request: StreamRequest, outputs: Sequence[Tensor], version: int) -> None:
        """Take one of the answers of a decoupled model."""
        decoded, limit = request.decoded, self._limits.infer_stream_bytes
        if self._is_over or request.is_over or decoded is None:
            return
        if self._unread_bytes > limit:
            sentence = f"{self._unread_bytes} bytes of answers wait for the client (limits.infer_stream_mb)"
            request_id = request.request_id
            self._fail(request, Reply(MEMORY_FULL, sentence))
            self._serving.cancel(request_id)
            return
        wire = stream_answer(self._streams.inferences.write_one(decoded, outputs, version), False)
        self._ready.append((wire, request))
        self._count(request, len(wire))
        self._changed.set()

    def _fail(self, request: StreamRequest, reply: Reply, message: bytes = b"") -> None:
        if self._by_status:
            self._fail_stream(reply)
        sentence = worded(reply.outcome, reply.detail)
        self._answer_error(request, sentence, ANSWERS[reply.outcome].grpc_code.name, message)

    def _answer_error(self, request: StreamRequest, sentence: str, status: str, message: bytes = b"") -> None:
        """Answer with an error. `message`: of a request that was not understood, for its id."""
        if message and request.decoded is None:
            request.id, request.model = early_text(message, _ID), early_text(message, NAME)
        version = request.decoded.call.model.spec.model_version if request.decoded else ONLY
        self._end(request, stream_error(sentence, request.id, request.model, version), status)

    def _end(self, request: StreamRequest, wire: bytes, status: str) -> None:
        """Queue the last answer of a request; b"": it has had all."""
        request.is_over = True
        request.decoded = None
        streams = self._streams
        if streams.access:
            took_us = self._serving.now_us() - request.asked_us
            say_access(self._context.peer(), streams.path, status, len(wire), took_us)
        self._count(request, len(wire))
        if request.in_turn:
            request.wire = wire
        elif wire:
            self._ready.append((wire, request))
        elif not request.unread_bytes:
            self._under_way.discard(request)
        in_order = self._in_order
        while in_order and (first := in_order[0]).wire is not None:
            in_order.popleft()
            self._ready.append((first.wire, first))
            first.wire = None
        self._changed.set()

    def _count(self, request: StreamRequest, size: int) -> None:
        request.unread_bytes += size
        self._unread_bytes += size
        self._look()
        if self._unread_bytes > SMALL_BYTES:
            self._streams.calls.account.fall_behind(self)

    async def _write_all(self, reading: "asyncio.Task[None]") -> None:
        """Write answers until there are no more to come."""
        while self._failure is None:
            if self._ready:
                await self._write(*self._ready.popleft())
                continue
            if reading.done() and not self._under_way:
                if not reading.cancelled() and (error := reading.exception()) is not None:
                    raise error
                return
            self._changed.clear()
            await self._changed.wait()

    async def _write(self, wire: bytes, request: StreamRequest) -> None:
        limit_s = self._limits.slow_client_s
        try:
            async with asyncio.timeout(limit_s):
                await self._context.write(wire)
        except TimeoutError:
            self._fail_stream(
                memory_full(f"the client took no answer within {limit_s:g} s (limits.slow_client_s)")
            )
            return
        request.unread_bytes -= len(wire)
        self._unread_bytes -= len(wire)
        if request.is_over and not request.unread_bytes:
            self._under_way.discard(request)
        self._look()
        if self._unread_bytes <= SMALL_BYTES:
            self._streams.calls.account.catch_up(self)

    def _look(self) -> None:
        """Read on if there is room, and else not."""
        (self._room.set if self._has_room() else self._room.clear)()

    # how it ends

    def _fail_stream(self, failure: Reply | RequestError) -> None:
        if self._failure is None:
            self._failure = reply_of(failure) if isinstance(failure, RequestError) else failure
        self._changed.set()

    def _give_up(self) -> None:
        """Cancel what is not answered. A call at its deadline is not cancelled: the core ends it, and counts
        it as late."""
        self._ready.clear()
        self._unread_bytes = 0
        self._streams.calls.account.catch_up(self)
        now_us = self._serving.now_us()
        for request in tuple(self._under_way):
            decoded, request.decoded = request.decoded, None
            if request.request_id and decoded is not None and not is_expiring(decoded.call, now_us):
                self._serving.cancel(request.request_id)
        self._under_way.clear()

    # what the account asks of it: see `router.protocol.account.Holder`

    def held_bytes(self) -> int:
        return self._unread_bytes

    def address(self) -> str:
        host = str(self._context.peer()).partition(":")[2].rpartition(":")[0]
        return unquote(host).strip("[]")

    def give_up(self, _sentence: str) -> None:
        self._fail_stream(memory_full(_sentence))
