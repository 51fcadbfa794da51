"""Open Inference Protocol over gRPC: decode, submit, encode.

ModelInfer takes and returns bytes and does its own (de)serialising: that is 10 % cheaper than the
generated servicer (290 against 330 us of CPU a call, nearly all of it grpc.aio's own), and a damaged
message becomes INVALID_ARGUMENT with a sentence. Only tritonclient's stubs are used: a second copy of the
package `inference` cannot be loaded into the same process.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final  # Any: neither grpc nor the generated messages carry types

import grpc
from tritonclient.grpc import service_pb2

from router.access import RpcAccess
from router.account import Account
from router.auth.guard import KeyGuard
from router.auth.identity import CALLER, may_use
from router.auth.rights import rpc_roles
from router.bulk.pool import Bulk
from router.bulk.requests import open_rpc
from router.explanation import completed_lines, separate
from router.oip import (
    ACCURACY_FIELD,
    CACHE_FIELD,
    EXTENSIONS,
    PLATFORM,
    TIER_FIELD,
    TIMEOUT_FIELD,
    ReadStatistics,
    control_cache,
    find_model,
    stated_timeout_us,
    tighten,
)
from router.outcomes import ANSWERS
from router.promises import promise
from router.rpc.accepting import AcceptingServer
from router.rpc.calls import Calls, RpcMethod, Screened, abort, fields_of
from router.rpc.health import Health
from router.rpc.port import RpcPort, channel_options
from router.rpc.quiet import hush
from router.tensors.decoded import MODEL_VERSION
from router.tensors.errors import RequestError
from router.tensors.messages import SMALL_BYTES, Outline, outline
from router.tensors.proto import check_besides, decode, encode, parse
from serving.ports import Call, Reply, Serving
from serving.specs import Limits, ServedModel
from serving.tensor import Buffer
from serving.vocabulary import COMPLETED, DRAINING

SERVICE: Final = "inference.GRPCInferenceService"

EXPIRY_GRACE_US: Final = 10_000
"""A call that its client ends this close to its deadline ended by that deadline: the client's timer
and ours fire together, and grpc rounds the timeout that it sends up by as much as 1 %."""


class RpcServer:
    """The gRPC edge of a `Serving`, on one port."""

    def __init__(
        self,
        serving: Serving,
        server_name: str,
        version: str,
        limits: Limits,
        host: str,
        statistics: ReadStatistics,
    ) -> None:
        self._serving = serving
        self._name = server_name
        self._version = version
        self._limits = limits
        self._bulk = Bulk(limits)
        self._statistics = statistics
        self._more: dict[str, RpcMethod | Screened] = {}
        self._interceptors: tuple[RpcAccess, ...] = ()
        self.calls = Calls(serving, limits)
        self.health = Health(serving, self.calls, limits, SERVICE)
        self.port = RpcPort(self._make, host, self.calls, limits.drain_s)
        self.is_live: Callable[[], bool] = lambda: True  # what ServerLive answers

    def offer(self, methods: Mapping[str, RpcMethod | Screened]) -> None:
        """Serve these methods of the service too; before `start`."""
        self._more.update(methods)

    def use(self, bulk: Bulk) -> None:
        """Large typed contents are read there; before `start`."""
        self._bulk = bulk

    def count(self, account: Account) -> None:
        """What calls hold counts there; before `start`."""
        self.calls.use(account)

    def ask_for_keys(self, guard: KeyGuard) -> None:
        """Take calls of those that the guard lets in; before `start`."""
        self.calls.guard = guard

    def log_access(self) -> None:
        """Log each answer; before `start`."""
        self._interceptors = (RpcAccess(),)

    async def start(self, port: int) -> int:
        """Listen; returns the bound port (`port` 0: any). OSError where it cannot be had."""
        hush()
        return await self.port.start(port)

    async def stop(self, grace_s: float) -> None:
        """Take no new call, answer the accepted ones; what is unanswered after `grace_s` is cancelled."""
        self.calls.stop()
        self.health.end()  # a Watch would use up the grace
        await self.port.stop(grace_s)

    @property
    def listening(self) -> bool:
        """Whether calls are taken."""
        return self.port.listening

    async def again(self) -> None:
        """Listen on the same port again; calls that are under way go on. OSError as `start`."""
        await self.port.again()

    def _make(self) -> Any:
        handlers = self._handlers() | self.health.handlers()
        return AcceptingServer(channel_options(self._limits), self._interceptors, handlers)

    # inference

    async def _answer(self, raw: bytes, context: Any, began_us: int) -> bytes:
        arrived_us, remaining_s = self._serving.now_us(), context.time_remaining()
        metadata: Sequence[tuple[str, str]] = context.invocation_metadata()
        fields = fields_of(metadata)
        tenant = self.calls.tenant(fields)
        name = ""
        try:
            raw = await open_rpc(self._bulk, raw)
            found = outline(raw, self._limits)
            name = found.name
            request, apart = await self._read(raw, found)
            if self.calls.stopping.is_set():
                raise RequestError(DRAINING, ANSWERS[DRAINING].sentence)
            decoded = decode(request, self._model(name, request.model_version), self._limits, apart)
            call = decoded.call
            call.arrived_us = arrived_us
            call.tenant = tenant
            _take_deadlines(call, remaining_s, fields)
            tier = self._serving.tenants[tenant].tier
            promise(decoded, fields.get(TIER_FIELD, ""), fields.get(ACCURACY_FIELD, ""), tier)
            self.calls.check_tier(call.objective.tier, tier)
            if CACHE_FIELD in fields:
                control_cache(call, fields[CACHE_FIELD])
        except RequestError as error:
            self._serving.refused(name, error.outcome, tenant)
            refused = Reply(error.outcome, error.message)
            refused.retry_us = error.retry_us
            await abort(context, refused)
        self.calls.submitted(context)
        reply = await self._ask(call)
        if reply.outcome is not COMPLETED:
            await abort(context, reply, call.due_us)
        answer = encode(decoded, reply)
        more = completed_lines(reply, call.due_us, began_us, self._serving.now_us())
        context.set_trailing_metadata(tuple(separate(more).items()))
        if reply.answered_us:
            made_us = self._serving.now_us() - reply.answered_us
            self._serving.answered(call.model.name, reply, arrived_us - began_us, made_us)
        return answer

    async def _read(self, raw: bytes, found: Outline) -> tuple[Any, Sequence[Buffer] | None]:
        """Return the request; of a large one its raw contents apart. Typed contents that take over a
        millisecond to read are made raw elsewhere."""
        if found.besides > SMALL_BYTES and not found.raw:
            model = self._model(found.name, "")
            self._bulk.admit(len(raw))
            raw = await self._bulk.run("unfold_rpc", len(raw), raw, model, self._limits)
            found = outline(raw, self._limits)
        check_besides(found)
        return parse(raw, found)

    async def _ask(self, call: Call) -> Reply:
        """Return the core's reply. Ended early by grpc (the client left, or its deadline passed), it gives
        the call up; at its deadline not: the core ends it then by itself, and counts it as late, not as
        cancelled."""
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        request_id = self._serving.submit(call, partial(_settle, future))
        try:
            return await future
        except asyncio.CancelledError:
            if request_id and not self._is_expiring(call):
                self._serving.cancel(request_id)
            raise

    def _is_expiring(self, call: Call) -> bool:
        if call.timeout_us is None:
            return False
        left_us = call.arrived_us + call.timeout_us - self._serving.now_us()
        return left_us <= EXPIRY_GRACE_US + call.timeout_us // 100

    def _model(self, name: str, version: str) -> ServedModel:
        self.calls.check_model(name)
        return find_model(self._serving, name, version or MODEL_VERSION)

    # metadata

    async def _server_live(self, _request: Any, _context: Any) -> Any:
        return service_pb2.ServerLiveResponse(live=self.is_live())

    async def _server_ready(self, _request: Any, _context: Any) -> Any:
        return service_pb2.ServerReadyResponse(ready=self._serving.ready)

    async def _model_ready(self, request: Any, context: Any) -> Any:
        try:
            self.calls.check_model(request.name)
        except RequestError as error:
            await abort(context, Reply(error.outcome, error.message))
        known = request.name in self._serving.models and request.version in ("", MODEL_VERSION)
        return service_pb2.ModelReadyResponse(ready=known and self._serving.model_ready(request.name))

    async def _server_metadata(self, _request: Any, _context: Any) -> Any:
        return service_pb2.ServerMetadataResponse(
            name=self._name, version=self._version, extensions=EXTENSIONS
        )

    async def _model_metadata(self, request: Any, context: Any) -> Any:
        try:
            spec = self._model(request.name, request.version).spec
        except RequestError as error:
            await abort(context, Reply(error.outcome, error.message))
        tensor = service_pb2.ModelMetadataResponse.TensorMetadata
        return service_pb2.ModelMetadataResponse(
            name=spec.name,
            versions=[MODEL_VERSION],
            platform=PLATFORM,
            inputs=[tensor(name=t.name, datatype=t.datatype, shape=t.shape) for t in spec.inputs],
            outputs=[tensor(name=t.name, datatype=t.datatype, shape=t.shape) for t in spec.outputs],
        )

    async def _model_statistics(self, request: Any, context: Any) -> Any:
        try:
            one = [self._model(request.name, request.version).name] if request.name else []
        except RequestError as error:
            await abort(context, Reply(error.outcome, error.message))
        answer = service_pb2.ModelStatisticsResponse()
        caller = CALLER.get()
        for name in one or [each for each in self._serving.models if may_use(caller, each)]:
            answer.model_stats.add(**self._statistics(name))
            await asyncio.sleep(0)  # requests first
        return answer

    # what grpc gets

    def _handlers(self) -> dict[str, Any]:
        """By path."""
        probes = {
            "ServerLive": self._server_live,
            "ServerReady": self._server_ready,
            "ModelReady": self._model_ready,
        }
        answered: dict[str, RpcMethod | Screened] = {
            **probes,
            "ServerMetadata": self._server_metadata,
            "ModelMetadata": self._model_metadata,
            "ModelStatistics": self._model_statistics,
            **self._more,
        }
        handlers = {"ModelInfer": self.calls.infer(self._answer)}
        for method in service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"].methods:
            name = method.name
            if name in answered:
                request = getattr(service_pb2, method.input_type.name)
                roles = rpc_roles(name)
                handlers[name] = self.calls.unary(answered[name], request, roles, probe=name in probes)
            elif name not in handlers:
                refuse = partial(_unimplemented, name, ", ".join((*answered, "ModelInfer")))
                handlers[name] = grpc.stream_stream_rpc_method_handler(refuse)
        return {f"/{SERVICE}/{name}": handler for name, handler in handlers.items()}


async def _unimplemented(method: str, served: str, _requests: Any, context: Any) -> None:
    """Declared as a stream both ways, which on the wire every kind of call is, to refuse without reading."""
    sentence = f"{method} is not served by this gateway; it serves {served}"
    await context.abort(grpc.StatusCode.UNIMPLEMENTED, sentence)


def _settle(future: asyncio.Future[Reply], reply: Reply) -> None:
    if not future.done():  # it is, cancelled, where the client left first
        future.set_result(reply)


def _take_deadlines(call: Call, remaining_s: float | None, fields: Mapping[str, str]) -> None:
    """The tightest of the call's `timeout` parameter, x-request-timeout-ms and the gRPC deadline."""
    if remaining_s is not None:
        tighten(call, remaining_s * 1e6)
    stated = fields.get(TIMEOUT_FIELD)
    if stated is not None:
        tighten(call, stated_timeout_us(stated))
