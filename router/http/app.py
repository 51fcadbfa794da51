"""The FastAPI application: everything over REST that is not on the fast path.

Health, metadata, documentation; and inference itself once more (`router/http/infer.py`), so that it is in
the OpenAPI document and works under any ASGI server.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from math import isfinite
from typing import Annotated

import orjson
from fastapi import FastAPI, Path, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response
from starlette.exceptions import HTTPException

from router.http.apidocs import INFER_OPERATION, render_docs
from router.http.example import example_body
from router.http.generate import GenerateRoute, add_generate
from router.http.infer import InferRoute
from router.payloads.bulk.pool import Bulk
from router.payloads.regions.registry import regions_of
from router.protocol.bodies import end_for_leavers
from router.protocol.dialects.errors import body_of, form_at
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
from router.protocol.outcomes import INTERNAL_ERROR
from router.protocol.rest import plain_error, render_error
from router.security.auth.asgi import caller
from router.security.auth.identity import may_use
from router.tensors.parts.errors import RequestError
from router.tensors.parts.wording import quoted
from router.tensors.rest import joined
from serving.ports import Serving
from serving.values.objectives import Objective
from serving.values.specs import ModelSpec, ServedModel, TensorSpec
from serving.values.versions import model_of

logger = logging.getLogger(__name__)

Json = dict[str, object]
Name = Annotated[str, Path(description="A name out of `GET /v2/models`.")]
Version = Annotated[str, Path(description="Of a model with numbered folders; else `1`.")]


def create_app(
    serving: Serving,
    statistics: ReadStatistics,
    *,
    name: str,
    version: str,
    bulk: Bulk,
    why_dead: Callable[[], str] = str,
) -> FastAPI:
    """Return the application over `serving`; `name` and `version` are what server metadata states. `bulk`
    reads and writes what is large. `why_dead`: why the process should be ended and started anew, "" where it
    need not be."""
    app = FastAPI(
        title=name,
        version=version,
        summary="Model inference by the Open Inference Protocol, version 2.",
        docs_url=None,  # FastAPI's own page loads its script from a CDN; `render_docs` works offline
        redoc_url=None,
        redirect_slashes=False,
    )
    app.add_exception_handler(HTTPException, _on_http_exception)
    app.add_exception_handler(RequestError, _on_refused)
    app.add_exception_handler(Exception, _on_bug)
    end_for_leavers(app)
    _add_health(app, serving, why_dead)
    _add_server(app, serving, name, version)
    _add_statistics(app, serving, statistics)  # first: /v2/models/stats is no model's metadata
    _add_models(app, serving)
    _add_inference(app, InferRoute(serving, bulk))
    add_generate(app, GenerateRoute(serving, bulk))
    _add_cache(app, serving)

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(render_docs(app.openapi()))

    return app


def _add_health(app: FastAPI, serving: Serving, why_dead: Callable[[], str]) -> None:
    async def live() -> JSONResponse:
        """Return the process answers: 200. 503 where a port of the gateway has ended and cannot be had
        again."""
        if why := why_dead():
            return JSONResponse({"live": False, "error": why}, 503)
        return JSONResponse({"live": True})

    async def ready() -> JSONResponse:
        """Return 200 if new requests are welcome, and every model that ever was ready, or is `required`, has
        a replica; otherwise 400."""
        if why := why_dead():
            return JSONResponse({"ready": False, "error": why}, 400)
        if serving.ready:
            return JSONResponse({"ready": True})
        waiting = [model for model in serving.models if not serving.model_ready(model)]
        why = f"no replica is ready for {', '.join(waiting)}" if waiting else "the gateway is shutting down"
        return JSONResponse({"ready": False, "error": why}, 400)

    for path in ("/v2/health/live", "/livez", "/healthz"):
        _add_probe(app, path, live)
    for path in ("/v2/health/ready", "/readyz"):
        _add_probe(app, path, ready)


def _add_probe(app: FastAPI, path: str, answer: Callable[[], Awaitable[JSONResponse]]) -> None:
    """Add a GET route for people and clients, and a HEAD route, which load balancers use."""
    name = path.strip("/").replace("/", "_")
    app.add_api_route(path, answer, methods=["GET"], tags=["health"], name=name)
    app.add_api_route(path, answer, methods=["HEAD"], include_in_schema=False, name=f"{name}_head")


def _add_server(app: FastAPI, serving: Serving, name: str, version: str) -> None:
    @app.get("/v2/", include_in_schema=False)  # as the protocol's OpenAPI document spells it
    @app.get("/v2", tags=["metadata"])
    async def server_metadata() -> Json:
        """Return the server's name and version, and the protocol extensions that it serves."""
        return {"name": name, "version": version, "extensions": list(extensions(regions_of(app)))}

    @app.get("/v2/models", tags=["metadata"])
    async def models(request: Request) -> Json:
        """Return the names of the models that are served, and that the caller may use."""
        return {"models": _seen(serving, request)}


