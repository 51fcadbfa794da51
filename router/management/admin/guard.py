"""What stands before everything that changes something, over REST and gRPC: which door, which client; a line.

Every route with another method than GET changes something unless ASKS lists it, and so does every gRPC method
that it is given, unless RPC_ASKS does: what is forgotten is refused.
"""

from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, Final  # Any: grpc carries no types

import grpc
from fastapi import FastAPI
from fastapi.responses import Response
from starlette.routing import Route

from router.grpc.rpc import RpcMethod, Screened
from router.logs.access import Application, Receive, Scope, Send, rpc_status
from router.management.admin.audit import Act, caller
from router.management.admin.origins import stranger
from router.management.sharedmemory import KINDS
from router.protocol.dialects.catalogue import ENDPOINTS
from router.protocol.outcomes import CLIENT_LEFT
from router.protocol.rest import plain_error
from router.security.auth.identity import CALLER, IDENTITY
from router.settings.door.admin import AdminSettings
from router.tensors.messages import early_text
from router.tensors.parts.wording import quoted

FEEDBACK: Final = "/v2/models/{model}/feedback"
ASKS: Final = frozenset(
    {
        "/v2/models/{model}/infer",
        "/v2/models/{model}/versions/{model_version}/infer",
        *(
            f"/v2/models/{{model}}{version}/{name}"
            for version in ("", "/versions/{model_version}")
            for name in ("generate", "generate_stream")
        ),
        "/v2/repository/index",
        "/v2/what-if",
        "/v2/repository/{repository_name}/index",
        *(path for endpoint in ENDPOINTS.values() for path in endpoint.paths),
        *(f"/v2/{kind}sharedmemory/region/{{region}}/register" for kind in KINDS),
        *(f"/v2/{kind}sharedmemory/unregister" for kind in KINDS),
        *(f"/v2/{kind}sharedmemory/region/{{region}}/unregister" for kind in KINDS),
    }
)
"""Routes that change nothing but what their caller has registered, though GET is not their method."""
RPC_ASKS: Final = frozenset({"RepositoryIndex"})
MODEL_NAME: Final = 2
"""The field of both RepositoryModelLoadRequest and RepositoryModelUnloadRequest with the model's name."""

ADMIN_DOOR: Final = "the admin door"
REST_PORT: Final = "the REST port"
GRPC_PORT: Final = "the gRPC port"

_DENIED: Final = grpc.StatusCode.PERMISSION_DENIED
_SAFE: Final = {"GET", "HEAD", "OPTIONS"}
_DOOR: Final = "penstock.door"


class ChangeGuard:
    """`address`: the admin door's address, once it listens. `host`: where the REST port listens."""

    def __init__(self, settings: AdminSettings, host: str) -> None:
        self.address = settings.address
        self._hosts = frozenset(each.lower() for each in (*settings.hosts, settings.host, host))
        self._asks = ASKS if settings.feedback else ASKS | {FEEDBACK}
        self._everywhere = settings.on_inference_ports

    def at_admin(self, app: Application) -> Application:
        """Return the application, as it is behind the admin door."""

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            scope[_DOOR] = ADMIN_DOOR
            await app(scope, receive, send)

        return answer

    def stand_before(self, app: FastAPI) -> None:
        """Guard all routes that the application has. Raises TypeError at a route of an unknown kind."""
        for route in app.routes:
            if not isinstance(route, Route):
                raise TypeError(f"no guard is known for a {type(route).__name__}")
            if not (route.methods or set()) <= _SAFE and route.path not in self._asks:
                route.app = self._guarded(route.app)

    def methods(self, methods: Mapping[str, RpcMethod]) -> Mapping[str, RpcMethod | Screened]:
        """Return the same gRPC methods, guarded."""
        return {
            name: method if name in RPC_ASKS else self._guarded_method(name, method)
            for name, method in methods.items()
        }

    def method_that_may_ask(
        self, name: str, method: RpcMethod, only_asks: Callable[[Any], bool]
    ) -> RpcMethod:
        """Return a small gRPC method, guarded where its message changes something."""

        async def answer(request: Any, context: Any) -> Any:
            if only_asks(request):
                return await method(request, context)
            model = getattr(request, "model_name", "")
            await self._look(name, model, context)
            return await _audited(_act_of(name, model, context), method, request, context)

        return answer

    def _closed(self, door: str) -> str:
        """Return why nothing can be changed through that door; "" where it can."""
        if door == ADMIN_DOOR or self._everywhere:
            return ""
        setting = "`admin: {on_inference_ports: true}` in penstock.yaml"
        return f"{door} changes nothing: ask {ADMIN_DOOR}, {self.address}, or set {setting}"

    def _guarded(self, app: Any) -> Application:
        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            door = scope.get(_DOOR, REST_PORT)
            path = scope.get("raw_path", b"").decode("latin-1")
            act = Act(f"{scope['method']} {path}", caller(scope.get(IDENTITY), scope.get("client")), door)
            if why := self._closed(door) or stranger(scope["headers"], self._hosts):
                act.say_refused(403)
                refusal = Response(plain_error(why), 403, media_type="application/json")
                await refusal(scope, receive, send)
                return
            status = CLIENT_LEFT

            async def note(message: MutableMapping[str, Any]) -> None:
                nonlocal status
                if message["type"] == "http.response.start":
                    status = message["status"]
                await send(message)

            try:
                await app(scope, receive, note)
            except Exception:
                status = 500
                raise
            finally:
                act.say(status)

        return answer

    def _guarded_method(self, name: str, method: RpcMethod) -> Screened:
        async def look(message: bytes, context: Any) -> None:
            await self._look(name, early_text(message, MODEL_NAME), context)

        async def answer(request: Any, context: Any) -> Any:
            act = _act_of(name, getattr(request, "model_name", ""), context)
            return await _audited(act, method, request, context)

        return Screened(look, answer)

    async def _look(self, name: str, model: str, context: Any) -> None:
        """End a call that may change nothing."""
        why = self._closed(GRPC_PORT)
        if not why and any(key == "origin" for key, _ in context.invocation_metadata()):
            why = "a page of a browser may change nothing over gRPC"
        if why:
            _act_of(name, model, context).say_refused(_DENIED.name)
            await context.abort(_DENIED, why)


def _act_of(name: str, model: str, context: Any) -> Act:
    return Act(f"{name} {quoted(model)}", caller(CALLER.get(), context.peer()), GRPC_PORT)


async def _audited(act: Act, method: RpcMethod, request: Any, context: Any) -> Any:
    answered = False
    try:
        found = await method(request, context)
        answered = True
    finally:
        act.say(rpc_status(context.code(), answered))
    return found
