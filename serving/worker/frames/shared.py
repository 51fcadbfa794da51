"""Shared memory for payloads too large for the socket: two memfds a worker, one each way.

Each area has one writer and carries one batch at a time; the frames on the socket are the doorbell.
The area is sealed against shrinking: a worker gone mad can fill it with nonsense, but no access of
the gateway can fault.
"""

import fcntl
import mmap
import os
from collections.abc import Iterator, Sequence
from typing import Final, cast

from serving.values.tensor import Buffer
from serving.worker.frames.wire import ProtocolError

SHARED_BYTES_MAX: Final = 256 << 20
"""What an area may grow to, and so the memory that one huge batch leaves behind; beyond it the
payload goes over the socket, slower."""

PORTION_BYTES: Final = 1 << 20
"""What is copied at once, in 0.5 ms where the pages are new: an event loop serves others in between."""

_FIRST_BYTES = 1 << 20
_UNMAPPED_BYTES = 4 << 20
_IOV_MAX = 1024  # limits.h
_ADD_SEALS, _SEAL_SHRINK = 1033, 2  # linux/fcntl.h: F_ADD_SEALS, F_SEAL_SHRINK


class SharedArea:
    """A memfd: its writer grows it, its reader maps it, anew where it grew.

    Views of an old mapping stay valid until they are dropped: growing never pulls memory away.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._bytes = os.fstat(fd).st_size
        self._map: mmap.mmap | None = None

    @classmethod
    def create(cls, name: str) -> "SharedArea":
        """Return a new area; `name` shows in /proc/PID/maps."""
        fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        fcntl.fcntl(fd, _ADD_SEALS, _SEAL_SHRINK)
        os.ftruncate(fd, _FIRST_BYTES)
        return cls(fd)

    def write(self, buffers: Sequence[Buffer], count: int) -> None:
        """Lay the buffers, `count` bytes together, one behind the other from the start.

        OSError where there is no memory for them: the reason not to write through a mapping, where
        that is a signal.
        """
        for _ in self.writing(buffers, count):
            pass

    def writing(self, buffers: Sequence[Buffer], count: int) -> Iterator[int]:
        """Write as `write` does, a portion at each step; yield how many bytes are there while more are to
        come."""
        if count > self._bytes:
            self._bytes = 1 << (count - 1).bit_length()  # by doubling, so that the reader seldom maps anew
            os.ftruncate(self.fd, self._bytes)
        position = 0
        for portion in portions(buffers):
            if position:
                yield position
            end = position + sum(map(len, portion))
            position += os.pwritev(self.fd, portion, position)
            if position < end:
                raise OSError(f"{position} of {count} bytes fit into shared memory")

    def read(self, count: int) -> memoryview:
        """Return the first `count` bytes as the writer left them; ProtocolError where the area is smaller."""
        if self._map is None or count > len(self._map):
            self._bytes = min(os.fstat(self.fd).st_size, SHARED_BYTES_MAX)
            if count > self._bytes:
                raise ProtocolError(f"refers to {count} bytes of shared memory, there are {self._bytes}")
            self._map = mmap.mmap(self.fd, self._bytes)
        return memoryview(self._map)[:count]

    @property
    def mapping(self) -> mmap.mmap | None:
        """What its reader has mapped; another one once it has grown."""
        return self._map

    def close(self) -> None:
        """Let go of the descriptor; a mapping goes with its last view.

        256 MB of pages take 40 ms to unmap and free, so this is for a thread: pages are unmapped a portion at
        a time, and freed with the descriptor, where Python holds no lock.
        """
        mapping, self._map = self._map, None
        for at in range(0, 0 if mapping is None else len(mapping), _UNMAPPED_BYTES):
            cast(mmap.mmap, mapping).madvise(mmap.MADV_DONTNEED, at, _UNMAPPED_BYTES)
        del mapping
        os.close(self.fd)


def portions(buffers: Sequence[Buffer]) -> Iterator[list[memoryview]]:
    """Yield the same bytes as lists of views, each of at most PORTION_BYTES, and short enough for a system
    call."""
    found: list[memoryview] = []
    room = PORTION_BYTES
    for buffer in buffers:
        rest = memoryview(buffer)
        while len(rest) > room or len(found) == _IOV_MAX:
            if room and len(found) < _IOV_MAX:
                found.append(rest[:room])
                rest = rest[room:]
            yield found
            found, room = [], PORTION_BYTES
        found.append(rest)
        room -= len(rest)
    if found:
        yield found
