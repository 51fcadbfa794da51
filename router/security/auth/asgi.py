"""The guard before an ASGI application: no route runs, and no body is read, before the caller is known."""

from typing import Final

from router.logs.access import Application, Receive, Scope, Send
from router.protocol.dialects.errors import dressed, form_at
from router.protocol.explanation import separate
from router.protocol.rest import fields_of, render_error
from router.security.auth.guard import KeyGuard
from router.security.auth.identity import IDENTITY, Identity, own_tenant
from router.security.auth.rights import asks_model, need_of
from router.security.tls.names import NAMES
from router.tensors.parts.errors import RequestError
from serving.ports import Serving
from serving.values.specs import DEFAULT_TENANT

GUARD: Final = "penstock.guard"


def guarded(app: Application, guard: KeyGuard, serving: Serving) -> Application:
    """Return the application, for callers that may. What it refuses of inference is counted as a request."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        need = need_of(scope["method"], scope["path"])
        if not need.roles:
            await app(scope, receive, send)
            return
        identity: Identity | None = None
        try:
            fields = fields_of(scope["headers"])
            identity = guard.identify(
                fields.get(b"x-api-key"), fields.get(b"authorization"), scope.get(NAMES, ())
            )
            guard.require(identity, need.roles, need.model)
        except RequestError as error:
            infers = scope["path"].endswith(("/infer", "/generate", "/generate_stream"))
            if infers or asks_model(scope["method"], scope["path"]):
                serving.refused(need.model, error.outcome, own_tenant(identity) or DEFAULT_TENANT)
            await _refuse(error, form_at(scope["path"]), send)
            return
        scope[IDENTITY], scope[GUARD] = identity, guard
        await app(scope, receive, send)

    return answer


def caller(scope: Scope) -> Identity | None:
    """Return the caller of a request that was let in; None where no key is asked for."""
    found = scope.get(IDENTITY)
    return found if isinstance(found, Identity) else None


def check_model(scope: Scope, model: str) -> None:
    """Check the model as `KeyGuard.check_model` does, if there is a guard and the request names a model."""
    identity, guard = caller(scope), scope.get(GUARD)
    if model and identity is not None and isinstance(guard, KeyGuard):
        guard.check_model(identity, model)


def check_tier(scope: Scope, tier: str, own: str) -> None:
    """Check the tier as `KeyGuard.check_tier` does, if there is a guard."""
    identity, guard = caller(scope), scope.get(GUARD)
    if identity is not None and isinstance(guard, KeyGuard):
        guard.check_tier(identity, tier, own)


async def _refuse(error: RequestError, form: str, send: Send) -> None:
    rendered = render_error(error)
    status, body, _, more = dressed(rendered, form, error.outcome, error.message) if form else rendered
    fields = {"content-type": "application/json", "content-length": str(len(body)), **separate(more)}
    headers = [(name.encode(), value.encode("latin-1")) for name, value in fields.items()]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
