"""Every edge is watched: one that ends by itself is started again, and if it cannot be, the gateway ends."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Final, Protocol

from router.listening import Listening
from router.logs.logs import Seldom

logger = logging.getLogger(__name__)

LOOK_S: Final = 0.25
"""Between two looks. gRPC reports its end at once."""

PAUSES_S: Final = (0.0, 0.01, 0.02, 0.04, 0.08, 0.15, 0.3, 0.4)
"""Before each attempt to start again, one second in all. The kernel gives a port back at once, unless another
process takes it."""


class Listener(Protocol):
    """A server on a port."""

    @property
    def listening(self) -> bool:
        """Whether clients are let in."""
        ...

    @property
    def tcp(self) -> Listening | None:
        """What another gateway can get to listen on."""
        ...

    async def again(self) -> None:
        """Listen on the same port again. OSError where that cannot be."""
        ...


class Edges:
    """The edges of a gateway by name, and how often each was started again."""

    def __init__(self, edges: Mapping[str, Listener]) -> None:
        self._edges = edges
        self._ended = asyncio.Event()
        self._says = {name: Seldom(logger) for name in edges}
        self.restarts = dict.fromkeys(edges, 0)
        self.why_dead = ""  # which edge could not be started again, and why not

    def look(self) -> None:
        """Check now whether an edge has ended."""
        self._ended.set()

    def states(self) -> dict[str, tuple[bool, int]]:
        """Return for each edge, by name, whether it listens and how often it was started again."""
        return {name: (edge.listening, self.restarts[name]) for name, edge in self._edges.items()}

    @property
    def sockets(self) -> dict[str, Listening]:
        """What the edges listen on, by their names, as far as another gateway can get it."""
        return {name: edge.tcp for name, edge in self._edges.items() if edge.tcp is not None}

    async def run(self) -> None:
        """Watch, from when all listen; returns once an edge could not be started again."""
        while True:
            for name, edge in self._edges.items():
                if not edge.listening:
                    await self._start_again(name, edge)
            if self.why_dead:
                return
            self._ended.clear()
            waiting = asyncio.ensure_future(self._ended.wait())
            try:
                await asyncio.wait((waiting,), timeout=LOOK_S)
            finally:
                waiting.cancel()

    async def _start_again(self, name: str, edge: Listener) -> None:
        fault = ""
        for pause_s in PAUSES_S:
            await asyncio.sleep(pause_s)
            try:
                await edge.again()
            except OSError as error:
                fault = str(error)
            else:
                self.restarts[name] += 1
                self._says[name].warning(f"the {name} edge had ended by itself and was started again")
                return
        sentence = f"the {name} edge has ended and cannot be started again: {fault}"
        logger.error("%s; penstock ends", sentence)
        self.why_dead = sentence
