"""The one table from how a request ended to what its client is told, over REST and over gRPC."""

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import NamedTuple

import grpc
import orjson

from router.tensors.parts.wording import listed, quoted, suggestion
from serving.values.vocabulary import (
    BAD_INPUT,
    CLIENT_GONE,
    COMPLETED,
    DEADLINE_QUEUED,
    DEADLINE_RUNNING,
    DEADLINE_UNMET,
    DEADLINE_UNREACHABLE,
    DRAINING,
    FORBIDDEN,
    MEMORY_FULL,
    MODEL_ERROR,
    NO_REPLICA,
    NOT_LOADED,
    OVERLOAD,
    QUEUE_FULL,
    QUOTA,
    RATE_LIMITED,
    SEQUENCE_LOST,
    TOO_LARGE,
    UNAUTHENTICATED,
    UNKNOWN_MODEL,
    WORKER_LOST,
    Outcome,
)

CLIENT_LEFT = 499
"""nginx's status for a client that left before its answer: never sent, the access log has it."""


class ProtocolAnswer(NamedTuple):
    """What the gateway tells a client: HTTP status, gRPC code, and the sentence for when there is no better
    text.

    `retry`: whether the client also learns when to come back, if the core can say (`Reply.retry_us`).
    """

    http_status: int
    grpc_code: grpc.StatusCode
    sentence: str
    retry: bool = False


_Code = grpc.StatusCode

_PASSED = " (Deadline Exceeded)"
_COMING = "; it would end in Deadline Exceeded"
_DEADLINES: Mapping[Outcome, str] = {
    DEADLINE_UNREACHABLE: _COMING,
    DEADLINE_QUEUED: _PASSED,
    DEADLINE_RUNNING: _PASSED,
    DEADLINE_UNMET: _PASSED,
}
"""In the words of grpc itself, for which clients and Triton's tests look in any error of a deadline."""

ANSWERS: Mapping[Outcome, ProtocolAnswer] = MappingProxyType(
    {
        COMPLETED: ProtocolAnswer(200, _Code.OK, ""),
        BAD_INPUT: ProtocolAnswer(400, _Code.INVALID_ARGUMENT, "the request is not valid for this model"),
        TOO_LARGE: ProtocolAnswer(
            413, _Code.RESOURCE_EXHAUSTED, "the request exceeds a limit of this gateway"
        ),
        UNKNOWN_MODEL: ProtocolAnswer(404, _Code.NOT_FOUND, "Request for unknown model"),
        UNAUTHENTICATED: ProtocolAnswer(401, _Code.UNAUTHENTICATED, "an API key is needed"),
        FORBIDDEN: ProtocolAnswer(403, _Code.PERMISSION_DENIED, "the API key may not do this"),
        # RESOURCE_EXHAUSTED, not UNAVAILABLE: clients retry the latter by themselves, into a full queue.
        QUEUE_FULL: ProtocolAnswer(503, _Code.RESOURCE_EXHAUSTED, "Exceeds maximum queue size", retry=True),
        MEMORY_FULL: ProtocolAnswer(
            503,
            _Code.RESOURCE_EXHAUSTED,
            "the accepted requests hold all the memory they may (limits.held_mb)",
            retry=True,
        ),
        OVERLOAD: ProtocolAnswer(
            503,
            _Code.RESOURCE_EXHAUSTED,
            "more requests come in than can be answered within their deadlines",
            retry=True,
        ),
        QUOTA: ProtocolAnswer(
            429,
            _Code.RESOURCE_EXHAUSTED,
            "the tenant is over its share of an overloaded gateway",
            retry=True,
        ),
        RATE_LIMITED: ProtocolAnswer(
            429, _Code.RESOURCE_EXHAUSTED, "the tenant sends more than its rate allows", retry=True
        ),
        DEADLINE_UNREACHABLE: ProtocolAnswer(
            503,
            _Code.RESOURCE_EXHAUSTED,
            f"the deadline could not be met even if the request ran next{_COMING}",
            retry=True,
        ),
        NO_REPLICA: ProtocolAnswer(503, _Code.UNAVAILABLE, "no replica of the model is ready", retry=True),
        # UNAVAILABLE: it is being loaded, and a client that tries again by itself finds it there.
        NOT_LOADED: ProtocolAnswer(
            503, _Code.UNAVAILABLE, "the model could not be loaded by the request's deadline", retry=True
        ),
        DRAINING: ProtocolAnswer(503, _Code.UNAVAILABLE, "the gateway is shutting down"),
        DEADLINE_QUEUED: ProtocolAnswer(
            504, _Code.DEADLINE_EXCEEDED, f"Request timeout expired in the queue{_PASSED}"
        ),
        DEADLINE_RUNNING: ProtocolAnswer(
            504,
            _Code.DEADLINE_EXCEEDED,
            f"Request timeout expired while the model was running{_PASSED}",
        ),
        DEADLINE_UNMET: ProtocolAnswer(
            504,
            _Code.DEADLINE_EXCEEDED,
            f"the deadline could no longer be met{_PASSED}",
            retry=True,
        ),
        WORKER_LOST: ProtocolAnswer(503, _Code.UNAVAILABLE, "the worker that ran the request was lost"),
        MODEL_ERROR: ProtocolAnswer(500, _Code.INTERNAL, "the model failed on this request"),
        # ABORTED: a client is to begin again further up, with the sequence's START.
        SEQUENCE_LOST: ProtocolAnswer(409, _Code.ABORTED, "the sequence is lost; start it again"),
        CLIENT_GONE: ProtocolAnswer(CLIENT_LEFT, _Code.CANCELLED, "the client left before the answer"),
    }
)
"""Every outcome of `serving.values.vocabulary.ALL_OUTCOMES`; 499 (nginx) only shows in logs. Some sentences
begin as Triton's do, because its clients and tests look for them."""

INTERNAL_ERROR = "internal error of the gateway; its log has the cause"
"""What a client is told of a bug, which is no outcome: with 500 or INTERNAL."""


def error_body(outcome: Outcome, detail: str = "") -> bytes:
    """Return the JSON of a REST error: {"error": sentence, "reason": ...}; `detail` is the better
    sentence."""
    return orjson.dumps({"error": worded(outcome, detail), "reason": outcome.reason})


def worded(outcome: Outcome, detail: str = "") -> str:
    """Return the text for the client: `detail` if there is one, else the outcome's own sentence."""
    return detail + _DEADLINES.get(outcome, "") if detail else ANSWERS[outcome].sentence


def unknown_model(name: str, served: Collection[str]) -> str:
    """Return the sentence for a model that is not served, with the served name that was probably meant."""
    message = f"Request for unknown model: '{quoted(name)[1:-1]}' is not found"
    if not served:
        return message + "; no models are served"
    return message + (suggestion(name, served) or f"; served are {listed(sorted(served))}")
