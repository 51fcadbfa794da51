"""The routes of applications' endpoints, and the documents on models that their clients read."""

import time
from collections.abc import Callable, Coroutine
from typing import Annotated, Any, Final  # Any: FastAPI's own type for documents

import orjson
from fastapi import FastAPI, Path, Request
from fastapi.responses import Response

from router.http.endpoints.route import Count, EndpointRoute
from router.http.infer import response_of
from router.payloads.bulk.pool import Bulk
from router.protocol.dialects.catalogue import ENDPOINTS, PATHS, Endpoint
from router.protocol.dialects.errors import dressed
from router.protocol.dialects.forms import OPENAI
from router.protocol.oip import find_model
from router.protocol.rest import fields_of, render_error
from router.security.auth.asgi import caller
from router.security.auth.identity import may_use
from router.tensors.parts.errors import RequestError
from serving.ports import Serving
from serving.values.specs import ServedModel

OWNER: Final = "penstock"

Name = Annotated[str, Path(description="A name out of `GET /v1/models`.")]
Handler = Callable[[Request], Coroutine[Any, Any, Response]]

_BODY: Final[dict[str, Any]] = {
    "requestBody": {"required": True, "content": {"application/json": {"schema": {"type": "object"}}}}
}


def add_endpoints(app: FastAPI, serving: Serving, bulk: Bulk, count: Count) -> None:
    """Add the routes to the application. `count` is told of each request."""
    route = EndpointRoute(serving, bulk, count)
    for path, endpoint in PATHS.items():
        app.add_api_route(
            path,
            _handler(route, endpoint),
            methods=["POST"],
            tags=["applications"],
            name=path.strip("/").replace("/", "_"),
            description=endpoint.summary,
            openapi_extra=_BODY,
        )
    _add_predict(app, route)
    _add_models(app, serving)


def _handler(route: EndpointRoute, endpoint: Endpoint) -> Handler:
    async def ask(request: Request) -> Response:
        return await route.answer(request, endpoint)

    return ask


def _add_predict(app: FastAPI, route: EndpointRoute) -> None:
    kserve = ENDPOINTS["kserve"]

    @app.post(kserve.paths[0], tags=["applications"], description=kserve.summary, openapi_extra=_BODY)
    async def predict(model: Name, request: Request) -> Response:
        return await route.answer(request, kserve, model)


def _add_models(app: FastAPI, serving: Serving) -> None:
    created_s = int(time.time())

    @app.get("/v1/models", tags=["applications"])
    async def models(request: Request) -> Response:
        """Return the models that the caller may use: `data` is OpenAI's list, `models` that of KServe v1."""
        identity = caller(request.scope)
        seen = [model for name, model in serving.models.items() if may_use(identity, name)]
        listed = [describe(model, created_s) for model in seen]
        document = {"object": "list", "data": listed, "models": [model.name for model in seen]}
        return Response(orjson.dumps(document), media_type="application/json")

    @app.get("/v1/models/{model}", tags=["applications"])
    async def model(model: Name, request: Request) -> Response:
        """Return one model: OpenAI's document, and beside it `name` and `ready` as KServe v1 has them. 503
        while no replica is ready."""
        try:
            found = find_model(serving, model)
        except RequestError as error:
            refused = dressed(render_error(error), OPENAI, error.outcome, error.message)
            return response_of(refused, fields_of(request.scope["headers"]))
        ready = serving.model_ready(found.name)
        document = {**describe(found, created_s), "name": found.name, "ready": ready}
        status = 200
        if not ready:
            status, document["error"] = 503, f"model '{found.name}' has no replica that is ready"
        return Response(orjson.dumps(document), status, media_type="application/json")


def describe(model: ServedModel, created_s: int) -> dict[str, object]:
    """Return a model in OpenAI's form. `task`: what it does for applications, null if it declares nothing."""
    application = model.spec.application
    return {
        "id": model.name,
        "object": "model",
        "created": created_s,
        "owned_by": OWNER,
        "task": None if application is None else application.task,
        "max_model_len": (application.tokens_max or None) if application is not None else None,
    }
