"""Which nodes a gateway needs, as its door says each second: heard in a thread, for an engine that waits."""

import asyncio
import logging
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from serving.runtime.nodes.dialing import Gateway, call_as_engine
from serving.runtime.nodes.greeting import NotAdmittedError
from serving.runtime.nodes.notes import Needed
from serving.worker.frames.wire import ProtocolError

logger = logging.getLogger(__name__)

SILENCE_S: Final = 10.0
"""A gateway that says nothing for so long is lost: it says each second what it needs."""
WAIT_S: Final = 1.0
"""Between two calls."""


class NeededNodes:
    """What one of these gateways says. `names`: the last word, None before the first; `refused`: why none of
    them will ever say so."""

    def __init__(self, gateways: Sequence[Gateway], engine: str, token: str) -> None:
        self.names: frozenset[str] | None = None
        self.refused = ""
        self._gateways = gateways
        self._engine = engine
        self._token = token
        self._loop = asyncio.new_event_loop()
        self._task = self._loop.create_task(self._run())
        self._thread = threading.Thread(target=self._listen, daemon=True)

    def begin(self) -> None:
        """Listen until `end`, or until the process ends."""
        self._thread.start()

    def end(self) -> None:
        """Listen no longer."""
        with suppress(RuntimeError):  # it has ended by itself
            self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join()

    def _listen(self) -> None:
        with suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._task)
        self._loop.close()

    async def _run(self) -> None:
        at, said = 0, ""
        while True:
            gateway = self._gateways[at % len(self._gateways)]
            try:
                await self._hear(gateway)
            except (OSError, ProtocolError, NotAdmittedError) as error:
                why = f"{gateway}: {error or type(error).__name__}"
                if isinstance(error, NotAdmittedError) and self.names is None and len(self._gateways) == 1:
                    self.refused = why
                    return
                if why != said:
                    logger.warning("%s; it is called each second", why)
                said = why
            at += 1
            await asyncio.sleep(WAIT_S)

    async def _hear(self, gateway: Gateway) -> None:
        stream = await call_as_engine(gateway, self._engine, self._token)
        try:
            logger.info("%s says which nodes it needs", gateway)
            while True:
                async with asyncio.timeout(SILENCE_S):
                    self.names = frozenset((await stream.expect(Needed)).nodes)
        finally:
            stream.abort()
