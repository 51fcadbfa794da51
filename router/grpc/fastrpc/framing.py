"""What gRPC adds to HTTP/2: a message's prefix, timeouts, metadata as text, trailers. Bytes in, bytes out.

The names are those of "gRPC over HTTP2" (github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md).
"""

import base64
import binascii
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import quote

import grpc
from ngh2 import NeverIndexedHeader

from router.grpc.rpc.calls import Ending, fields_of
from router.protocol.explanation import Lines
from router.protocol.oip import (
    ACCURACY_FIELD,
    CACHE_FIELD,
    REQUEST_FIELD,
    STATE_FIELD,
    TENANT_FIELD,
    TIER_FIELD,
    TIMEOUT_FIELD,
    TRACE_FIELD,
)
from router.tensors.parts.recent import Recent

Header = tuple[bytes, bytes]

PREFIX_BYTES: Final = 5
"""Of a message: whether it is compressed, and its length."""

CONTENT: Final[Header] = (b"content-type", b"application/grpc")
ACCEPTED: Final[Header] = (b"grpc-accept-encoding", b"identity,deflate,gzip")
HEAD: Final[tuple[Header, ...]] = ((b":status", b"200"), CONTENT, ACCEPTED)
OK: Final[Header] = (b"grpc-status", b"0")

READ: Final = frozenset(
    each.encode()
    for each in (
        *(ACCURACY_FIELD, CACHE_FIELD, TENANT_FIELD, TIER_FIELD, TIMEOUT_FIELD),
        *(REQUEST_FIELD, TRACE_FIELD, STATE_FIELD, "x-api-key", "authorization"),
    )
)
"""The metadata that inference reads."""

_NEVER_INDEXED: Any = NeverIndexedHeader
"""Any: compiled code would make a plain pair of it."""

_LINE, _TIMING = b"\r\n", b"\r\nserver-timing: "
_FIELDS: Recent[Lines, list[Header]] = Recent(256)
KEPT_BYTES: Final = 512
"""Lines that say more are split each time."""

_UNITS_S: Final[Mapping[bytes, float]] = {
    b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9,
}  # fmt: skip
_DIGITS_MAX: Final = 8
_PLAIN: Final = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")
"""What a message may hold as it is; all other bytes are written as %XX."""
_HIDDEN: Final = (b":", b"te", b"content-type", b"grpc-")
"""Beginnings of the fields that are gRPC's own, and no metadata."""


def prefix(size: int) -> bytes:
    """Return what stands before a message of that size, which is not compressed."""
    return b"\0" + size.to_bytes(4)


def timeout_s(stated: bytes | None) -> float | None:
    """Return what `grpc-timeout` says, in seconds; None without one, and for one that is none."""
    if not stated or len(stated) > _DIGITS_MAX + 1 or not stated[:-1].isdigit():
        return None
    unit_s = _UNITS_S.get(stated[-1:])
    return None if unit_s is None else int(stated[:-1]) * unit_s


def text(value: bytes) -> str:
    """Return a field's value, which is UTF-8 or else read as Latin-1."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def inference_fields(headers: Iterable[Header]) -> Mapping[str, str]:
    """Return of a call's fields those that inference reads, as `router.grpc.rpc.calls.fields_of`."""
    return fields_of([(name.decode(), text(value)) for name, value in headers if name in READ])


def metadata_of(headers: Iterable[Header]) -> tuple[tuple[str, str | bytes], ...]:
    """Return the metadata of a call, as grpc gives it to a method: binary ones (`-bin`) as bytes."""
    return tuple(
        (name.decode("latin-1"), _binary(value) if name.endswith(b"-bin") else text(value))
        for name, value in headers
        if not name.startswith(_HIDDEN)
    )


def _binary(value: bytes) -> bytes:
    try:
        return base64.b64decode(value + b"=" * (-len(value) % 4), validate=True)
    except binascii.Error:
        return value


def trailers(lines: Lines) -> list[Header]:
    """Return what ends a completed call: its status, and what it says of itself. Times are never the same
    twice, so no table of the client is to hold them; what follows them mostly is as it was."""
    end = lines.find(_LINE, len(_TIMING))
    if not lines.startswith(_TIMING) or end < 0:
        return [OK, *_fields(lines)]
    rest = lines[end:]
    fields = _FIELDS.get(rest)
    if fields is None:
        fields = _fields(rest)
        if len(rest) <= KEPT_BYTES:
            _FIELDS.put(rest, fields)
    found: list[Any] = [OK, _NEVER_INDEXED(b"server-timing", lines[len(_TIMING) : end]), *fields]
    return found


def _fields(lines: Lines) -> list[Header]:
    found: list[Header] = []
    for line in lines.split(_LINE)[1:]:
        name, _, value = line.partition(b": ")
        found.append((name, value))
    return found


def status(code: grpc.StatusCode, sentence: str, fields: Iterable[tuple[str, str]] = ()) -> list[Header]:
    """Return the trailers of a call that is not completed."""
    found: list[Header] = [(b"grpc-status", b"%d" % code.value[0])]
    if sentence:
        found.append((b"grpc-message", quote(sentence, safe=_PLAIN).encode()))
    found += [(name.encode("latin-1"), _written(value)) for name, value in fields]
    return found


def status_of(ending: Ending) -> list[Header]:
    """Return the same, of an ending."""
    return status(ending.code, ending.sentence, ending.fields.items())


def _written(value: str | bytes) -> bytes:
    return base64.b64encode(value) if isinstance(value, bytes) else value.encode("latin-1", "replace")
