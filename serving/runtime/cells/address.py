"""Where other machines reach this one, as far as it can tell by itself."""

import socket
from typing import Final
from urllib.parse import urlsplit

ANYWHERE: Final = ("0.0.0.0", "::", "")
"""Addresses by which a door listens on all of a machine's, and that lead nowhere from another machine."""
REDIS_PORT: Final = 6379


def own_host(redis_url: str) -> str:
    """Return the address with which this machine goes to Redis, else the address of its own name.

    Raises OSError if it has neither. It may ask a name server, and so take a while.
    """
    url = urlsplit(redis_url)
    if url.hostname:
        for family, kind, number, _, where in _addresses(url.hostname, url.port or REDIS_PORT):
            with socket.socket(family, kind, number) as sock:
                sock.connect(where)  # a datagram's socket sends nothing by that
                return str(sock.getsockname()[0])
    return socket.gethostbyname(socket.gethostname())


def _addresses(host: str, port: int) -> list[tuple[int, int, int, str, tuple[object, ...]]]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    except OSError:
        return []
    return [(int(family), int(kind), number, name, where) for family, kind, number, name, where in found]