def _add_statistics(app: FastAPI, serving: Serving, read: ReadStatistics) -> None:
    async def tell(models: Sequence[ServedModel]) -> Response:
        told = []
        for model in models:
            told.append(told_of(read, model))
            await asyncio.sleep(0)  # requests first
        return _json(
            200, orjson.dumps({"model_stats": told})
        )  # FastAPI's own encoder takes 100 times as long

    @app.get("/v2/models/stats", tags=["operation"])
    async def statistics(request: Request) -> Response:
        """Return the counts and nanoseconds of all models since the start (the statistics extension)."""
        return await tell(by_version(serving.models[name] for name in _seen(serving, request)))

    @app.get("/v2/models/{model}/stats", tags=["operation"])
    async def model_statistics(model: Name) -> Response:
        """Return the same of one model, of all its versions."""
        return await tell(served_versions(serving, find_model(serving, model).name))

    @app.get("/v2/models/{model}/versions/{model_version}/stats", tags=["operation"])
    async def model_version_statistics(model: Name, model_version: Version) -> Response:
        """Return the same, with the version said."""
        return await tell([find_model(serving, model, model_version)])


def _seen(serving: Serving, request: Request) -> list[str]:
    """Return the models that the caller may use."""
    identity = caller(request.scope)
    return [name for name in serving.models if may_use(identity, name)]


def _add_models(app: FastAPI, serving: Serving) -> None:
    def readiness(model: str) -> JSONResponse:
        if serving.model_ready(model):
            return JSONResponse({"name": model_of(model), "ready": True})
        why = f"model '{model}' has no replica that is ready"
        return JSONResponse({"name": model_of(model), "ready": False, "error": why}, 400)

    @app.get("/v2/models/{model}", tags=["metadata"])
    async def model_metadata(model: Name) -> Json:
        """Return the inputs, outputs, variants and tiers of a model; -1 is a free dimension, the first is the
        batch."""
        return describe(find_model(serving, model), versions_of(serving, model))

    @app.get("/v2/models/{model}/versions/{model_version}", tags=["metadata"])
    async def model_version_metadata(model: Name, model_version: Version) -> Json:
        """Return the same, with the version said."""
        return describe(find_model(serving, model, model_version), [model_version])

    @app.get("/v2/models/{model}/example", tags=["metadata"])
    async def model_example(model: Name) -> Response:
        """Return a request of one row to try, as the model's inputs are: the body of an inference."""
        return _json(200, example_body(find_model(serving, model).spec))

    @app.get("/v2/models/{model}/ready", tags=["health"])
    async def model_ready(model: Name) -> JSONResponse:
        """Return 200 if a replica of the model can take requests; otherwise 400."""
        return readiness(find_model(serving, model).name)

    @app.get("/v2/models/{model}/versions/{model_version}/ready", tags=["health"])
    async def model_version_ready(model: Name, model_version: Version) -> JSONResponse:
        """Return the same, with the version said."""
        return readiness(find_model(serving, model, model_version).name)


def _add_inference(app: FastAPI, route: InferRoute) -> None:
    @app.post("/v2/models/{model}/infer", tags=["inference"], openapi_extra=INFER_OPERATION)
    async def infer(model: Name, request: Request) -> Response:
        """Run the model on a batch of rows, as JSON or with binary tensors."""
        return await route.answer(request, model, "")

    @app.post(
        "/v2/models/{model}/versions/{model_version}/infer",
        tags=["inference"],
        openapi_extra=INFER_OPERATION,
    )
    async def infer_version(model: Name, model_version: Version, request: Request) -> Response:
        """Return the same, with the version said."""
        return await route.answer(request, model, model_version)


