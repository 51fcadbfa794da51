"""Whether a listener of asyncio still listens; and the file of one that listens on a Unix socket."""

import asyncio
import contextlib
import errno
import os
import socket
import stat
from pathlib import Path


def is_listening(server: asyncio.Server | None) -> bool:
    """Return whether the kernel still listens for the server. uvloop closes a listener that fails to accept,
    and goes on calling it serving."""
    return server is not None and bool(server.sockets) and all(map(_accepts, server.sockets))


def _accepts(known: socket.socket) -> bool:
    try:
        with socket.socket(fileno=os.dup(known.fileno())) as found:
            same = found.getsockname() == known.getsockname()
            return same and bool(found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
    except OSError:  # the number is no socket's any more
        return False


class SocketFile:
    """The file of a Unix socket. Only processes of the same user (and of root) may connect to it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._made: tuple[int, int, int] | None = None

    @property
    def is_there(self) -> bool:
        """Whether the file is still the one that `bind` made: clients find no other."""
        return self._made is not None and self._made == _identity(self.path)

    def bind(self) -> socket.socket:
        """Return the socket, which does not listen yet. A file that an ended process has left is replaced.

        OSError where another process listens there, or the file is no socket, or cannot be made.
        """
        found = socket.socket(socket.AF_UNIX)
        try:
            try:
                found.bind(os.fspath(self.path))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                _remove_stale(self.path)
                found.bind(os.fspath(self.path))
            os.chmod(self.path, 0o600)  # no client can connect before it listens
        except OSError:
            found.close()
            raise
        self._made = _identity(self.path)
        return found

    def remove(self) -> None:
        """Remove the socket file, unless another process has its own file there by now."""
        if self.is_there:
            with contextlib.suppress(FileNotFoundError):
                self.path.unlink()
        self._made = None


def _identity(path: Path) -> tuple[int, int, int] | None:
    """Return the file's device, inode and modification time; None if the file cannot be read.

    A new file may have the inode of a deleted file, so the inode alone is not enough. A change of mode or
    owner changes none of these, nor does a caller.
    """
    try:
        about = path.lstat()
    except OSError:
        return None
    return about.st_dev, about.st_ino, about.st_mtime_ns


def _remove_stale(path: Path) -> None:
    """Remove a socket file that no process listens on. Raises OSError if the file is in use, or is no
    socket."""
    if not stat.S_ISSOCK(path.lstat().st_mode):
        raise OSError(errno.EEXIST, "there is a file that is no socket")
    with socket.socket(socket.AF_UNIX) as caller:
        caller.setblocking(False)  # a listener with a full queue counts, too
        if caller.connect_ex(os.fspath(path)) != errno.ECONNREFUSED:
            raise OSError(errno.EADDRINUSE, "another process listens there")
    path.unlink()
