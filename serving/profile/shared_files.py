"""Files that several gateways write, perhaps from several machines: no reader sees half a file, and where the
file system has locks no writer undoes what another wrote at the same time."""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from uuid import uuid4

LOCK_NAME: Final = ".lock"
"""A file of its own, as over NFS flock(2) locks only what is open for writing: no folder can be."""

_NO_LOCKS: Final = frozenset((errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP))
"""What flock(2) says on a file system without locks. There the later of two writers counts."""


def replace_file(path: Path, content: str) -> None:
    """The file has this content, in one step. OSError where it cannot be."""
    # A name of its own: writers in containers have the same process id.
    scratch = path.with_suffix(f".{uuid4().hex}.part")
    try:
        scratch.write_text(content)
        scratch.replace(path)
    except OSError:
        scratch.unlink(missing_ok=True)
        raise


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """While no other process or thread is in here for that folder, which exists."""
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
