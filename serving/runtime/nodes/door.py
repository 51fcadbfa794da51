"""The gateway's door for nodes and their workers: whoever proves that it has the key is let in."""

import asyncio
import logging
import ssl
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, cast

from serving.runtime.nodes.doorstep import GREET_S, Doorstep
from serving.runtime.nodes.far import FarWorkers
from serving.runtime.nodes.farlink import FarLink
from serving.runtime.nodes.notes import ENGINE, NODE, Admitted, Greet, Join, Needed, Refused, Welcome
from serving.runtime.nodes.session import PING_S, NodeSession
from serving.runtime.nodes.stream import READ_BYTES, NoteStream
from serving.runtime.workers.contract import WorkerLog
from serving.values.nodes import NodesSpec
from serving.values.slice_specs import WorkersSpec
from serving.worker.frames.wire import ProtocolError

logger = logging.getLogger(__name__)

NAME_CHARS_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """What is known of a node. `since_us`: when it joined, 0 where it is not there."""

    name: str
    address: str = ""
    kind: str = ""
    cores: int = 0
    gpus: tuple[str, ...] = ()
    since_us: int = 0
    trip_us: int = 0
    lost: str = "has not joined"


class Door:
    """Listens for nodes, and hands their workers' connections to the links that wait for them."""

    def __init__(
        self, spec: NodesSpec, far: FarWorkers, workers: WorkersSpec, log: WorkerLog, release: str
    ) -> None:
        """`workers`: what each worker is given and held to. `release`: of this Penstock."""
        self._spec = spec
        self._far = far
        self._workers = workers
        self._log = log
        self._release = release
        self._server: asyncio.Server | None = None
        self._doorstep = Doorstep("nodes", self._key_of)
        self._lost: dict[str, str] = {}  # why nodes are not there
        self._engines: set[NoteStream] = set()
        self.needed: Callable[[], Collection[str]] = tuple  # the nodes that the gateway has a use for

    async def start(self, context: ssl.SSLContext | None = None) -> int:
        """Listen, and return the port. Raises OSError if that cannot be. `context`: None for no TLS."""
        spec = self._spec
        self._server = await asyncio.start_server(
            self._call, spec.host, spec.port, limit=READ_BYTES, ssl=context
        )
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def close(self) -> None:
        """Listen no longer, and let all nodes go."""
        if self._server is not None:
            self._server.close()
        for session in [*self._far.sessions.values()]:
            session.abort("was let go: the gateway has ended")
        for stream in self._engines:
            stream.abort()

    def describe(self) -> list[NodeStatus]:
        """Return what is known of each node that slices name, and of each that is there."""
        there = self._far.sessions
        names = dict.fromkeys((*self._spec.names, *self._far.nodes, *there))
        absent = {name: self._lost.get(name, "has not joined") for name in names if name not in there}
        return [
            NodeStatus(name, lost=absent[name]) if name in absent else _status(there[name]) for name in names
        ]

    async def _call(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one caller from its first byte on."""
        greeted = await self._doorstep.greet(reader, writer)
        if greeted is not None:
            await self._admitted(*greeted)

    def _key_of(self, greet: Greet) -> str:
        return self._spec.token if greet.role in (NODE, ENGINE) else self._far.key_of(greet.name)

    async def _admitted(self, stream: NoteStream, greet: Greet, address: str) -> None:
        if greet.role == ENGINE:
            await self._inform(stream, greet.name, address)
            return
        if greet.role != NODE:
            link = self._far.called(greet.name)
            if link is None:
                stream.abort()
            else:
                _hand_over(stream, link)
            return
        stream.send(Admitted())
        try:
            async with asyncio.timeout(GREET_S):
                join = await stream.expect(Join)
        except (TimeoutError, ProtocolError, OSError):
            stream.abort()
            return
        if refusal := self._refusal(greet.name, join):
            logger.warning("node %s at %s is not admitted: it %s", greet.name, address, refusal)
            # A machine that crashed may call again before the door knows that it was lost.
            stream.send(Refused(f"does not admit it: it {refusal}", again=greet.name in self._far.sessions))
            stream.writer.close()
            return
        await self._serve(NodeSession(greet.name, join, stream, address, self._log))

    async def _inform(self, stream: NoteStream, engine: str, address: str) -> None:
        """Tell an engine each second which nodes are needed, until it ends."""
        stream.send(Admitted())
        logger.info("%s at %s brings the nodes that are needed", engine, address)
        ended = asyncio.create_task(stream.read_raw())  # an engine says nothing
        self._engines.add(stream)
        try:
            while not ended.done():
                stream.send(Needed(tuple(sorted(self.needed()))))
                await asyncio.wait([ended], timeout=PING_S)
        finally:
            self._engines.discard(stream)
            ended.cancel()
            stream.abort()
        with suppress(OSError):
            await ended
        logger.warning("%s at %s brings nodes no more", engine, address)

    def _refusal(self, name: str, join: Join) -> str:
        if not name.isprintable() or not 0 < len(name) <= NAME_CHARS_MAX:
            return "has a name that cannot be printed"
        if (there := self._far.sessions.get(name)) is not None:
            return f"has the name of a node that is here, from {there.address}"
        if join.release != self._release:
            return f"has Penstock {join.release}, and the gateway has {self._release}"
        return ""

    async def _serve(self, session: NodeSession) -> None:
        name = session.name
        slices = self._far.slices_of(name)
        session.send(Welcome(self._workers, slices))
        logger.info(
            "node %s has joined from %s: %d cores of %s%s", name, session.address, session.join.cores,
            session.join.kind, "" if name in self._spec.names else "; no slice names it",
        )  # fmt: skip
        self._far.joined(session)
        reason = self._lost[name] = await session.run(self._leaving)
        logger.warning("node %s %s", name, reason)
        self._far.lost(session, reason)

    def _leaving(self, session: NodeSession) -> None:
        logger.info("node %s %s", session.name, session.leaving)
        self._far.leaving(session)


def _hand_over(stream: NoteStream, link: FarLink) -> None:
    """Give a worker's connection to its link. The worker sends nothing before it is admitted."""
    transport = cast(asyncio.Transport, stream.writer.transport)
    transport.pause_reading()  # the loop chooses how it reads by the protocol when it begins
    transport.set_protocol(link)
    link.kept = stream.writer
    stream.send(Admitted())
    link.connection_made(transport)
    transport.resume_reading()


def _status(session: NodeSession) -> NodeStatus:
    join = session.join
    return NodeStatus(
        session.name, session.address, join.kind, join.cores, tuple(join.gpus.values()), session.joined_us,
        session.trip_us, "",
    )  # fmt: skip
