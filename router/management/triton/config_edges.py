"""The model configuration over REST and over gRPC."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any  # Any: the generated messages carry no types

from fastapi import FastAPI, Path
from fastapi.responses import Response

from router.grpc.rpc import RpcMethod
from router.management.triton.answering import find_usable, json_of, rpc_method
from router.management.triton.model_config import as_json
from router.protocol.oip import find_model
from router.tensors.protos.files import oip
from serving.ports import Serving
from serving.values.specs import ServedModel

Name = Annotated[str, Path(description="A name out of `GET /v2/models`.")]
Version = Annotated[str, Path(description="Of a model with numbered folders; else `1`.")]

Configure = Callable[[ServedModel], Any]
"""Returns the ModelConfig of a served model."""


def add_model_config(app: FastAPI, serving: Serving, configure: Configure) -> None:
    """Put the model configuration on the application."""

    @app.get("/v2/models/{model}/config", tags=["metadata"])
    async def model_config(model: Name) -> Response:
        """Return the model's configuration, as Triton says it (the extension model_configuration)."""
        return json_of(as_json(configure(find_model(serving, model))))

    @app.get("/v2/models/{model}/versions/{model_version}/config", tags=["metadata"])
    async def model_version_config(model: Name, model_version: Version) -> Response:
        """Return the same, with the version said."""
        return json_of(as_json(configure(find_model(serving, model, model_version))))


def model_config_methods(serving: Serving, configure: Configure) -> Mapping[str, RpcMethod]:
    """Return the gRPC half."""

    async def answer(request: Any) -> Any:
        model = find_usable(serving, request.name, request.version)
        return oip.ModelConfigResponse(config=configure(model))

    return {"ModelConfig": rpc_method(answer)}
