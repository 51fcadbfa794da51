"""ModelInfer: read, submitted and answered by direct callbacks, as `router/fastpath` does for REST."""

import asyncio
import logging
from asyncio import CancelledError
from collections.abc import Sequence

import grpc

from router.auth.identity import Identity
from router.auth.rights import CALLERS
from router.fastrpc.framing import Header, inference_fields, status, timeout_s, trailers
from router.fastrpc.inbound import Carrier, Inbound
from router.outcomes import INTERNAL_ERROR
from router.rpc.calls import reply_of
from router.rpc.inference import Asked, is_expiring
from router.rpc.service import INFER, SERVICE
from router.tensors.decoded import Decoded
from router.tensors.errors import RequestError
from serving.ports import Reply
from serving.vocabulary import COMPLETED, QUEUE_FULL, Outcome

INFER_PATH = f"/{SERVICE}/{INFER}"

logger = logging.getLogger(__name__)


class InferCall(Inbound):
    """`entered`: it has one of the places of open calls."""

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

    def __init__(self, connection: Carrier, stream_id: int, headers: Sequence[Header]) -> None:
        super().__init__(connection, stream_id, INFER_PATH)
        self._fields = inference_fields(headers)
        self._headers = headers  # for models that read others; let go of once the message is read
        self._timeout_s: float | None = None
        self._identity: Identity | None = None
        self._asked: Asked | None = None
        self._decoded: Decoded | None = None
        self._request_id = 0
        self._entered = False

    def begin(self, stated_timeout: bytes | None) -> None:
        """Start the call once its head is there.

        A caller that lacks permission or finds no room is refused before its message is read.
        """
        calls = self.edge.calls
        self._timeout_s = timeout_s(stated_timeout)
        try:
            self._identity = calls.identify(self._fields, CALLERS, counted=True)
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
        error = CancelledError() if task.cancelled() else task.exception()
        if self.done or self.gone:
            return
        if error is None:
            self._submit(task.result())
        elif isinstance(error, RequestError):
            self.fail(reply_of(error))
        else:
            logger.error("a large gRPC request failed", exc_info=error)
            self._break()

    def _submit(self, message: bytes) -> None:
        edge, asked = self.edge, self._asked
        assert asked is not None  # noqa: S101  # made of the whole message
        try:
            headers, self._headers = self._headers, ()
            decoded = self._decoded = edge.inferences.read(message, asked, headers)
            self._request_id = edge.serving.submit(decoded.call, self._deliver)
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
        try:
            wire, lines = self.edge.inferences.write(decoded, reply, asked)
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
