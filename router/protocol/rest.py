"""OIP over REST: what one inference request needs, decode and encode, free of any server framework.

Both REST paths make the same three calls: `decode_request`, `Serving.submit`, `encode_reply`. The
direct one is `router/http/fastpath`, the other the route in `router/http/app.py`.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from math import prod

import orjson

from router.protocol.explanation import Lines, completed_lines, failure_fields, retry_ms
from router.protocol.oip import (
    ACCURACY_FIELD,
    CACHE_FIELD,
    REQUEST_FIELD,
    STATE_FIELD,
    TENANT_FIELD,
    TIER_FIELD,
    TIMEOUT_FIELD,
    TRACE_FIELD,
    control_cache,
    name_request,
    stated_timeout_us,
    tenant_of,
    tighten,
)
from router.protocol.outcomes import ANSWERS, error_body
from router.protocol.promises import promise
from router.tensors.answer.storing import store, stored_bytes
from router.tensors.parts.compression import CODINGS, deflate
from router.tensors.parts.errors import RequestError, bad_input
from router.tensors.parts.places import Memory
from router.tensors.parts.wording import quoted
from router.tensors.request.decoded import Decoded
from router.tensors.request.parameters import take_fields
from router.tensors.rest import Body, decode, encode_parts, joined, size_of
from serving.ports import Reply, Serving
from serving.values.specs import DEFAULT_TENANT, Limits, ServedModel
from serving.values.tensor import Buffer
from serving.values.vocabulary import COMPLETED, UNAUTHENTICATED, Outcome
from serving.worker.frames.shared import PORTION_BYTES

Fields = Mapping[bytes, bytes]
"""A request's header fields: lower-case names, undecoded values; see `fields_of`."""

Made = tuple[Body, int | None, bytes]
"""An answer's body, the bytes of its JSON where data follows it, and its Content-Encoding or b""."""

Rendered = tuple[int, Body, int | None, Lines]
"""HTTP status, body, Inference-Header-Content-Length (None: no binary outputs), further header fields."""

COMPRESS_MIN_BYTES = 1024
"""Shorter answers are sent as they are: many clients name gzip in every request, and below one
packet it saves nothing."""

INLINE_BYTES = 1 << 16
"""A request's JSON up to here is parsed in the event loop (of numbers: 0.6 ms); more in a bulk process."""
INLINE_JSON_BYTES = 1 << 15
"""An answer's tensors up to here are written as JSON in the event loop."""
INLINE_PACKED_BYTES = 1 << 18
"""An answer up to here is compressed in the event loop."""

_TIMEOUT, _TENANT, _CACHE = TIMEOUT_FIELD.encode(), TENANT_FIELD.encode(), CACHE_FIELD.encode()
_TIER, _ACCURACY = TIER_FIELD.encode(), ACCURACY_FIELD.encode()
_REQUEST, _TRACE, _STATE = REQUEST_FIELD.encode(), TRACE_FIELD.encode(), STATE_FIELD.encode()

_LISTS = (_CACHE, _TIER, _ACCURACY, _TIMEOUT, _STATE)


class HttpError(RequestError):
    """A request that HTTP itself cannot accept, with a status of its own that the table does not know."""

    def __init__(self, status: int, outcome: Outcome, message: str) -> None:
        super().__init__(outcome, message)
        self.status = status


