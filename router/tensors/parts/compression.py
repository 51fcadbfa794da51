"""Content-Encoding, undone within bounds: what a few bytes can inflate to is limited before it is made.

zlib inflates 1 byte to at most 1,032; `limits.inflation` bounds that ratio beyond the first megabyte. A body
may have several gzip members in a row (RFC 1952, 2.2), of which MEMBERS_MAX are accepted: each costs a fresh
inflater. `deflate` (RFC 9110, 8.4.1.2) is one stream.
"""

import zlib
from typing import Final

from router.tensors.parts.errors import RequestError, bad_input, too_large
from router.tensors.parts.wording import quoted
from serving.values.specs import Limits
from serving.values.tensor import Buffer

MEMBERS_MAX: Final = 16
FREE_BYTES: Final = 1 << 20
"""A body may inflate to this, whatever its ratio."""

GZIP, ZLIB, RAW = 31, 15, -15
"""zlib's wbits for the three framings."""
CODINGS: Final = {b"gzip": GZIP, b"x-gzip": GZIP, b"deflate": ZLIB}

_READ_BYTES = 1 << 18  # fed at once: what a member leaves unread is copied, so it is kept short
_BEGINNING_BYTES = 1 << 12
_MADE_BYTES = 1 << 20  # made at once, and copied while other threads wait


def deflate(body: bytes, coding: bytes) -> bytes:
    """Return the body compressed, at zlib's fastest level. Other threads run meanwhile."""
    packer = zlib.compressobj(1, zlib.DEFLATED, CODINGS[coding])
    return packer.compress(body) + packer.flush()


def framing(coding: bytes) -> int | None:
    """Return zlib's wbits for a Content-Encoding; 0 for none at all, None for an encoding that is not
    served."""
    name = coding.strip().lower()
    return 0 if name in (b"", b"identity") else CODINGS.get(name)


def coding_of_message(message: bytes) -> bytes:
    """Return the coding of a compressed gRPC message, b"" for a plain one. No message of the protocol begins
    as gzip does, with a field of wire type 7, or as zlib does, with field 15."""
    if message[:2] == b"\x1f\x8b":
        return b"gzip"
    return b"deflate" if message[:1] == b"\x78" and _has_zlib_header(message) else b""


def beginning(message: bytes) -> bytes:
    """Return the first bytes of a compressed gRPC message, inflated, and of a plain one all: for what is
    looked for near its start. b"" of a damaged one."""
    coding = coding_of_message(message)
    if not coding:
        return message
    try:
        return zlib.decompressobj(CODINGS[coding]).decompress(message[:_BEGINNING_BYTES], _BEGINNING_BYTES)
    except zlib.error:
        return b""


def inflate(body: Buffer, coding: bytes, limits: Limits) -> bytes:
    """Return `body` without its Content-Encoding `coding`, one of CODINGS.

    Raises RequestError (BAD_INPUT) for a damaged body, (TOO_LARGE) for more than the limits allow. Other
    threads run meanwhile: zlib holds no lock.
    """
    name = coding.strip().lower()
    window = CODINGS[name]
    if window == ZLIB and not _has_zlib_header(body):
        window = RAW  # some clients send "deflate" without zlib's frame
    allowed = min(limits.body_bytes, max(FREE_BYTES, limits.inflation * len(body)))
    output: list[bytes] = []
    left = allowed
    rest = memoryview(body)
    for _ in range(MEMBERS_MAX if window == GZIP else 1):
        try:
            rest, left = _member(rest, window, output, left)
        except zlib.error as error:
            raise bad_input(f"the {name.decode()} request body is damaged: {error}") from None
        except EOFError:
            raise bad_input(f"the {name.decode()} request body ends too early") from None
        if left < 0:
            raise _over(len(body), allowed, limits)
        if not len(rest):
            return b"".join(output)
    if window == GZIP:
        raise too_large(f"the gzip request body has more than {MEMBERS_MAX} members")
    raise bad_input(f"{len(rest)} bytes follow the end of the deflate request body")


def _member(data: memoryview, window: int, output: list[bytes], left: int) -> tuple[memoryview, int]:
    """Add what one member inflates to, while `left` bytes are allowed; returns what follows it, and how many
    are left, -1 for none. EOFError where it has no end."""
    unpacker = zlib.decompressobj(window)
    while left >= 0:
        piece = data[:_READ_BYTES]
        made = unpacker.decompress(piece, min(_MADE_BYTES, left + 1))
        if made:
            output.append(made)
            left -= len(made)
        data = data[len(piece) - len(unpacker.unused_data) - len(unpacker.unconsumed_tail) :]
        if unpacker.eof:
            break
        if not (len(piece) or made):
            raise EOFError
    return data, left


def _over(body_bytes: int, allowed: int, limits: Limits) -> RequestError:
    if allowed == limits.body_bytes:
        bound = f"the limit of {allowed} bytes once decompressed (limits.body_mb)"
    else:
        times = f"{limits.inflation} times its {body_bytes} (limits.inflation)"
        bound = f"{allowed} bytes once decompressed, {times}"
    return too_large(f"the request body is over {bound}")


def _has_zlib_header(body: Buffer) -> bool:
    return len(body) >= 2 and body[0] & 0x0F == 8 and (body[0] << 8 | body[1]) % 31 == 0  # RFC 1950, 2.2


def unknown_coding(coding: bytes) -> str:
    """Return the text for a client with a coding that is not served."""
    shown = quoted(coding.decode("latin-1"))
    return f"Content-Encoding must be gzip, deflate or identity, got {shown}"
