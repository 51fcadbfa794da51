"""What a service manager such as systemd hears of the gateway (sd_notify(3), `Type=notify`), and the sockets
that it holds for it (sd_listen_fds(3)): a gateway that crashes leaves clients waiting, not refused."""

import os
import socket
from contextlib import suppress
from typing import Final

SOCKET_ENV: Final = "NOTIFY_SOCKET"
HELD_ENV: Final = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")
_FIRST: Final = 3  # SD_LISTEN_FDS_START


def is_there() -> bool:
    """Return whether a service manager listens."""
    return bool(os.environ.get(SOCKET_ENV))


def tell(state: str) -> None:
    """Tell it, such as "READY=1"; nothing if there is none."""
    path = os.environ.get(SOCKET_ENV, "")
    if not path:
        return
    address = "\0" + path[1:] if path.startswith("@") else path
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.sendto(state.encode(), address)


def held_sockets() -> dict[str, socket.socket]:
    """Return the listening sockets that it holds for this process, by the names of its unit files. Call this
    once, before another file is opened."""
    pid, count, names = (os.environ.pop(name, "") for name in HELD_ENV)
    if pid != str(os.getpid()) or not count.isdecimal():
        return {}
    found = {}
    for place, name in enumerate(names.split(":")[: int(count)], _FIRST):
        found[name] = socket.socket(fileno=place)
        found[name].set_inheritable(False)
    return found
