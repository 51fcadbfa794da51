"""Tells a client that has left from one that has only finished sending.

Both look alike at first: end of input. So the protocol sends an interim answer (`100 Continue`, which
every HTTP/1.1 client must skip): a socket that is closed at the other end replies with a reset, a
half-closed one takes it and waits on. The event loop does not poll a stream that has ended, so the
reset is awaited here, in an epoll set of its own that wakes for nothing else.
"""

import asyncio
import contextlib
import select
from collections.abc import Callable

PROBE = b"HTTP/1.1 100 Continue\r\n\r\n"


class HangupWatch:
    """Calls back once when a watched socket is reset. Belongs to the event loop that it is used on."""

    def __init__(self) -> None:
        self._epoll: select.epoll | None = None
        self._on_reset: dict[int, Callable[[], None]] = {}

    def watch(self, fd: int, on_reset: Callable[[], None]) -> None:
        """Watch a connected socket; forget it before it is closed."""
        if self._epoll is None:
            self._epoll = select.epoll()
            asyncio.get_running_loop().add_reader(self._epoll.fileno(), self._woken)
        with contextlib.suppress(FileNotFoundError):
            self._epoll.unregister(fd)  # an earlier connection may have had the number
        self._epoll.register(fd, 0)  # 0: errors and hang-up, which are always reported, and no others
        self._on_reset[fd] = on_reset

    def forget(self, fd: int, on_reset: Callable[[], None]) -> None:
        """Stop watching, unless the number has passed to another socket since."""
        if self._epoll is not None and self._on_reset.get(fd) == on_reset:
            del self._on_reset[fd]
            with contextlib.suppress(OSError):  # closed already: the kernel has dropped it
                self._epoll.unregister(fd)

    def close(self) -> None:
        if self._epoll is not None:
            asyncio.get_running_loop().remove_reader(self._epoll.fileno())
            self._epoll.close()
            self._epoll = None

    def _woken(self) -> None:
        assert self._epoll is not None  # noqa: S101  # the reader is removed before it is closed
        for fd, _ in self._epoll.poll(0):
            self._epoll.unregister(fd)  # level-triggered: it would wake the loop for ever
            on_reset = self._on_reset.pop(fd, None)
            if on_reset is not None:
                on_reset()
