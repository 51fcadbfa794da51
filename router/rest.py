"""OIP over REST: what one inference request needs, decode and encode, free of any server framework.

Both REST paths make the same three calls: `decode_request`, `Serving.submit`, `encode_reply`. The
direct one is `router/fastpath`, the other the route in `router/app.py`.
"""

import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

import orjson

from router.explanation import Lines, completed_lines, failure_fields, retry_ms
from router.oip import (
    ACCURACY_FIELD,
    CACHE_FIELD,
    TENANT_FIELD,
    TIER_FIELD,
    TIMEOUT_FIELD,
    control_cache,
    stated_timeout_us,
    tenant_of,
    tighten,
)
from router.outcomes import ANSWERS, error_body
from router.promises import promise
from router.tensors.decoded import Decoded
from router.tensors.errors import RequestError, bad_input, too_large
from router.tensors.rest import decode, encode
from router.tensors.wording import quoted
from serving.ports import Reply, Serving
from serving.specs import DEFAULT_TENANT, Limits, ServedModel
from serving.tensor import Buffer
from serving.vocabulary import BAD_INPUT, COMPLETED, Outcome

Fields = Mapping[bytes, bytes]
"""A request's header fields: lower-case names, undecoded values; see `fields_of`."""

Rendered = tuple[int, bytes, int | None, Lines]
"""HTTP status, body, Inference-Header-Content-Length (None: no binary outputs), further header fields."""

COMPRESS_MIN_BYTES = 1024
"""Shorter answers are sent as they are: many clients name gzip in every request, and below one
packet it saves nothing. Compression runs inline, at zlib's fastest level."""

_TIMEOUT, _TENANT, _CACHE = TIMEOUT_FIELD.encode(), TENANT_FIELD.encode(), CACHE_FIELD.encode()
_TIER, _ACCURACY = TIER_FIELD.encode(), ACCURACY_FIELD.encode()

_LISTS = (_CACHE, _TIER, _ACCURACY, _TIMEOUT)

_GZIP, _ZLIB, _RAW = 31, 15, -15  # zlib's wbits for the three framings
_CODINGS = {b"gzip": _GZIP, b"x-gzip": _GZIP, b"deflate": _ZLIB}


class HttpError(RequestError):
    """A request that HTTP itself cannot accept, with a status of its own that the table does not know."""

    def __init__(self, status: int, outcome: Outcome, message: str) -> None:
        super().__init__(outcome, message)
        self.status = status


