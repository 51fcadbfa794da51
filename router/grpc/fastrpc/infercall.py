"""ModelInfer: read, submitted and answered by direct callbacks, as `router/http/fastpath` does for REST."""

import asyncio
import logging
from asyncio import CancelledError
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any  # what a task returns

import grpc

from router.grpc.fastrpc.framing import Header, status, trailers
from router.grpc.fastrpc.inbound import Carrier, Inbound
from router.grpc.rpc.calls import reply_of
from router.grpc.rpc.inference import Asked, is_expiring
from router.grpc.rpc.service import INFER, SERVICE
from router.logs.access import ids_of
from router.protocol.oip import REQUEST_FIELD, TRACE_FIELD
from router.protocol.outcomes import INTERNAL_ERROR
from router.security.auth.identity import Identity
from router.security.auth.rights import CALLERS
from router.tensors.parts.errors import RequestError
from router.tensors.parts.places import CopyFirst, Memory
from router.tensors.request.decoded import Decoded
from serving.ports import Reply
from serving.values.vocabulary import COMPLETED, QUEUE_FULL, Outcome

INFER_PATH = f"/{SERVICE}/{INFER}"

logger = logging.getLogger(__name__)


class InferCall(Inbound):
    """`fields`: what inference reads of its head, perhaps shared with other calls; `headers`: the head, for
    models that read other fields. `entered`: it has one of the places of open calls."""

    __slots__ = (
        "_asked",
        "_decoded",
        "_entered",
        "_fields",
        "_headers",
        "_identity",
        "_request_id",
        "_timeout_s",
    )

    def ids(self) -> Mapping[str, str]:
        return ids_of(self._fields.get(REQUEST_FIELD, ""), self._fields.get(TRACE_FIELD, ""))

    def __init__(
        self, connection: Carrier, stream_id: int, fields: Mapping[str, str], headers: Sequence[Header]
    ) -> None:
        super().__init__(connection, stream_id, INFER_PATH)
        self._fields = fields
        self._headers = headers
        self._timeout_s: float | None = None
        self._identity: Identity | None = None
        self._asked: Asked | None = None
        self._decoded: Decoded | None = None
        self._request_id = 0
        self._entered = False

    def begin(self, left_s: float | None) -> None:
        """Start the call once its head is there.

        A caller that lacks permission or finds no room is refused before its message is read.
        """
        calls = self.edge.calls
        self._timeout_s = left_s
        try:
            self._identity = calls.identify(
                self._fields, CALLERS, counted=True, certificate=self.connection.certificate
            )
            calls.find_room(self.edge.limits.grpc_call_count)
        except RequestError as error:
            if error.outcome is QUEUE_FULL:  # the guard's refusals are counted
                self.refused(error.outcome, "")
            self.fail(reply_of(error))
            return
        calls.enter()
        self._entered = True

    def refused(self, outcome: Outcome, model: str) -> None:
        edge = self.edge
        edge.serving.refused(model, outcome, edge.calls.tenant(self._identity, self._fields))

    def whole(self, message: bytes) -> None:
        edge, connection = self.edge, self.connection
        left_s = self._timeout_s
        if left_s is not None:
            left_s -= connection.now_s - self.begun_s
        tenant = edge.calls.tenant(self._identity, self._fields)
        asked = Asked(self._fields, tenant, self._identity, left_s, self.began_us, connection.clock_us())
        self._asked = asked
        inferences = edge.inferences
        if inferences.is_bulk(message):
            inferences.bulk.begin(inferences.open(message, asked), self._opened)
        else:
            self._submit(message)

    def _opened(self, task: "asyncio.Task[bytes]") -> None:
        """Submit or refuse a call with a large or compressed message, once `task` has opened it."""
        if self._is_ready(task):
            self._submit(task.result())

    def _copied(self, message: bytes, task: "asyncio.Task[Memory]") -> None:
        """Submit or refuse a call, once its inputs in shared memory are copied."""
        if self._is_ready(task):
            self._submit(message, task.result())

    def _is_ready(self, task: "asyncio.Task[Any]") -> bool:
        """Return whether the call still waits and the work for it has succeeded; end it where that has
        not."""
        error = CancelledError() if task.cancelled() else task.exception()
        if self.done or self.gone:
            return False
        if error is None:
            return True
        if isinstance(error, RequestError):
            self.fail(reply_of(error))
        else:
            logger.error("a large gRPC call failed", exc_info=error)
            self._break()
        return False

    def _submit(self, message: bytes, memory: Memory | None = None) -> None:
        edge, asked = self.edge, self._asked
        assert asked is not None  # noqa: S101  # made of the whole message
        inferences = edge.inferences
        try:
            memory = memory or inferences.memory(self._identity)
            decoded = self._decoded = inferences.read(message, asked, memory, self._headers)
            self._request_id = edge.serving.submit(decoded.call, self._deliver)
        except CopyFirst as first:
            inferences.bulk.begin(inferences.copied(first, message, asked), partial(self._copied, message))
        except RequestError as error:
            self.fail(reply_of(error))
        except Exception:
            logger.exception("a gRPC call failed")
            self._break()

    def _deliver(self, reply: Reply) -> None:
        """Send the core's answer. The core calls this once, perhaps before `submit` returns."""
        decoded, asked = self._decoded, self._asked
        if self.done or self.gone or decoded is None or asked is None:
            return
        if reply.outcome is not COMPLETED:
            self.fail(reply, decoded.call.due_us)
            return
        inferences = self.edge.inferences
        if inferences.stores_much(decoded, reply):
            self._request_id = 0  # the core is done with it
            inferences.bulk.begin(inferences.store(decoded, reply), partial(self._stored, reply))
        else:
            self._answer(decoded, reply, asked)

    def _stored(self, reply: Reply, task: "asyncio.Task[None]") -> None:
        """Answer a call once its large outputs are in the client's memory."""
        decoded, asked = self._decoded, self._asked
        if self._is_ready(task) and decoded is not None and asked is not None:
            self._answer(decoded, reply, asked)

    def _answer(self, decoded: Decoded, reply: Reply, asked: Asked) -> None:
        try:
            wire, lines = self.edge.inferences.write(decoded, reply, asked)
        except RequestError as error:  # its outputs have no room in the client's memory
            self.fail(reply_of(error))
            return
        except Exception:
            logger.exception("encoding a gRPC answer of '%s' failed", decoded.call.model.name)
            self._break()
            return
        self.done = True
        self.connection.answer(self, wire, trailers(lines))
        self.log(0, len(wire))
        self.settle()

    def _break(self) -> None:
        self.end(status(grpc.StatusCode.INTERNAL, INTERNAL_ERROR))

    def settle(self) -> None:
        super().settle()
        if self.done:
            self._request_id = 0
            self._decoded = None

    def close(self) -> None:
        """Settle the call, as its stream is closed. A call without an answer is cancelled, unless its
        deadline ends it."""
        decoded, request_id = self._decoded, self._request_id
        super().close()
        self._decoded = None
        serving = self.edge.serving
        if decoded is not None and request_id and not is_expiring(decoded.call, serving.now_us()):
            serving.cancel(request_id)
        if self._entered:
            self._entered = False
            self.edge.calls.leave(self)
