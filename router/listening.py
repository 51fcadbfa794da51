"""Whether a listener of asyncio still listens."""

import asyncio
import os
import socket


def is_listening(server: asyncio.Server | None) -> bool:
    """Asked of the kernel: uvloop closes a listener whose accept fails, and goes on calling it serving."""
    return server is not None and bool(server.sockets) and all(map(_accepts, server.sockets))


def _accepts(known: socket.socket) -> bool:
    try:
        with socket.socket(fileno=os.dup(known.fileno())) as found:
            same = found.getsockname() == known.getsockname()
            return same and bool(found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
    except OSError:  # the number is no socket's any more
        return False