def fields_of(headers: Sequence[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """A request's header fields: of a repeated one the last, but of Cache-Control, tiers, floors and timeouts
    all, as one list: neither a `no-store` before a proxy's `max-age` nor a higher floor may get lost."""
    fields = dict(headers)
    if len(fields) < len(headers):
        for each in _LISTS:
            if each in fields:
                fields[each] = b",".join(value for name, value in headers if name == each)
    return fields


def decode_request(body: Buffer, fields: Fields, model: ServedModel, limits: Limits, tier: str) -> Decoded:
    """The call in `body`, with the tightest of the client's timeouts, what it says of the cache, and what it
    is promised; `tier` is its tenant's, "" for none.

    Raises RequestError for what cannot be served as it stands.
    """
    coding = fields.get(b"content-encoding")
    if coding is not None:
        body = decompress(body, coding, limits.body_bytes)
    stated = fields.get(b"inference-header-content-length")
    json_length = None if stated is None else _header_length(stated)
    decoded = decode(body, json_length, model, limits)
    stated = fields.get(_TIMEOUT)
    if stated is not None:
        tighten(decoded.call, stated_timeout_us(stated.decode("latin-1")))
    stated = fields.get(_CACHE)
    if stated is not None:
        control_cache(decoded.call, stated.decode("latin-1"))
    if tier or decoded.stated is not None or _TIER in fields or _ACCURACY in fields:
        by_field = fields.get(_TIER, b"").decode("latin-1"), fields.get(_ACCURACY, b"").decode("latin-1")
        promise(decoded, *by_field, tier)
    return decoded


def stated_tenant(serving: Serving, fields: Fields) -> str:
    """Whose request this is."""
    stated = fields.get(_TENANT)
    return DEFAULT_TENANT if stated is None else tenant_of(serving, stated.decode("latin-1"))


def encode_reply(
    decoded: Decoded, reply: Reply, fields: Fields, began_us: int, now_us: Callable[[], int]
) -> Rendered:
    """The answer to a decoded call, the first of which was read at `began_us`; compressed where the request's
    Accept-Encoding names a coding."""
    if reply.outcome is not COMPLETED:
        return _failure(reply, ANSWERS[reply.outcome].http_status, decoded.call.due_us)
    body, json_length = encode(decoded, reply)
    packed = b""
    accepted = fields.get(b"accept-encoding")
    if accepted is not None and len(body) >= COMPRESS_MIN_BYTES:
        coding = _preferred_coding(accepted)
        if coding:
            packer = zlib.compressobj(1, zlib.DEFLATED, _CODINGS[coding])
            body = packer.compress(body) + packer.flush()
            packed = b"\r\ncontent-encoding: " + coding
    return 200, body, json_length, completed_lines(reply, decoded.call.due_us, began_us, now_us()) + packed


def render_error(error: RequestError) -> Rendered:
    """The answer to a request that never became a call."""
    status = error.status if isinstance(error, HttpError) else ANSWERS[error.outcome].http_status
    return _failure(Reply(error.outcome, error.message), status)


def _failure(reply: Reply, status: int, due_us: int = 0) -> Rendered:
    fields = failure_fields(reply, due_us)
    wait_ms = retry_ms(reply)
    if wait_ms:
        fields |= {"retry-after": str(-(-wait_ms // 1000)), "x-retry-after-ms": str(wait_ms)}
    more = "".join(f"\r\n{name}: {value}" for name, value in fields.items())
    return status, error_body(reply.outcome, reply.detail), None, more.encode()


def plain_error(message: str) -> bytes:
    """The error body of what ended before it had an outcome: `{"error": message}`."""
    return orjson.dumps({"error": message})


def decompress(body: Buffer, coding: bytes, limit_bytes: int) -> Buffer:
    """`body` without its Content-Encoding; stops as soon as the output passes `limit_bytes`.

    Runs inline: inflating costs about as much per output byte as parsing it.
    """
    name = coding.strip().lower()
    if name in (b"", b"identity"):
        return body
    window = _CODINGS.get(name)
    if window is None:
        shown = quoted(coding.decode("latin-1"))
        raise HttpError(415, BAD_INPUT, f"Content-Encoding must be gzip, deflate or identity, got {shown}")
    if window == _ZLIB and not _has_zlib_header(body):
        window = _RAW  # some clients send "deflate" without zlib's frame
    output = bytearray()
    rest: Buffer = body
    while True:  # gzip allows several members in a row
        unpacker = zlib.decompressobj(window)
        try:
            output += unpacker.decompress(rest, limit_bytes - len(output) + 1)
        except zlib.error as error:
            raise bad_input(f"the {name.decode()} request body is damaged: {error}") from None
        if len(output) > limit_bytes:
            over = f"the request body is over the limit of {limit_bytes} bytes once decompressed"
            raise too_large(f"{over} (limits.body_mb)")
        if not unpacker.eof:
            raise bad_input(f"the {name.decode()} request body ends too early")
        rest = unpacker.unused_data
        if not rest:
            return output


def _has_zlib_header(body: Buffer) -> bool:
    return len(body) >= 2 and body[0] & 0x0F == 8 and (body[0] << 8 | body[1]) % 31 == 0  # RFC 1950, 2.2


def _header_length(stated: bytes) -> int:
    if not stated.isdigit() or len(stated) > 18:
        shown = quoted(stated.decode("latin-1"))
        raise bad_input(f"Inference-Header-Content-Length must be the bytes of the JSON part, got {shown}")
    return int(stated)


@lru_cache(maxsize=64)
def _preferred_coding(accepted: bytes) -> bytes:
    """gzip or deflate, whichever Accept-Encoding names first without refusing it by `q=0`; else b""."""
    for entry in accepted.lower().split(b","):
        name, _, weight = entry.replace(b" ", b"").partition(b";q=")
        refused = weight != b"" and not weight.strip(b"0.")
        if name in _CODINGS and not refused:
            return b"gzip" if name == b"x-gzip" else name
    return b""
