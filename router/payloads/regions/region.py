"""One region: a file under /dev/shm that a client has made, and a part of it.

The gateway reads and writes the file by system calls and never maps it. A client may cut its file short at
any moment: a mapping would then end the process by SIGBUS, and a system call says it by its return value.
"""

import os
import stat
import weakref
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from router.tensors.parts.errors import RequestError, bad_input
from router.tensors.parts.places import Place
from router.tensors.parts.wording import quoted
from serving.values.tensor import Tensor
from serving.worker.frames.shared import PORTION_BYTES

FOLDER: Final = "/dev/shm"  # noqa: S108  # where shm_open has its files (shm_overview(7))
KEY_BYTES_MAX: Final = 255  # NAME_MAX

OTHERS: Final = (
    "sem.",
    "__KMP_REGISTERED_LIB_",
    "torch_",
    "nccl-",
    "cuda.",
    "triton_python_backend_shm_region_",
)
"""Names begin so of files there that no client of ours makes: semaphores of glibc, and what OpenMP, PyTorch,
NCCL, CUDA and Triton's workers keep. A write to one could end a worker."""


class KeyRefusedError(Exception):
    """A key names no file that can be a region; the text says why."""


class OpenFile(NamedTuple):
    """An open file of a region: `identity` is of the file, whatever it is called; `size` is in bytes."""

    fd: int
    identity: tuple[int, int]
    size: int


def file_name(key: str) -> str:
    """Return the file that shm_open has for a key, without its folder. Raises KeyRefusedError for what is no
    plain name."""
    name = key.removeprefix("/")
    if not name or name in (".", "..") or "/" in name or "\0" in name:
        raise KeyRefusedError("a key is one name, such as '/my_inputs', without another '/'")
    try:
        length = len(name.encode())
    except UnicodeEncodeError:
        raise KeyRefusedError("a key is text in UTF-8") from None
    if length > KEY_BYTES_MAX:
        raise KeyRefusedError(f"a key has at most {KEY_BYTES_MAX} bytes")
    if name.startswith(OTHERS):
        raise KeyRefusedError("other libraries keep their own files under such names; choose another name")
    return name


def open_file(key: str) -> OpenFile:
    """Open the file of a key for reading and writing. Raises KeyRefusedError."""
    name = file_name(key)
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
    try:
        folder = os.stat(FOLDER)
        fd = os.open(f"{FOLDER}/{name}", flags)
    except OSError as error:
        raise KeyRefusedError(
            f"there is no file that the gateway can read and write: {error.strerror}"
        ) from None
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode) or found.st_dev != folder.st_dev:
        os.close(fd)
        raise KeyRefusedError("the key is no plain file of shared memory")
    return OpenFile(fd, (found.st_dev, found.st_ino), found.st_size)


class Region:
    """Bytes `offset` to `offset + byte_size` of an open file. The file is closed when nothing refers to the
    region any more: a request that is under way may outlive the registration."""

    __slots__ = ("__weakref__", "_fd", "byte_size", "identity", "key", "name", "offset")

    def __init__(self, name: str, key: str, file: OpenFile, offset: int, byte_size: int) -> None:
        self.name = name
        self.key = key
        self.offset = offset
        self.byte_size = byte_size
        self.identity = file.identity
        self._fd = file.fd
        weakref.finalize(self, os.close, file.fd)

    def start_of(self, place: Place) -> int:
        """Return where in the file the place begins. Raises RequestError unless all of it is in the region,
        and in the file as it is now."""
        if place.offset > self.byte_size:
            raise bad_input(
                f"Invalid offset for shared memory region: {quoted(self.name)} has {self.byte_size} bytes, "
                f"got offset {place.offset}"
            )
        if place.offset + place.size > self.byte_size:
            raise bad_input(
                f"Invalid offset + byte size for shared memory region: {quoted(self.name)} has "
                f"{self.byte_size} bytes, got offset {place.offset} and {place.size} bytes"
            )
        start = self.offset + place.offset
        if os.fstat(self._fd).st_size < start + place.size:
            raise self._cut_short()
        return start

    def read(self, start: int, size: int) -> bytes:
        """Return a copy of `size` bytes of the file."""
        data = self._pread(start, size)
        if len(data) != size:
            raise self._cut_short()
        return data

    def reading(self, start: int, target: memoryview) -> Iterator[int]:
        """Fill the target from the file, a portion at each step; yield how many bytes are there."""
        done = 0
        while done < len(target):
            portion = target[done : done + PORTION_BYTES]
            if self._preadv(portion, start + done) != len(portion):
                raise self._cut_short()
            done += len(portion)
            yield done

    def writing(self, start: int, data: memoryview) -> Iterator[int]:
        """Write the data into the file, a portion at each step; yield how many bytes are there."""
        if os.fstat(self._fd).st_size < start + len(data):
            raise self._cut_short()
        done = 0
        while done < len(data):
            try:
                done += os.pwrite(self._fd, data[done : done + PORTION_BYTES], start + done)
            except OSError as error:
                raise self._unusable(error) from None
            yield done

    def _pread(self, start: int, size: int) -> bytes:
        try:
            return os.pread(self._fd, size, start)
        except OSError as error:
            raise self._unusable(error) from None

    def _preadv(self, target: memoryview, start: int) -> int:
        try:
            return os.preadv(self._fd, [target], start)
        except OSError as error:
            raise self._unusable(error) from None

    def _cut_short(self) -> RequestError:
        return bad_input(
            f"shared memory region {quoted(self.name)}: its file is shorter than when it was registered; "
            "register it again"
        )

    def _unusable(self, error: OSError) -> RequestError:
        return bad_input(f"shared memory region {quoted(self.name)} cannot be used: {error.strerror}")


class Aimed:
    """The place of an output in a region (`router.tensors.parts.places.Target`)."""

    __slots__ = ("_place", "_region", "start")

    def __init__(self, region: Region, place: Place) -> None:
        self._region = region
        self._place = place
        self.start = region.start_of(place)

    @property
    def span(self) -> tuple[object, int, int]:
        """Its file, its first byte and its end there."""
        return self._region.identity, self.start, self.start + self._place.size

    def check(self, tensor: Tensor) -> None:
        """Raise RequestError if the place is too small for the tensor, as Triton says it."""
        size = len(tensor.data)
        if size > self._place.size:
            raise bad_input(
                f"shared memory size specified with the request for output '{tensor.name}' "
                f"({self._place.size} bytes) should be at least {size} bytes to hold the results"
            )

    def writing(self, data: bytes | bytearray | memoryview) -> Iterator[int]:
        """See `router.tensors.parts.places.Target`."""
        return self._region.writing(self.start, memoryview(data))


def clashing(aims: Sequence[Aimed]) -> bool:
    """Return whether two of the places have a byte in common."""
    filled = [span for span in (each.span for each in aims) if span[1] < span[2]]
    ordered = sorted(filled, key=lambda span: (repr(span[0]), span[1]))
    return any(before[0] == after[0] and before[2] > after[1] for before, after in pairwise(ordered))
