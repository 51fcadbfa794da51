"""The repository API over REST (Triton's extension "model_repository")."""

from typing import Annotated, Any

import orjson
from fastapi import FastAPI, Path, Request
from fastapi.responses import Response

from router.management.operations.repository.modelconfig import check_unload, read_asked
from router.management.operations.repository.refusals import (
    BAD_INPUT,
    NO_REPOSITORY_NAME,
    TOO_LARGE,
    UNSUPPORTED,
    RepositoryError,
)
from router.management.operations.repository.repository import Repository
from router.protocol.bodies import read_body
from router.protocol.rest import plain_error
from router.security.auth.asgi import caller
from router.security.auth.identity import may_use
from router.tensors.parts.wording import quoted, suggestion

BODY_BYTES_MAX = 1 << 16
"""Of a request's JSON, which the event loop parses within a millisecond. What is longer carries a file, which
is not taken."""

Name = Annotated[str, Path(description="A name out of the index.")]
AnyName = Annotated[str, Path(description="Ignored: there is one repository.")]
NoName = Annotated[str, Path(description="Refused: a model has one place, whatever repository is named.")]


def _operation(*members: str) -> dict[str, Any]:  # Any: FastAPI's own type for it
    schema = {"type": "object", "properties": {name: {} for name in members}}
    return {"requestBody": {"required": False, "content": {"application/json": {"schema": schema}}}}


_INDEX, _LOAD, _UNLOAD = _operation("ready"), _operation("parameters"), _operation("parameters")


def add_repository(app: FastAPI, repository: Repository) -> None:
    """Add the routes to the application."""
    app.add_exception_handler(RepositoryError, answer_refusal)
    _add_index(app, repository)
    _add_control(app, repository)

    async def named(repository_name: NoName, model: Name) -> Response:  # noqa: ARG001  # names of the path
        """Refuse the request, as Triton does: name the model alone."""
        raise RepositoryError(UNSUPPORTED, NO_REPOSITORY_NAME)

    for verb in ("load", "unload"):
        path = f"/v2/repository/{{repository_name}}/models/{{model}}/{verb}"
        app.add_api_route(path, named, methods=["POST"], tags=["repository"], name=f"{verb}_named")


def _add_index(app: FastAPI, repository: Repository) -> None:
    async def answer(request: Request) -> Response:
        body = await _read(request, "ready")
        ready = body.get("ready", False)
        if not isinstance(ready, bool):
            raise RepositoryError(BAD_INPUT, f"'ready' must be true or false, got {quoted(ready)}")
        identity = caller(request.scope)
        found = [
            {key: value for key, value in each._asdict().items() if value}
            for each in await repository.index(ready)
            if may_use(identity, each.name)
        ]
        return Response(orjson.dumps(found), media_type="application/json")

    @app.post("/v2/repository/index", tags=["repository"], openapi_extra=_INDEX)
    async def index(request: Request) -> Response:
        """Return every model that is or could be loaded, with its state; `ready` (true): those that
        answer."""
        return await answer(request)

    @app.post("/v2/repository/{repository_name}/index", tags=["repository"], openapi_extra=_INDEX)
    async def index_named(repository_name: AnyName, request: Request) -> Response:  # noqa: ARG001
        """Return the same index as without a repository name: there is one repository."""
        return await answer(request)


def _add_control(app: FastAPI, repository: Repository) -> None:
    @app.post("/v2/repository/models/{model}/load", tags=["repository"], openapi_extra=_LOAD)
    async def load(model: Name, request: Request) -> Response:
        """Read the model's files and serve what they say; answered when it is ready."""
        parameters = _parameters(await _read(request, "parameters"))
        await repository.load(model, read_asked(model, parameters, repository.configured(model)))
        return _done()

    @app.post("/v2/repository/models/{model}/unload", tags=["repository"], openapi_extra=_UNLOAD)
    async def unload(model: Name, request: Request) -> Response:
        """Take no more requests for the model; answered when those before are, and its memory is free."""
        check_unload(_parameters(await _read(request, "parameters")))
        await repository.unload(model)
        return _done()


async def _read(request: Request, known: str) -> dict[str, Any]:
    """Return the body's JSON object, with no other key than `known`; {} where there is no body."""
    body = await read_body(request, BODY_BYTES_MAX, _too_large)
    if not body:
        return {}
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise RepositoryError(BAD_INPUT, f"the body is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise RepositoryError(BAD_INPUT, f"the body must be a JSON object, got {quoted(value)}")
    for name in value:
        if name != known:
            hint = suggestion(name, (known,)) or f"; known are {quoted(known)}"
            raise RepositoryError(BAD_INPUT, f"the body has an unknown key {quoted(name)}{hint}")
    return value


def _too_large() -> RepositoryError:
    message = f"the body is over {BODY_BYTES_MAX} bytes: files are not taken over the network"
    return RepositoryError(TOO_LARGE, message)


def _parameters(body: dict[str, Any]) -> dict[str, Any]:
    parameters = body.get("parameters", {})
    if not isinstance(parameters, dict):
        raise RepositoryError(BAD_INPUT, f"'parameters' must be an object, got {quoted(parameters)}")
    return parameters


def _done() -> Response:
    return Response(media_type="application/json")  # empty, as Triton's


async def answer_refusal(request: Request, error: Exception) -> Response:  # noqa: ARG001  # Starlette's signature
    """Return the answer to a request that RepositoryError refuses."""
    assert isinstance(error, RepositoryError)  # noqa: S101  # registered for this class
    return Response(plain_error(error.message), error.refusal.http_status, media_type="application/json")
