"""Files in which gateways keep what outlives them, perhaps several of them from several machines.

No reader sees half a file, what is written outlives a power cut, and where the file system has locks no
writer undoes what another wrote at the same time. What lies in the place of a file and is none (a FIFO, a
device) is not read.
"""

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import Final
from uuid import uuid4

LOCK_NAME: Final = ".lock"
"""A file of its own, as over NFS flock(2) locks only what is open for writing: no folder can be."""

_NO_LOCKS: Final = frozenset((errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP))
"""What flock(2) says on a file system without locks. There the later of two writers counts."""


_NO_SYNC: Final = frozenset((errno.EINVAL, errno.ENOTSUP))
"""What fsync(2) says of a folder on a file system that has no such thing."""


def open_regular(path: Path) -> BufferedReader:
    """Return the file, to be read. OSError with its name where it cannot be, or is none: to open a FIFO would
    wait for a writer, to read a device may never end."""
    if not stat.S_ISREG(path.stat().st_mode):  # first: to open a device may do something
        raise _no_file(path)
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):  # replaced meanwhile
        os.close(descriptor)
        raise _no_file(path)
    return open(descriptor, "rb")


def read_regular(path: Path, bytes_max: int = -1) -> bytes:
    """Return the content of the file, at most its first `bytes_max` bytes. Errors as of `open_regular`."""
    with open_regular(path) as file:
        return file.read(bytes_max)


def replace_file(path: Path, content: str | bytes, mode: int = 0o666) -> None:
    """Write the content to the file in one step, so that it is there even after a power cut. `mode`: the
    access to the file, less what the umask takes. Raises OSError with the name of the file if it cannot be
    written: then it is as it was."""
    # A name of its own: writers in containers have the same process id.
    scratch = path.with_name(f".{path.name}.{uuid4().hex}.part")
    try:
        with open(scratch, "xb", opener=partial(os.open, mode=mode)) as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        with suppress(OSError):
            scratch.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error


def sync_folder(folder: Path) -> None:
    """Make renames and deletions in the folder last through a power cut. Raises OSError if that cannot be."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise OSError(error.errno, error.strerror, str(folder)) from error
    finally:
        os.close(descriptor)


def _no_file(path: Path) -> OSError:
    return OSError(errno.EINVAL, "it is no regular file", str(path))


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Keep every other process and thread out of here for that folder, which exists."""
    descriptor = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        _lock(descriptor)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
