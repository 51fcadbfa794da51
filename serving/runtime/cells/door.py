"""The door of a cell: other gateways call here what their clients asked for, and this gateway answers it."""

import asyncio
import logging
import ssl
from typing import Any  # Any: what uvloop declares otherwise than asyncio

from serving.ports import Serving
from serving.runtime.cells.answering import Answering
from serving.runtime.cells.connection import hand_over
from serving.runtime.cells.spec import CellsSpec
from serving.runtime.nodes.doorstep import Doorstep
from serving.runtime.nodes.notes import CELL, Greet
from serving.runtime.nodes.stream import READ_BYTES

logger = logging.getLogger(__name__)


class CellDoor:
    """Listens for other cells. `serving`: what answers their calls; it passes none of them on."""

    def __init__(self, spec: CellsSpec, serving: Serving) -> None:
        self._spec = spec
        self._serving = serving
        self._server: asyncio.Server | None = None
        self._doorstep = Doorstep("cells", self._key_of)
        self._callers: set[Answering] = set()

    async def start(self, context: ssl.SSLContext | None) -> int:
        """Listen, and return the port. Raises OSError if that cannot be. `context`: None for no TLS."""
        spec = self._spec
        self._server = await asyncio.start_server(
            self._call, spec.host, spec.port, limit=READ_BYTES, ssl=context
        )
        sockets: Any = self._server.sockets  # a tuple, or a list of uvloop's
        return int(sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Listen no longer, and end all connections."""
        if self._server is not None:
            self._server.close()
        for each in [*self._callers]:
            each.abort("was let go: the gateway has ended")

    @property
    def open(self) -> int:
        """The calls of other cells that are under way here."""
        return sum(len(each.under_way) for each in self._callers)

    async def _call(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        greeted = await self._doorstep.greet(reader, writer)
        if greeted is not None:
            stream, greet, address = greeted
            logger.info("cell %s calls from %s", greet.name, address)
            answers = Answering(self._serving, greet.name, self._callers.discard)
            self._callers.add(answers)
            hand_over(stream, answers, admit=True)

    def _key_of(self, greet: Greet) -> str:
        return self._spec.token if greet.role == CELL else ""
