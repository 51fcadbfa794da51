"""Log settings and trace settings over REST and over gRPC. Watchers read them; a change is guarded."""

from collections.abc import Mapping
from typing import Annotated, Any, Final  # Any: the generated messages carry no types

import orjson
from fastapi import FastAPI, Path, Request
from fastapi.responses import Response

from router.grpc.rpc import RpcMethod
from router.management.operations.repository.refusals import BAD_INPUT, TOO_LARGE, RepositoryError
from router.management.operations.repository.repository_rest import answer_refusal
from router.management.triton.answering import json_of, rpc_method
from router.management.triton.log_settings import change_log_settings, log_settings
from router.management.triton.trace_settings import TraceExtension
from router.protocol.bodies import read_body
from router.security.auth.identity import CALLER, may_use
from router.settings.keys import ADMIN
from router.tensors.parts.errors import RequestError
from router.tensors.parts.wording import quoted
from router.tensors.protos.files import oip
from serving.ports import Serving
from serving.values.vocabulary import FORBIDDEN

BODY_BYTES_MAX: Final = 1 << 14

Name = Annotated[str, Path(description="A name out of `GET /v2/models`.")]

_BODY: Final[dict[str, Any]] = {
    "requestBody": {"required": False, "content": {"application/json": {"schema": {"type": "object"}}}}
}
_FIELDS: Final[Mapping[type, str]] = {bool: "bool_param", int: "uint32_param", str: "string_param"}


def add_settings(app: FastAPI, serving: Serving, traces: TraceExtension) -> None:
    """Put both on the application."""
    app.add_exception_handler(RepositoryError, answer_refusal)
    _add_log_settings(app)
    _add_trace_settings(app, serving, traces)


def _add_log_settings(app: FastAPI) -> None:
    @app.get("/v2/logging", tags=["operation"])
    async def get_log_settings() -> Response:
        """Return which lines the gateway logs."""
        return json_of(log_settings())

    @app.post("/v2/logging", tags=["operation"], openapi_extra=_BODY)
    async def update_log_settings(request: Request) -> Response:
        """Change the settings that the client states, until the gateway is restarted; return all settings."""
        change_log_settings(await _read(request))
        return json_of(log_settings())


def _add_trace_settings(app: FastAPI, serving: Serving, traces: TraceExtension) -> None:
    @app.get("/v2/trace/setting", tags=["operation"])
    async def get_trace_settings() -> Response:
        """Return the settings of the trace file."""
        return json_of(traces.read())

    @app.post("/v2/trace/setting", tags=["operation"], openapi_extra=_BODY)
    async def update_trace_settings(request: Request) -> Response:
        """Change the settings that the client states, until the gateway is restarted; return all settings."""
        traces.change(await _read(request))
        return json_of(traces.read())

    @app.get("/v2/models/{model}/trace/setting", tags=["operation"])
    async def get_model_trace_settings(model: Name) -> Response:
        """Return those of a model."""
        _check_known(serving, model)
        return json_of(traces.read(model))

    @app.post("/v2/models/{model}/trace/setting", tags=["operation"], openapi_extra=_BODY)
    async def update_model_trace_settings(model: Name, request: Request) -> Response:
        """Change those of a model."""
        _check_known(serving, model)
        traces.change(await _read(request), model)
        return json_of(traces.read(model))


def settings_methods(serving: Serving, traces: TraceExtension) -> Mapping[str, RpcMethod]:
    """Return the gRPC half."""

    async def answer_trace(request: Any) -> Any:
        if request.model_name:
            _check_known(serving, request.model_name)
        if request.settings:
            _require_admin()
            stated = {name: list(each.value) for name, each in request.settings.items()}
            traces.change(stated, request.model_name)
        answer = oip.TraceSettingResponse()
        for name, value in traces.read(request.model_name).items():
            answer.settings[name].value.extend([value] if isinstance(value, str) else value)
        return answer

    return {"TraceSetting": rpc_method(answer_trace), "LogSettings": rpc_method(_answer_log)}


def only_asks(request: Any) -> bool:
    """Return whether a TraceSettingRequest or LogSettingsRequest changes nothing."""
    return not request.settings


async def _answer_log(request: Any) -> Any:
    if request.settings:
        _require_admin()
        change_log_settings({name: _value(each) for name, each in request.settings.items()})
    answer = oip.LogSettingsResponse()
    for name, value in log_settings().items():
        setattr(answer.settings[name], _FIELDS[type(value)], value)
    return answer


def _value(setting: Any) -> object:
    kind = setting.WhichOneof("parameter_choice")
    return getattr(setting, kind) if kind else None


def _require_admin() -> None:
    """Raise RequestError if the caller of a gRPC call has a key that may only read."""
    identity = CALLER.get()
    if identity is not None and ADMIN not in identity.roles:
        why = f"the API key {quoted(identity.name)} may not change settings: it has no role 'admin'"
        raise RequestError(FORBIDDEN, why)


def _check_known(serving: Serving, model: str) -> None:
    """Raise RepositoryError, in Triton's words, for a model that the caller cannot see."""
    if model not in serving.models or not may_use(CALLER.get(), model):
        raise RepositoryError(BAD_INPUT, f"Request for unknown model : {quoted(model)[1:-1]}")


async def _read(request: Request) -> dict[str, Any]:
    """Return the settings in the body; none where there is no body."""
    body = await read_body(request, BODY_BYTES_MAX, _too_large)
    try:
        value = orjson.loads(body or b"{}")
    except orjson.JSONDecodeError as error:
        raise RepositoryError(BAD_INPUT, f"the body is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise RepositoryError(BAD_INPUT, f"the body must be a JSON object, got {quoted(value)}")
    return value


def _too_large() -> RepositoryError:
    return RepositoryError(TOO_LARGE, f"the body is over {BODY_BYTES_MAX} bytes")
