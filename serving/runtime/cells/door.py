"""The door of a cell: other gateways call here what their clients asked for, and this gateway answers it."""

import asyncio
import logging
import ssl
from typing import Any, Final  # Any: what uvloop declares otherwise than asyncio

from serving.ports import Serving
from serving.runtime.cells.answering import Answering
from serving.runtime.cells.connection import hand_over
from serving.runtime.cells.spec import CellsSpec
from serving.runtime.nodes.greeting import NotAdmittedError, admit
from serving.runtime.nodes.notes import CELL, Greet, Refused
from serving.runtime.nodes.stream import READ_BYTES, NoteStream, tune
from serving.worker.frames.wire import ProtocolError

logger = logging.getLogger(__name__)

GREET_S: Final = 5.0
"""What a caller has to prove itself."""
STRANGERS_MAX: Final = 64
"""Callers at a time that have not proved themselves; more are turned away unheard."""


class CellDoor:
    """Listens for other cells. `serving`: what answers their calls; it passes none of them on."""

    def __init__(self, spec: CellsSpec, serving: Serving) -> None:
        self._spec = spec
        self._serving = serving
        self._server: asyncio.Server | None = None
        self._strangers = 0
        self._callers: set[Answering] = set()
        self._said: set[str] = set()

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
        stream = NoteStream(reader, writer)
        peer = writer.get_extra_info("peername")
        address = f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else "a socket"
        if self._strangers >= STRANGERS_MAX:
            stream.abort()
            return
        self._strangers += 1
        try:
            async with asyncio.timeout(GREET_S):
                tune(writer.get_extra_info("socket"))
                greet = await admit(stream, self._key_of)
        except TimeoutError:
            self._turn_away(address, f"has not proved itself within {GREET_S:g} s")
            stream.abort()
        except (NotAdmittedError, ProtocolError, OSError) as error:
            self._turn_away(address, str(error))
            stream.send(Refused(f"does not admit it: {error}"))
            writer.close()
        else:
            logger.info("cell %s calls from %s", greet.name, address)
            answers = Answering(self._serving, greet.name, self._callers.discard)
            self._callers.add(answers)
            hand_over(stream, answers, admit=True)
        finally:
            self._strangers -= 1

    def _key_of(self, greet: Greet) -> str:
        return self._spec.token if greet.role == CELL else ""

    def _turn_away(self, address: str, why: str) -> None:
        host = address.rpartition(":")[0]
        if host not in self._said and len(self._said) < STRANGERS_MAX:
            self._said.add(host)
            logger.warning("the door for cells turned %s away: it %s", address, why)
