"""What a service manager such as systemd hears of the gateway (sd_notify(3), `Type=notify`)."""

import os
import socket
from contextlib import suppress
from typing import Final

SOCKET_ENV: Final = "NOTIFY_SOCKET"


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