def fields_of(headers: Sequence[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Return a request's header fields: of a repeated one the last, but of Cache-Control, tiers, floors,
    timeouts and `tracestate` all, as one list: neither a `no-store` before a proxy's `max-age` nor a higher
    floor may get lost."""
    fields = dict(headers)
    if len(fields) < len(headers):
        for each in _LISTS:
            if each in fields:
                fields[each] = b",".join(value for name, value in headers if name == each)
    return fields


def decode_request(
    body: Buffer,
    fields: Fields,
    model: ServedModel,
    limits: Limits,
    tier: str,
    memory: Memory | None = None,
) -> Decoded:
    """Return the call in `body`, with the tightest of the client's timeouts, what it says of the cache, and
    what it is promised; `tier` is its tenant's, "" for none. `memory`: of its caller, None where no shared
    memory is served.

    Raises RequestError for what cannot be served as it stands, and CopyFirst. It is not bulk (`is_bulk`).
    """
    if model.spec.decoupled:
        raise bad_input(
            "HTTP end point doesn't support models with decoupled transaction policy: "
            f"'{model.name}' gives any number of answers; expected POST .../generate_stream, or gRPC's "
            "ModelStreamInfer"
        )
    return read_request(body, fields, model, limits, tier, memory)


def read_request(
    body: Buffer,
    fields: Fields,
    model: ServedModel,
    limits: Limits,
    tier: str,
    memory: Memory | None = None,
) -> Decoded:
    """Return the same, of a model with any number of answers too."""
    decoded = decode(body, json_length_of(fields), model, limits, memory)
    apply_fields(decoded, fields, tier)
    return decoded


def apply_fields(decoded: Decoded, fields: Fields, tier: str) -> None:
    """Apply what the header fields say of a call: timeout, cache, tier and floor. `tier`: see
    `decode_request`."""
    if decoded.call.parameters:
        take_fields(decoded.call, partial(_text_of, fields))
    if _REQUEST in fields or _TRACE in fields:
        found = [fields.get(each, b"").decode("latin-1") for each in (_REQUEST, _TRACE, _STATE)]
        name_request(decoded.call, *found)
    stated = fields.get(_TIMEOUT)
    if stated is not None:
        tighten(decoded.call, stated_timeout_us(stated.decode("latin-1")))
    stated = fields.get(_CACHE)
    if stated is not None:
        control_cache(decoded.call, stated.decode("latin-1"))
    if tier or decoded.stated is not None or _TIER in fields or _ACCURACY in fields:
        by_field = fields.get(_TIER, b"").decode("latin-1"), fields.get(_ACCURACY, b"").decode("latin-1")
        promise(decoded, *by_field, tier)


def _text_of(fields: Fields, name: str) -> str | None:
    value = fields.get(name.encode())
    return None if value is None else value.decode("latin-1")


def stated_tenant(serving: Serving, fields: Fields, own: str = "") -> str:
    """Return the tenant of a request; `own`: the tenant of the key by which it came, beside which no field
    counts."""
    if own:
        return own
    stated = fields.get(_TENANT)
    return DEFAULT_TENANT if stated is None else tenant_of(serving, stated.decode("latin-1"))


def is_bulk(body: Buffer, fields: Fields) -> bool:
    """Return whether a request takes over a millisecond to read: much JSON, or a compressed body, which may
    become that."""
    if b"content-encoding" in fields:
        return True
    if len(body) <= INLINE_BYTES:
        return False
    stated = fields.get(b"inference-header-content-length")
    return stated is None or (stated.isdigit() and len(stated) <= 18 and int(stated) > INLINE_BYTES)


def is_bulk_answer(decoded: Decoded, reply: Reply, fields: Fields, limits: Limits) -> bool:
    """Return whether the answer takes over a millisecond to write: much JSON, much to compress, or much that
    goes to the client's memory.

    Raises RequestError (BAD_INPUT) where it would have more elements in JSON than the limits allow.
    """
    json_bytes = elements = all_bytes = 0
    for wanted in decoded.wanted:
        if reply.outcome is not COMPLETED:
            return False
        if wanted.place is not None:
            continue
        tensor = reply.outputs[wanted.index]
        all_bytes += len(tensor.data)
        if not wanted.binary:
            json_bytes += len(tensor.data)
            elements += prod(tensor.shape)
    if elements > limits.element_count:
        raise bad_input(
            f"the answer has {elements} elements; at most {limits.element_count} are written as JSON "
            "(limits.element_count): ask for its outputs with binary_data true"
        )
    if decoded.targets and stored_bytes(decoded, reply) > PORTION_BYTES:
        return True
    return json_bytes > INLINE_JSON_BYTES or (
        all_bytes > INLINE_PACKED_BYTES and coding_of(fields, all_bytes) != b""
    )


def make(decoded: Decoded, reply: Reply, fields: Fields) -> Made:
    """Return the body of the answer to a COMPLETED call, compressed where the request's Accept-Encoding names
    a coding. What goes to the client's memory is there before."""
    store(decoded, reply)
    body, json_length = encode_parts(decoded, reply)
    coding = coding_of(fields, size_of(body))
    if coding:
        body = deflate(joined(body), coding)
    return body, json_length, coding


def encode_reply(
    decoded: Decoded,
    reply: Reply,
    fields: Fields,
    began_us: int,
    now_us: Callable[[], int],
    made: Made | None = None,
) -> Rendered:
    """Return the answer to a decoded call; its first byte was read at `began_us`. `made`: its body, if it was
    made before."""
    if reply.outcome is not COMPLETED:
        return render_failure(reply, decoded.call.due_us)
    body, json_length, coding = make(decoded, reply, fields) if made is None else made
    packed = b"\r\ncontent-encoding: " + coding if coding else b""
    if reply.limits:
        packed += reply.limits.encode()
    return 200, body, json_length, completed_lines(reply, decoded.call.due_us, began_us, now_us()) + packed


def render_failure(reply: Reply, due_us: int) -> Rendered:
    """Return the answer to a call that was not completed."""
    return _failure(reply, ANSWERS[reply.outcome].http_status, due_us)


def render_error(error: RequestError) -> Rendered:
    """Return the answer to a request that never became a call."""
    status = error.status if isinstance(error, HttpError) else ANSWERS[error.outcome].http_status
    reply = Reply(error.outcome, error.message)
    reply.retry_us = error.retry_us
    return _failure(reply, status)


def _failure(reply: Reply, status: int, due_us: int = 0) -> Rendered:
    fields = failure_fields(reply, due_us)
    wait_ms = retry_ms(reply)
    if wait_ms:
        fields |= {"retry-after": str(-(-wait_ms // 1000)), "x-retry-after-ms": str(wait_ms)}
    if reply.outcome is UNAUTHENTICATED:
        fields["www-authenticate"] = "Bearer"  # RFC 6750, 3
    more = "".join(f"\r\n{name}: {value}" for name, value in fields.items())
    return status, error_body(reply.outcome, reply.detail), None, more.encode()


def plain_error(message: str) -> bytes:
    """Return the error body of what ended before it had an outcome: `{"error": message}`."""
    return orjson.dumps({"error": message})


def json_length_of(fields: Fields) -> int | None:
    """Return Inference-Header-Content-Length, None if there is none. Raises RequestError if it is no
    number."""
    stated = fields.get(b"inference-header-content-length")
    if stated is None:
        return None
    if not stated.isdigit() or len(stated) > 18:
        shown = quoted(stated.decode("latin-1"))
        raise bad_input(f"Inference-Header-Content-Length must be the bytes of the JSON part, got {shown}")
    return int(stated)


def coding_of(fields: Fields, size: int) -> bytes:
    """Return the Content-Encoding of an answer of that size, b"" for none."""
    accepted = fields.get(b"accept-encoding")
    return b"" if accepted is None or size < COMPRESS_MIN_BYTES else _preferred_coding(accepted)


@lru_cache(maxsize=64)
def _preferred_coding(accepted: bytes) -> bytes:
    """Return gzip or deflate, whichever Accept-Encoding names first without refusing it by `q=0`; else
    b""."""
    for entry in accepted.lower().split(b","):
        name, _, weight = entry.replace(b" ", b"").partition(b";q=")
        refused = weight != b"" and not weight.strip(b"0.")
        if name in CODINGS and not refused:
            return b"gzip" if name == b"x-gzip" else name
    return b""
