"""HTTP/2 frames by hand (RFC 9113, RFC 7541), for what no client library sends."""

import struct
from collections.abc import Iterator

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, CONTINUATION = 0, 1, 3, 4, 6, 7, 9
END_STREAM, END_HEADERS = 1, 4
ACK = 1

HUFFMAN_STATUS = bytes.fromhex("9acac8b21234da8f")
"""`grpc-status` (RFC 7541, appendix B)."""

Field = tuple[bytes, bytes]


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


def start() -> bytes:
    """Return the first bytes of a client. Its table of header fields is empty (SETTINGS_HEADER_TABLE_SIZE of
    0), so that answers state each field."""
    return PREFACE + frame(SETTINGS, 0, 0, struct.pack(">HI", 1, 0))


def call(stream: int, path: bytes, *more: Field, end: bool = False) -> bytes:
    """Return the head of a gRPC call; `end`: nothing follows."""
    return frame(HEADERS, END_HEADERS | end * END_STREAM, stream, block(path, *more))


def block(path: bytes, *more: Field) -> bytes:
    """Return the fields of a gRPC call's head, as literals."""
    fields = (
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", path),
        (b":authority", b"test"),
        (b"te", b"trailers"),
        (b"content-type", b"application/grpc"),
        *more,
    )
    return b"".join(literal(name, value) for name, value in fields)


def literal(name: bytes, value: bytes, *, kept: bool = False) -> bytes:
    """Return a field that is written out; `kept`: the reader enters it into its table, as the first dynamic
    one."""
    return (b"\x40" if kept else b"\0") + _length(name) + name + _length(value) + value


def _length(text: bytes) -> bytes:
    """Return the length of a text without Huffman's code: seven bits, then seven more in each byte."""
    if len(text) < 127:
        return bytes((len(text),))
    found, rest = bytearray((127,)), len(text) - 127
    while rest > 127:
        found.append(rest & 127 | 128)
        rest >>= 7
    return bytes((*found, rest))


def message(stream: int, body: bytes, *, stated: int | None = None, end: bool = True) -> bytes:
    """Return a gRPC message that states a length, its own by default."""
    length = len(body) if stated is None else stated
    return frame(DATA, end * END_STREAM, stream, b"\0" + struct.pack(">I", length) + body)


def goaway(text: bytes) -> bytes:
    """Return the frame by which the client says that it leaves."""
    return frame(GOAWAY, 0, 0, struct.pack(">II", 0, 2) + text)


def frames(received: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    """Yield the kind, flags, stream and payload of each whole frame."""
    while len(received) >= 9:
        length = int.from_bytes(received[:3], "big")
        if len(received) < 9 + length:
            return
        yield received[3], received[4], int.from_bytes(received[5:9], "big"), received[9 : 9 + length]
        received = received[9 + length :]


UNREAD = -1
"""In place of a status that is in the trailers, and that this file cannot read."""


def status(received: bytes, stream: int) -> int | None:
    """Return the gRPC status of a stream if its trailers came; UNREAD if they name it by a table's entry.

    grpc's core writes the name as a literal, libnghttp2 with Huffman's code.
    """
    for kind, flags, number, payload in frames(received):
        if kind == HEADERS and number == stream and flags & END_STREAM:
            found = payload.partition(b"grpc-status")[2] or payload.partition(HUFFMAN_STATUS)[2]
            return int(found[1 : 1 + found[0]]) if found else UNREAD
    return None
