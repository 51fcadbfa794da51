"""Where this machine finds a server of its own."""

from typing import Final
from urllib.parse import quote

_EVERYWHERE: Final = ("0.0.0.0", "::", "")
"""A server that listens there is reached at this machine's own address."""


def url_of(host: str, port: int, *, secure: bool = False) -> str:
    """Return the URL of a server that listens there; "" if the port is any free one. `secure`: it speaks
    TLS."""
    if not port:
        return ""
    host = "127.0.0.1" if host in _EVERYWHERE else host
    return f"http{'s' * secure}://{f'[{host}]' if ':' in host else quote(host)}:{port}"
