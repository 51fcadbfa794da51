"""A gateway that takes over from one that makes way for it (`going.py`)."""

import asyncio
import os
import socket
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Final, cast

from router.observing.troubles import settled
from router.startup.deployment import GatewayServer
from router.startup.upgrade.channel import CONNECTIONS, FREE, HELD, LISTENER, READY, SERVING, Channel, Note
from router.startup.upgrade.going import CHANNEL_ENV

TAKE_S: Final = 5.0
"""For what is loaded to be taken over. After that the gateway begins with what it has."""

Address = tuple[str, int]


class Coming:
    """What the gateway before gives. A gateway before that ends gives all that it has."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._held: set[str] = set()
        self._listeners: dict[str, socket.socket] = {}
        self._connections: list[socket.socket] = []
        self._changed = asyncio.Event()
        self._reading: asyncio.Task[None] | None = None
        self._deployment: GatewayServer | None = None

    async def await_turn(self) -> None:
        """Say that this gateway is ready, and wait until the first slices are free."""
        with suppress(OSError):  # it has ended, after what it has sent
            await self._channel.send({"what": READY})
        with suppress(OSError):
            while self._take(*await self._channel.receive()) != FREE:
                pass
            self._reading = asyncio.create_task(self._read())
            return
        self._held.clear()

    async def wait_to_start(self, slice_name: str) -> None:
        """Return once a slice is this gateway's own."""
        while slice_name in self._held:
            await self._changed.wait()

    async def await_replicas(self, deployment: GatewayServer) -> None:
        """Wait until what was free is taken over."""
        await await_replicas(deployment, self._held)

    def lend_listeners(self, deployment: GatewayServer, wanted: Mapping[str, Address]) -> None:
        """Let each edge listen on the socket of the gateway before, if that has the address."""
        for name, tcp in deployment.edges.sockets.items():
            given = self._listeners.get(name)
            if given is not None and _fits(given, wanted[name]):
                tcp.inherited = self._listeners.pop(name)
        for given in self._listeners.values():
            given.close()
        self._listeners.clear()

    async def begin(self, deployment: GatewayServer) -> None:
        """Serve the connections that were given, and say that this gateway serves."""
        self._deployment = deployment
        await self._take_on()
        with suppress(OSError):
            await self._channel.send({"what": SERVING})

    async def close(self) -> None:
        """Hear no more."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])
        self._channel.close()

    async def _read(self) -> None:
        with suppress(OSError):
            while True:
                self._take(*await self._channel.receive())
                await self._take_on()
        self._held.clear()
        self._tell()

    def _take(self, note: Note, descriptors: list[int]) -> object:
        what = note.get("what")
        match note:
            case {"slices": list(slices)} if what == HELD:
                self._held.update(cast("list[str]", slices))
            case {"edge": str(edge)} if what == LISTENER:
                self._listeners[edge] = socket.socket(fileno=descriptors[0])
            case _ if what == CONNECTIONS:
                self._connections += (socket.socket(fileno=each) for each in descriptors)
            case {"slices": list(slices)} if what == FREE:
                self._held.difference_update(cast("list[str]", slices))
                self._tell()
        return what

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _take_on(self) -> None:
        if self._deployment is None:
            return
        given, self._connections = self._connections, []
        for each in given:
            each.setblocking(False)
            with suppress(OSError):  # its client has left
                await self._deployment.rest.take_on(each)


async def await_replicas(deployment: GatewayServer, without: Collection[str] = ()) -> None:
    """Wait until all slices but those have loaded what they are to have, at most for TAKE_S."""
    slices = deployment.fleet.control.slices

    def there() -> bool:
        return settled({name: each for name, each in slices.items() if name not in without})

    with suppress(TimeoutError):
        async with asyncio.timeout(TAKE_S):
            while not there():
                await deployment.fleet.changed()


def _fits(given: socket.socket, wanted: Address) -> bool:
    """Return whether a listening socket has the address that an edge is to have; port 0 means any."""
    host, port = wanted
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError:
        return False
    name = given.getsockname()
    return port in (0, name[1]) and name[0] in [each[4][0] for each in found]


def coming() -> Coming | None:
    """Return what a gateway that makes way gives to this process; None if there is none."""
    stated = os.environ.pop(CHANNEL_ENV, "")
    if not stated.isdecimal():
        return None
    sock = socket.socket(fileno=int(stated))
    sock.set_inheritable(False)
    return Coming(Channel(sock))
