"""Triton's extensions that tell of the gateway, over REST and over gRPC."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Annotated, Any, NoReturn  # Any: neither grpc nor the generated messages carry types

import orjson
from fastapi import FastAPI, Path
from fastapi.responses import Response
from tritonclient.grpc import service_pb2

from router.auth.identity import CALLER, may_use
from router.oip import find_model
from router.outcomes import ANSWERS, worded
from router.rpc import RpcMethod
from router.tensors.decoded import MODEL_VERSION
from router.tensors.errors import RequestError
from router.tensors.wording import quoted
from router.triton.model_config import as_json
from serving.ports import Serving
from serving.specs import ServedModel
from serving.vocabulary import FORBIDDEN

Name = Annotated[str, Path(description="A name out of `GET /v2/models`.")]
Version = Annotated[str, Path(description="Always `1`: models have variants here, not versions.")]

Configure = Callable[[ServedModel], Any]
"""Returns the ModelConfig of a served model."""


def add_model_config(app: FastAPI, serving: Serving, configure: Configure) -> None:
    """Put the model configuration on the application."""

    @app.get("/v2/models/{model}/config", tags=["metadata"])
    async def model_config(model: Name) -> Response:
        """Return the model's configuration, as Triton says it (the extension model_configuration)."""
        return json_of(as_json(configure(find_model(serving, model, MODEL_VERSION))))

    @app.get("/v2/models/{model}/versions/{model_version}/config", tags=["metadata"])
    async def model_version_config(model: Name, model_version: Version) -> Response:
        """Return the same, with the version said."""
        return json_of(as_json(configure(find_model(serving, model, model_version))))


def model_config_methods(serving: Serving, configure: Configure) -> Mapping[str, RpcMethod]:
    """Return the gRPC half."""

    async def answer(request: Any) -> Any:
        model = find_usable(serving, request.name, request.version)
        return service_pb2.ModelConfigResponse(config=configure(model))

    return {"ModelConfig": partial(_call, answer)}


def find_usable(serving: Serving, name: str, version: str = "") -> ServedModel:
    """Return the model that a gRPC call names. RequestError if it may not be used."""
    if not may_use(CALLER.get(), name):
        raise RequestError(FORBIDDEN, f"the API key may not use model {quoted(name)}")
    return find_model(serving, name, version or MODEL_VERSION)


def json_of(value: object) -> Response:
    """Return an answer of this JSON."""
    return Response(orjson.dumps(value), media_type="application/json")


async def _call(answer: Callable[[Any], Awaitable[Any]], request: Any, context: Any) -> Any:
    try:
        return await answer(request)
    except RequestError as error:
        await _refuse(context, error)


async def _refuse(context: Any, error: RequestError) -> NoReturn:
    answer = ANSWERS[error.outcome]
    await context.abort(answer.grpc_code, worded(error.outcome, error.message))
    raise AssertionError("grpc's abort has returned")
