"""Frames between the gateway and a worker: a fixed header, metadata, raw tensor bytes; no pickle.

The same bytes fit a Unix socket and TCP: nothing in a frame refers to the transport, except that a
RUN or RESULT may say "the payload lies in shared memory" (`shared.py`) where the worker's HELLO
said that it has it. Nothing here does I/O: both sides feed `FrameBuffer` what they received.

    gateway -> worker   LOAD UNLOAD RUN MEASURE LEAVE; LAST asks it to finish what it has and exit, an end
                        of file without it says that the gateway is gone
    worker -> gateway   HELLO LOADED LOAD_FAILED UNLOADED RESULT FAILED MEASURED RAISED ROW
    gateway <-> node    NOTE (`serving/runtime/nodes/notes.py`)
    gateway <-> cell    CALL REPLY PART CANCEL NOTE (`serving/runtime/cells/messages.py`)
"""

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from serving.values.tensor import Buffer

VERSION: Final = 8
MAGIC: Final = b"Pk"
HEADER: Final = struct.Struct("<2sBBIQ")
"""Magic, version, kind, metadata bytes, payload bytes that follow on the stream."""

PAYLOAD_BYTES_MAX: Final = 1 << 30
"""Largest payload of one batch; a larger one is refused before it is sent, a longer claim is garbage."""

META_BYTES_MAX: Final = 16 << 20
"""Largest metadata: row lengths of BYTES outputs (4 bytes a row) and LOAD's JSON stay far below."""

INLINE_BYTES_MAX: Final = 128 << 10
"""Payloads of a batch up to this go over the socket, larger ones through shared memory (`shared.py`).

Measured by `python -m loadtests.core.ipc` on 2 cores of a Zen 4 VM, three runs, with a model that reads all
of its input; CPU of gateway and worker together, socket against shared: at 128 KiB 187 and 193 us in, 172 and
161 us out (means; either way won runs); at 256 KiB 218 and 194 in, 212 and 187 out, shared in every run.
"""

BUFFER_BYTES: Final = 2 * INLINE_BYTES_MAX
"""Receive buffer of each side: a whole inline batch with its metadata. For a larger frame it doubles as the
bytes come, however long the frame claims to be."""

KEPT_BYTES: Final = 8 << 20
"""A larger buffer than this is dropped after its frame. The C library gives such memory back to the kernel,
and every page of the next one faults: an answer of 1 MB took 1.4 ms of the gateway's CPU in place of 0.2 ms
(`python -m loadtests.core.ipc`)."""

_ALIGNMENT = 16  # metadata is padded to it, so that the payload of a frame read alone is aligned


class ProtocolError(Exception):
    """The other side sent what no correct peer sends; the text says what, for the operator."""


class FrameKind(IntEnum):
    """What a frame says; the numbers are the wire's."""

    HELLO = 1
    LOAD = 2
    LOADED = 3
    LOAD_FAILED = 4
    UNLOAD = 5
    RUN = 6
    RESULT = 7
    FAILED = 8
    MEASURE = 9
    MEASURED = 10
    UNLOADED = 11
    RAISED = 12
    ROW = 13
    LEAVE = 14
    LAST = 15
    NOTE = 16
    CALL = 17
    REPLY = 18
    PART = 19
    CANCEL = 20


_KINDS = {kind.value: kind for kind in FrameKind}


class Frame(NamedTuple):
    """One frame; both views lie in the receive buffer and die with the next `FrameBuffer.space`."""

    kind: FrameKind
    meta: memoryview
    payload: memoryview


def pack_frame(kind: FrameKind, meta: Buffer, payload_bytes: int = 0) -> bytes:
    """Return the header and metadata of a frame; the caller sends `payload_bytes` of payload right behind
    it."""
    padding = -len(meta) % _ALIGNMENT
    head = HEADER.pack(MAGIC, VERSION, kind, len(meta) + padding, payload_bytes)
    return b"".join((head, meta, bytes(padding)))


class FrameBuffer:
    """Bytes in as they arrive, whole frames out, through one reusable buffer.

    Receive into `space()`, say how much with `filled()`, then take frames with `next()` until None.
    """

    __slots__ = ("_end", "_needed", "_start", "_view")

    def __init__(self) -> None:
        self._view = memoryview(bytearray(BUFFER_BYTES))
        self._start = 0  # of the first byte not yet given out
        self._end = 0
        self._needed = HEADER.size  # bytes of the frame that starts at _start, as far as known

    def space(self) -> memoryview:
        """Return where to receive to, never empty; frames given out before are void from here on."""
        view, waiting = self._view, self._end - self._start
        full = self._needed > len(view) and waiting == len(view)
        if full or (len(view) > KEPT_BYTES and waiting == 0):
            view = memoryview(bytearray(max(min(self._needed, 2 * waiting), BUFFER_BYTES)))
            view[:waiting] = self._view[self._start : self._end]
            self._view = view
        elif waiting and self._start:
            view[:waiting] = view[self._start : self._end]
        self._start, self._end = 0, waiting
        return view[waiting:]

    def filled(self, count: int) -> None:
        """Note that `count` bytes were received into `space()`."""
        self._end += count

    def next(self) -> Frame | None:
        """Return the next whole frame, or None until more bytes come; ProtocolError where they are
        garbage."""
        start, waiting = self._start, self._end - self._start
        self._needed = HEADER.size
        if waiting < HEADER.size:
            return None
        magic, version, code, meta_bytes, payload_bytes = HEADER.unpack_from(self._view, start)
        if magic != MAGIC:
            raise ProtocolError(f"a frame starts with {bytes(magic)!r}, expected {MAGIC!r}")
        if version != VERSION:
            raise ProtocolError(f"speaks wire version {version}, this side speaks {VERSION}")
        kind = _KINDS.get(code)
        if kind is None:
            raise ProtocolError(f"a frame has the unknown kind {code}")
        if meta_bytes > META_BYTES_MAX or payload_bytes > PAYLOAD_BYTES_MAX:
            raise ProtocolError(
                f"a {kind.name} frame claims {meta_bytes} bytes of metadata and {payload_bytes} of payload,"
                f" at most {META_BYTES_MAX} and {PAYLOAD_BYTES_MAX} are allowed"
            )
        middle = start + HEADER.size + meta_bytes
        end = middle + payload_bytes
        if end > self._end:
            self._needed = end - start
            return None
        self._start = end
        return Frame(kind, self._view[start + HEADER.size : middle], self._view[middle:end])


def gather_bytes(buffers: Sequence[Buffer]) -> int:
    """Return the bytes of all buffers together; they are one-dimensional views of single bytes."""
    return sum(map(len, buffers))
