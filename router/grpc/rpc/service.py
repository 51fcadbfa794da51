"""The services of the gRPC edge, by what a call's context can do: whichever server has taken the call.

A context is as grpc.aio's: `read`, `write`, `abort`, metadata, peer and deadline. `router/grpc/fastrpc` has
its own.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final  # Any: neither grpc nor the generated messages carry types

import grpc

from router.grpc.rpc.calls import Calls, RpcMethod, Screened, abort, fields_of, reply_of
from router.grpc.rpc.health import Health
from router.grpc.rpc.inference import Asked, Inferences, is_expiring
from router.grpc.rpc.reflection import PATHS, Reflection
from router.grpc.rpc.streaming import STREAM, Streams
from router.listening import Listening
from router.payloads.bulk.pool import Bulk
from router.payloads.regions.registry import Regions
from router.protocol.account import Account
from router.protocol.explanation import separate
from router.protocol.oip import (
    ReadStatistics,
    by_version,
    extensions,
    find_model,
    platform_of,
    served_versions,
    told_of,
    versions_of,
)
from router.security.auth.guard import KeyGuard
from router.security.auth.identity import CALLER, may_use
from router.security.auth.rights import rpc_roles
from router.security.tls.gate import Gate
from router.tensors.parts.errors import RequestError
from router.tensors.protos.files import POOL, oip
from serving.ports import Call, Reply, Serving
from serving.values.specs import Limits, ServedModel
from serving.values.vocabulary import COMPLETED

SERVICE: Final = "inference.GRPCInferenceService"
INFER: Final = "ModelInfer"
DIALOGUES: Final = (f"/{SERVICE}/{STREAM}", *PATHS)
"""The methods with many messages from the client."""


class RpcService:
    """What the edge of a `Serving` offers; a server takes the calls. `version`: the gateway's."""

    def __init__(
        self,
        serving: Serving,
        server_name: str,
        version: str,
        limits: Limits,
        host: str,
        statistics: ReadStatistics,
    ) -> None:
        self.serving = serving
        self.host = host
        self.limits = limits
        self._name = server_name
        self._version = version
        self._statistics = statistics
        self._more: dict[str, RpcMethod | Screened] = {}
        self.access = False  # each answer is logged
        self.tcp: Listening | None = None  # if another gateway can get its socket
        self.calls = Calls(serving, limits)
        self.inferences = Inferences(serving, self.calls, limits)
        self.streams = Streams(serving, self.calls, self.inferences, limits)
        self.health = Health(serving, self.calls, limits, SERVICE)
        self.reflection = Reflection(self.calls)
        self.is_live: Callable[[], bool] = lambda: True  # what ServerLive answers

    def offer(self, methods: Mapping[str, RpcMethod | Screened]) -> None:
        """Serve these methods of the service too; before `start`."""
        self._more.update(methods)

    def use(self, bulk: Bulk) -> None:
        """Read large typed contents with this `bulk`. Call this before `start`."""
        self.inferences.bulk = bulk

    def share(self, regions: Regions) -> None:
        """Serve tensors in these regions of clients' shared memory. Call this before `start`."""
        self.inferences.regions = regions

    def count(self, account: Account) -> None:
        """Count what calls hold in this account. Call this before `start`."""
        self.calls.use(account)

    def ask_for_keys(self, guard: KeyGuard) -> None:
        """Take calls of those that the guard lets in; before `start`."""
        self.calls.guard = guard

    def encrypt(self, gate: Gate) -> None:
        """Speak TLS; before `start`."""
        raise NotImplementedError

    def log_access(self) -> None:
        """Log each answer; before `start`."""
        self.access = True

    async def start(self, port: int) -> int:
        """Listen; returns the bound port (`port` 0: any). OSError where it cannot be had."""
        raise NotImplementedError

    async def stop(self, grace_s: float) -> None:
        """Take no new call, answer the accepted ones; what is unanswered after `grace_s` is cancelled."""
        raise NotImplementedError

    @property
    def listening(self) -> bool:
        """Whether calls are taken."""
        raise NotImplementedError

    async def again(self) -> None:
        """Listen on the same port again; calls that are under way go on. OSError as `start`."""
        raise NotImplementedError

    # inference

    async def _answer(self, raw: bytes, context: Any, began_us: int) -> bytes:
        metadata = context.invocation_metadata()
        fields, identity = fields_of(metadata), CALLER.get()
        asked = Asked(
            fields,
            self.calls.tenant(identity, fields),
            identity,
            context.time_remaining(),
            began_us,
            self.serving.now_us(),
        )
        try:
            if self.inferences.is_bulk(raw):
                raw = await self.inferences.open(raw, asked)
            decoded = await self.inferences.read_whole(raw, asked)
        except RequestError as error:
            await abort(context, reply_of(error))
        self.calls.submitted(context)
        reply = await self._ask(decoded.call)
        if reply.outcome is not COMPLETED:
            await abort(context, reply, decoded.call.due_us)
        try:
            if self.inferences.stores_much(decoded, reply):
                await self.inferences.store(decoded, reply)
            answer, lines = self.inferences.write(decoded, reply, asked)
        except RequestError as error:  # its outputs have no room in the client's memory
            await abort(context, reply_of(error))
        context.set_trailing_metadata(tuple(separate(lines).items()))
        return answer

    async def _ask(self, call: Call) -> Reply:
        """Return the core's reply. Ended early by grpc (the client left, or its deadline passed), it gives
        the call up; at its deadline not: the core ends it then by itself, and counts it as late, not as
        cancelled."""
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        request_id = self.serving.submit(call, partial(_settle, future))
        try:
            return await future
        except asyncio.CancelledError:
            if request_id and not is_expiring(call, self.serving.now_us()):
                self.serving.cancel(request_id)
            raise

    def _model(self, name: str, version: str) -> ServedModel:
        self.calls.check_model(CALLER.get(), name)
        return find_model(self.serving, name, version)

    # metadata

    async def _server_live(self, _request: Any, _context: Any) -> Any:
        return oip.ServerLiveResponse(live=self.is_live())

    async def _server_ready(self, _request: Any, _context: Any) -> Any:
        return oip.ServerReadyResponse(ready=self.serving.ready)

    async def _model_ready(self, request: Any, context: Any) -> Any:
        try:
            self.calls.check_model(CALLER.get(), request.name)
        except RequestError as error:
            await abort(context, reply_of(error))
        try:
            name = find_model(self.serving, request.name, request.version).name
        except RequestError:
            return oip.ModelReadyResponse(ready=False)
        return oip.ModelReadyResponse(ready=self.serving.model_ready(name))

    async def _server_metadata(self, _request: Any, _context: Any) -> Any:
        return oip.ServerMetadataResponse(
            name=self._name, version=self._version, extensions=extensions(self.inferences.regions)
        )

    async def _model_metadata(self, request: Any, context: Any) -> Any:
        try:
            spec = self._model(request.name, request.version).spec
        except RequestError as error:
            await abort(context, reply_of(error))
        tensor = oip.ModelMetadataResponse.TensorMetadata
        return oip.ModelMetadataResponse(
            name=spec.model_name,
            versions=[request.version] if request.version else versions_of(self.serving, spec.name),
            platform=platform_of(spec),
            inputs=[tensor(name=t.name, datatype=t.datatype, shape=spec.told(t)) for t in spec.inputs],
            outputs=[
                tensor(name=t.name, datatype=t.datatype, shape=spec.told(t))
                for t in spec.outputs
                if not t.parameter
            ],
        )

    async def _model_statistics(self, request: Any, context: Any) -> Any:
        try:
            one = self._counted(request.name, request.version) if request.name else []
        except RequestError as error:
            await abort(context, reply_of(error))
        answer = oip.ModelStatisticsResponse()
        caller = CALLER.get()
        every = (model for name, model in self.serving.models.items() if may_use(caller, name))
        for model in one or by_version(every):
            answer.model_stats.add(**told_of(self._statistics, model))
            await asyncio.sleep(0)  # requests first
        return answer

    def _counted(self, name: str, version: str) -> list[ServedModel]:
        """Return the version of a model; without one, all versions."""
        model = self._model(name, version)
        return [model] if version else served_versions(self.serving, model.name)

    # what a server is told

    def handlers(self) -> dict[str, Any]:
        """Return the handlers by path."""
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
        streamed = self.streams.handler(f"/{SERVICE}/{STREAM}", self.access)
        handlers = {INFER: self.calls.infer(self._answer), STREAM: streamed}
        for method in POOL.FindServiceByName(SERVICE).methods:
            name = method.name
            if name in answered:
                request = getattr(oip, method.input_type.name)
                roles = rpc_roles(name)
                handlers[name] = self.calls.unary(answered[name], request, roles, probe=name in probes)
            elif name not in handlers:
                refuse = partial(_unimplemented, name, ", ".join((*answered, INFER, STREAM)))
                handlers[name] = grpc.stream_stream_rpc_method_handler(refuse)
        own = {f"/{SERVICE}/{name}": handler for name, handler in handlers.items()}
        return own | self.health.handlers() | self.reflection.handlers()


async def _unimplemented(method: str, served: str, _requests: Any, context: Any) -> None:
    """Refuse a method that the gateway does not serve.

    It is declared as a stream both ways, which every kind of call is on the wire, so it refuses without
    reading.
    """
    sentence = f"{method} is not served by this gateway; it serves {served}"
    await context.abort(grpc.StatusCode.UNIMPLEMENTED, sentence)


def _settle(future: asyncio.Future[Reply], reply: Reply) -> None:
    if not future.done():  # it is, cancelled, where the client left first
        future.set_result(reply)
