"""Errors in the form of each dialect; statuses and header fields are those of the table in `router/outcomes`.

OpenAI's form: https://platform.openai.com/docs/guides/error-codes. That of text-embeddings-inference:
https://huggingface.github.io/text-embeddings-inference. Cohere reads `message` beside it.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import orjson

from router.protocol.dialects.catalogue import PATHS
from router.protocol.dialects.forms import COHERE, KSERVE, OPENAI, TEI
from router.protocol.dialects.texts import CONTEXT
from router.protocol.outcomes import INTERNAL_ERROR, worded
from router.protocol.rest import Rendered
from serving.values.vocabulary import (
    BAD_INPUT,
    DEADLINE_UNREACHABLE,
    DRAINING,
    MEMORY_FULL,
    NO_REPLICA,
    NOT_LOADED,
    OVERLOAD,
    QUEUE_FULL,
    QUOTA,
    RATE_LIMITED,
    UNAUTHENTICATED,
    UNKNOWN_MODEL,
    Outcome,
)

_TYPES: Final[Mapping[int, str]] = MappingProxyType(
    {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error", 504: "timeout_error"}
)
"""OpenAI's types by HTTP status."""
_CODES: Final[Mapping[Outcome, str]] = MappingProxyType(
    {
        UNAUTHENTICATED: "invalid_api_key",
        UNKNOWN_MODEL: "model_not_found",
        QUOTA: "rate_limit_exceeded",
        RATE_LIMITED: "rate_limit_exceeded",
    }
)
"""OpenAI's own codes; of other outcomes the reason is the code."""
_OVERLOADED: Final = (QUEUE_FULL, MEMORY_FULL, OVERLOAD, QUOTA, RATE_LIMITED, DEADLINE_UNREACHABLE)
_UNHEALTHY: Final = (NO_REPLICA, NOT_LOADED, DRAINING)
_PARAMETERS: Final = (
    "input",
    "inputs",
    "model",
    "dimensions",
    "encoding_format",
    "query",
    "documents",
    "texts",
)


def body_of(form: str, status: int, message: str, outcome: Outcome | None = None) -> bytes:
    """Return an error's body in that form. `outcome`: None where the request had none."""
    if form == TEI:
        return orjson.dumps({"error": message, "error_type": _tei_type(status, outcome)})
    if form == KSERVE:
        return orjson.dumps({"error": message} | ({"reason": outcome.reason} if outcome else {}))
    error = {
        "message": message,
        "type": _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error"),
        "param": _parameter(message, outcome),
        "code": _code(message, outcome),
    }
    return orjson.dumps({"error": error} | ({"message": message} if form == COHERE else {}))


def dressed(rendered: Rendered, form: str, outcome: Outcome, detail: str) -> Rendered:
    """Return an error that was rendered for the Open Inference Protocol in the form of another dialect."""
    status, _, _, lines = rendered
    if form == TEI and outcome in _OVERLOADED:
        status = 429  # its own clients take 503 for a model that is being loaded, and wait for it
    if form in (OPENAI, COHERE):
        lines += _openai_wait(lines)
    return status, body_of(form, status, worded(outcome, detail), outcome), None, lines


def form_at(path: str) -> str:
    """Return the form of an error at a path, "" for that of the Open Inference Protocol."""
    endpoint = PATHS.get(path)
    if endpoint is not None:
        return endpoint.errors
    if path.endswith(":predict"):
        return KSERVE
    return OPENAI if path.startswith("/v1/") else ""


def bug(form: str) -> Rendered:
    """Return the answer to a request that failed in the gateway itself."""
    return 500, body_of(form, 500, INTERNAL_ERROR), None, b""


def _openai_wait(lines: bytes) -> bytes:
    """Return what `x-retry-after-ms` says under the name that OpenAI's clients read."""
    _, stated, rest = lines.partition(b"\r\nx-retry-after-ms: ")
    return b"\r\nretry-after-ms: " + rest.partition(b"\r\n")[0] if stated else b""


def _tei_type(status: int, outcome: Outcome | None) -> str:
    if outcome in _OVERLOADED or status == 429:
        return "Overloaded"
    if outcome in _UNHEALTHY:
        return "Unhealthy"
    return "Validation" if status < 500 else "Backend"


def _code(message: str, outcome: Outcome | None) -> str | None:
    if outcome is None:
        return None
    if outcome is BAD_INPUT and CONTEXT in message:
        return "context_length_exceeded"
    return _CODES.get(outcome, str(outcome.reason.value))


def _parameter(message: str, outcome: Outcome | None) -> str | None:
    """Return the key of the request that the message is about, if it begins with one."""
    if outcome is UNKNOWN_MODEL:
        return "model"
    start = message.removeprefix("'")
    return next((key for key in _PARAMETERS if start.startswith((f"{key}'", f"{key}["))), None)