def _add_cache(app: FastAPI, serving: Serving) -> None:
    @app.delete("/v2/cache", tags=["operation"])
    async def forget() -> Json:
        """Drop all kept answers (`dropped`: how many); what is being computed is not kept either."""
        return {"dropped": serving.invalidate()}

    @app.delete("/v2/cache/models/{model}", tags=["operation"])
    async def forget_model(model: Name) -> Json:
        """Return the same for one model."""
        name = find_model(serving, model).name
        return {"model": name, "dropped": serving.invalidate(name)}


def describe(model: ServedModel, versions: Sequence[str]) -> Json:
    """Return model metadata in the protocol's shape; what the protocol has no word for is under
    `parameters`. `versions`: of the model, that are served."""
    spec = model.spec
    return {
        "name": spec.model_name,
        "versions": versions,
        "platform": platform_of(spec),
        "inputs": [_describe_tensor(tensor, spec) for tensor in spec.inputs],
        "outputs": [_describe_tensor(tensor, spec) for tensor in spec.outputs if not tensor.parameter],
        "parameters": {
            "description": spec.description,
            "slo_ms": model.slo_us / 1000,
            "batch_max": 0 if spec.unbatched else spec.batch_max,
            "default_variant": model.answering_variant,
            "optional_inputs": [tensor.name for tensor in spec.inputs if tensor.optional],
            "accuracy_metric": spec.accuracy_metric,
            "variants": _describe_variants(spec, model.variants),
            "objective": _describe_objective(model.own),
            "tiers": {name: _describe_objective(promised) for name, promised in model.by_tier.items()},
            "request_parameters": [
                {"name": p.name, "type": p.type, "default": p.default} for p in spec.parameters
            ],
            "answer_parameters": [_describe_tensor(each, spec) for each in spec.outputs if each.parameter],
        },
    }


def _describe_tensor(tensor: TensorSpec, spec: ModelSpec) -> Json:
    return {"name": tensor.name, "datatype": tensor.datatype, "shape": list(spec.told(tensor))}


def _describe_variants(spec: ModelSpec, served: tuple[str, ...]) -> list[Json]:
    return [
        {
            "name": variant.name,
            "accuracy": variant.accuracy,
            "deterministic": variant.deterministic,
            "served": variant.name in served,
        }
        for variant in spec.variants
    ]


def _describe_objective(promised: Objective) -> Json:
    """Return the objective in the protocol's shape. `variants`: those that may answer, the most accurate
    first. `slo_rows`: a request has the SLO once for every `slo_rows` of its rows; None if it has the SLO
    once."""
    return {
        "slo_ms": promised.slo_us / 1000,
        "slo_rows": promised.slo_rows or None,
        "percentile": promised.percentile,
        "accuracy_min": promised.accuracy_min,
        "cost_max": promised.cost_max if isfinite(promised.cost_max) else None,
        "optimize": promised.optimize,
        "variants": promised.variants,
    }


async def _on_http_exception(request: Request, error: Exception) -> Response:
    """Return what the router itself says no to: an unknown path, a wrong method."""
    assert isinstance(error, HTTPException)  # noqa: S101  # registered for this class
    if error.status_code == 404:
        message = f"Not Found: no such path: {quoted(request.url.path)[1:-1]}"
    elif error.status_code == 405:
        message = f"Method Not Allowed: {request.method} {quoted(request.url.path)[1:-1]}"
    else:
        message = str(error.detail)
    form = form_at(request.url.path)
    body = body_of(form, error.status_code, message) if form else plain_error(message)
    return _json(error.status_code, body, error.headers)


async def _on_refused(request: Request, error: Exception) -> Response:  # noqa: ARG001  # Starlette's signature
    assert isinstance(error, RequestError)  # noqa: S101  # registered for this class
    status, body, _, more = render_error(error)
    return _json(status, joined(body), separate(more))


async def _on_bug(request: Request, error: Exception) -> Response:  # noqa: ARG001  # uvicorn logs the error
    return _json(500, plain_error(INTERNAL_ERROR))


def _json(status: int, body: bytes, headers: Mapping[str, str] | None = None) -> Response:
    return Response(body, status, headers, "application/json")
