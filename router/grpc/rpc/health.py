"""grpc.health.v1: Check, and Watch, which tells of a change as it happens."""

import asyncio
from contextlib import suppress
from typing import Any, Final  # Any: neither grpc nor the generated messages carry types

import grpc
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from router.grpc.rpc.calls import GONE, Calls, abort, plain, reply_of
from router.security.auth.rights import ANYBODY
from router.tensors.parts.errors import RETRY_US, RequestError
from router.tensors.parts.wording import quoted
from router.tensors.protos.files import health
from serving.ports import Reply, Serving
from serving.values.specs import Limits
from serving.values.vocabulary import QUEUE_FULL

HEALTH_SERVICE: Final = "grpc.health.v1.Health"

_STATUSES: Final = health.HealthCheckResponse


class _Watched:
    """A service with watchers: its status, and the event of its next change."""

    def __init__(self, status: int) -> None:
        self.status = status
        self.watchers = 0
        self.changed = asyncio.Event()


class Health:
    """The health of an edge; `service` is its inference service's name.

    grpcio-health-checking's own Watch forgets all watchers of a service when one of them leaves."""

    def __init__(self, serving: Serving, calls: Calls, limits: Limits, service: str) -> None:
        self._serving = serving
        self._calls = calls
        self._count = limits.grpc_watch_count
        self._own = ("", service)
        self._watched: dict[str, _Watched] = {}
        self._watchers = 0

    def look(self) -> None:
        """Tell the watchers of each service with changed readiness."""
        for service, each in self._watched.items():
            status = self.status(service)
            if status != each.status:
                each.status = status
                each.changed.set()
                each.changed = asyncio.Event()

    def end(self) -> None:
        """Tell every Watch that the edge is stopping, so that it ends."""
        self.look()
        for each in self._watched.values():
            each.changed.set()

    def status(self, service: str) -> int:
        """Return the ServingStatus of the gateway or of a model."""
        if service in self._own:
            ready = self._serving.ready
        elif service in self._serving.models:
            ready = self._serving.model_ready(service)
        else:
            return int(_STATUSES.SERVICE_UNKNOWN)
        return int(
            _STATUSES.SERVING if ready and not self._calls.stopping.is_set() else _STATUSES.NOT_SERVING
        )

    def handlers(self) -> dict[str, Any]:
        """Return the handlers by path."""
        watch = grpc.stream_stream_rpc_method_handler(self._watch)
        check = self._calls.unary(self._check, health.HealthCheckRequest, ANYBODY, probe=True)
        return {f"/{HEALTH_SERVICE}/Check": check, f"/{HEALTH_SERVICE}/Watch": watch}

    async def _check(self, request: Any, context: Any) -> Any:
        status = self.status(request.service)
        if status == _STATUSES.SERVICE_UNKNOWN:
            own = self._own[1]
            sentence = f"no service {quoted(request.service)}; ask for '', '{own}' or a model's name"
            await context.abort(grpc.StatusCode.NOT_FOUND, sentence)
        return _STATUSES(status=status)

    async def _watch(self, _requests: Any, context: Any) -> None:
        with suppress(*GONE):
            if self._watchers >= self._count:
                sentence = (
                    f"the gateway has its limit of {self._count} Watch streams (limits.grpc_watch_count)"
                )
                await abort(context, reply_of(RequestError(QUEUE_FULL, sentence, RETRY_US)))
            self._watchers += 1
            try:
                service = await self._service(context)
                await self._tell(service, context)
            finally:
                self._watchers -= 1

    async def _service(self, context: Any) -> str:
        raw = await self._calls.read(context)
        try:
            return str(health.HealthCheckRequest.FromString(plain(raw)).service)
        except RequestError as error:
            await abort(context, Reply(error.outcome, error.message))
        except DecodeError:
            sentence = "the message is no HealthCheckRequest"
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, sentence)
            raise

    async def _tell(self, service: str, context: Any) -> None:
        watched = self._watched.setdefault(service, _Watched(self.status(service)))
        watched.watchers += 1
        told = None
        try:
            while True:
                changed, stopping = watched.changed, self._calls.stopping.is_set()
                if watched.status != told:
                    told = watched.status
                    await context.write(_STATUSES(status=told).SerializeToString())
                if stopping:
                    return
                await changed.wait()
        finally:
            watched.watchers -= 1
            if not watched.watchers:
                del self._watched[service]
