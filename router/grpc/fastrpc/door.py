"""The REST server, as a connection of HTTP/2 finds it: its limits, its models, its application."""

from email.utils import formatdate
from typing import Final

from router.http.fastpath.edge import FastEdge
from router.http.fastpath.places import RESERVED_PATHS
from router.logs.access import Application

ALL_OPEN: Final = "the server has its limit of {} requests open over HTTP/2 (limits.connection_count)"


class RestDoor:
    """`open`: the requests that have a stream. Over HTTP/1.1 each of them would have a connection, so the
    limits on those bound them, the reserve for probes and operators included."""

    def __init__(self, edge: FastEdge, app: Application) -> None:
        self.edge = edge
        self.app = app
        self.open = 0
        self.date = b""
        self.refresh()

    def refresh(self) -> None:
        """Write the Date of answers again: RFC 9110 wants it good to the second."""
        self.date = formatdate(usegmt=True).encode()

    def fullness(self, target: bytes) -> str:
        """Return why one more request finds no room; "" if it does. The request counts as open already."""
        limits = self.edge.limits
        count = limits.connection_count
        if self.open <= count:
            return ""
        if self.open <= count + limits.reserved_connection_count and RESERVED_PATHS.match(target):
            return ""
        return f"{ALL_OPEN.format(count)}; try again later"
