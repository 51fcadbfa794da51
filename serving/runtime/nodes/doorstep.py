"""Callers at a door that have not proved themselves yet: they are few, have little time, are said seldom."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from serving.runtime.clocks.clock import now_us
from serving.runtime.nodes.greeting import NotAdmittedError, admit
from serving.runtime.nodes.notes import Greet, Refused
from serving.runtime.nodes.stream import NoteStream, tune
from serving.worker.frames.wire import ProtocolError

logger = logging.getLogger(__name__)

GREET_S: Final = 5.0
"""What a caller has to prove itself."""
STRANGERS_MAX: Final = 64
"""Callers at a time that have not proved themselves; more are turned away unheard."""
SAID_EVERY_US: Final = 10_000_000
"""Between two lines about strangers."""


class Doorstep:
    """Before one door. `whose`: the door's callers, such as nodes; `key_of`: the key that a caller should
    have, "" for none."""

    def __init__(self, whose: str, key_of: Callable[[Greet], str]) -> None:
        self._whose = whose
        self._key_of = key_of
        self._strangers = 0
        self._turned_away = 0
        self._said_us = -SAID_EVERY_US

    async def greet(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> tuple[NoteStream, Greet, str] | None:
        """Return a caller that has proved itself, with its address; None, and its connection ended, if it has
        not. The caller does not know yet that it is admitted."""
        stream = NoteStream(reader, writer)
        peer = writer.get_extra_info("peername")
        address = f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else "a socket"
        if self._strangers >= STRANGERS_MAX:
            self._turn_away(address, "came while too many others had not proved themselves")
            stream.abort()
            return None
        self._strangers += 1
        try:
            async with asyncio.timeout(GREET_S):
                tune(writer.get_extra_info("socket"))
                return stream, await admit(stream, self._key_of), address
        except TimeoutError:
            self._turn_away(address, f"has not proved itself within {GREET_S:g} s")
        except (NotAdmittedError, ProtocolError, OSError) as error:
            self._turn_away(address, str(error))
            stream.send(Refused(f"does not admit it: {error}"))
        finally:
            self._strangers -= 1
        writer.close()
        return None

    def _turn_away(self, address: str, why: str) -> None:
        self._turned_away += 1
        if (now := now_us()) - self._said_us >= SAID_EVERY_US:
            self._said_us = now
            many = f" ({self._turned_away} callers so far)" if self._turned_away > 1 else ""
            logger.warning("the door for %s turned %s away: it %s%s", self._whose, address, why, many)
