"""Whether a listener of asyncio still listens; and the file of one that listens on a Unix socket."""

import asyncio
import contextlib
import errno
import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

BACKLOG: Final = 2048
"""Connections that the kernel holds before they are taken."""


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


class Listening:
    """The listening socket of a server on TCP. `inherited`: of the gateway before, for the next start."""

    def __init__(self) -> None:
        self.inherited: socket.socket | None = None
        self._server: asyncio.Server | None = None

    async def open(self, make: Callable[[], asyncio.Protocol], host: str, port: int) -> int:
        """Listen, and return the port. Raises OSError if the address cannot be had."""
        loop = asyncio.get_running_loop()
        given, self.inherited = self.inherited, None
        if given is None:
            self._server = await loop.create_server(make, host, port, backlog=BACKLOG)
        else:
            self._server = await loop.create_server(make, sock=given, backlog=BACKLOG)
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    @property
    def is_open(self) -> bool:
        """Whether the kernel still listens for it."""
        return is_listening(self._server)

    def duplicate(self) -> socket.socket | None:
        """Return the socket once more, for another process; None if there is not exactly one."""
        sockets = () if self._server is None else self._server.sockets
        return socket.socket(fileno=os.dup(sockets[0].fileno())) if len(sockets) == 1 else None

    def close(self) -> asyncio.Server | None:
        """Listen no longer; what was accepted goes on. Return the server that has closed."""
        closed, self._server = self._server, None
        if closed is not None:
            closed.close()
        return closed


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
