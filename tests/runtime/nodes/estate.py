"""A door, far workers and nodes in the test's own process; the workers on the nodes are real processes."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from router.settings.machine.slices import usable_cores
from serving.profile.device import device_kind
from serving.runtime.nodes.dialing import Gateway
from serving.runtime.nodes.door import Door
from serving.runtime.nodes.far import FarWorkers
from serving.runtime.nodes.node import Node, NodeSettings
from serving.runtime.nodes.notes import Join
from serving.runtime.slicing.opening import PreparedShares
from serving.runtime.workers.link import LinkEvents
from serving.values.nodes import NodesSpec
from serving.values.slice_specs import SliceSpec, WorkersSpec
from serving.worker.frames.orders import Raised

TOKEN = "not a secret"  # noqa: S105
RELEASE = "1"
HOST = "127.0.0.1"
SPEC = NodesSpec(port=0, token=TOKEN, names=("n",))
UNBOUND = WorkersSpec()


class Devices:
    """Remembers what befell which domain."""

    def __init__(self) -> None:
        self.told: list[tuple[str, ...]] = []

    def device_leaving(self, domain: str, reason: str) -> None:
        self.told.append(("leaving", domain, reason))

    def device_lost(self, domain: str, reason: str) -> None:
        self.told.append(("lost", domain, reason))

    def device_back(self, domain: str) -> None:
        self.told.append(("back", domain))


class Lines:
    """A log that remembers."""

    def __init__(self) -> None:
        self.printed_lines: list[tuple[str, str, str, str]] = []
        self.raised_errors: list[tuple[str, Raised]] = []

    def raised(self, slice_name: str, raised: Raised) -> None:
        self.raised_errors.append((slice_name, raised))

    def printed(self, slice_name: str, stream: str, model: str, line: str) -> None:
        self.printed_lines.append((slice_name, stream, model, line))


def about_here(cores: int | None = None) -> Join:
    """What a node on this machine says of itself."""
    count = len(usable_cores()) if cores is None else cores
    return Join(device_kind(SliceSpec("", ())), count, 1 << 30, {}, RELEASE)


class Estate:
    """One gateway's side, and nodes that call at it."""

    def __init__(self, events: LinkEvents, folder: Path, spec: NodesSpec, workers: WorkersSpec) -> None:
        self.devices = Devices()
        self.log = Lines()
        self.far = FarWorkers(events, self.devices, self.log, spec.ship)
        self.door = Door(spec, self.far, workers, self.log, RELEASE)
        self.folder = folder
        self.gateway = Gateway(HOST, 0)
        self.gateways: list[Gateway] = []  # those that nodes may join, if there are several
        self.nodes: dict[str, Node] = {}
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self, context: ssl.SSLContext | None) -> None:
        """Listen."""
        self.gateway = Gateway(HOST, await self.door.start(context))

    def node(self, name: str, join: Join | None = None, token: str = TOKEN, leave_s: float = 0.0) -> Node:
        """Begin a node; it calls at once."""
        node = self.nodes[name] = self.made(name, join, token, leave_s)
        self._tasks.append(asyncio.create_task(node.run()))
        return node

    def made(self, name: str, join: Join | None = None, token: str = TOKEN, leave_s: float = 0.0) -> Node:
        """A node that has not begun."""
        settings = NodeSettings(
            name, token, join or about_here(), usable_cores(), self.folder / f"cache-{name}", 1 << 30, leave_s
        )
        return Node(self.gateways or [self.gateway], settings, PreparedShares)

    async def joined(self, name: str, there: bool = True) -> None:
        """Until the node is there, or is not any more."""
        await until(lambda: (name in self.far.sessions) is there)

    async def close(self) -> None:
        """End all."""
        await self.far.stop(0)
        for node in self.nodes.values():
            await node.stop()
        await asyncio.wait(self._tasks or [asyncio.create_task(asyncio.sleep(0))])
        await self.door.close()


async def until(true: Callable[[], bool], patience_s: float = 30.0) -> None:
    """Until it is so."""
    async with asyncio.timeout(patience_s):
        while not true():  # noqa: ASYNC110  it is another process's doing
            await asyncio.sleep(0.01)


@asynccontextmanager
async def estate(
    events: LinkEvents,
    folder: Path,
    spec: NodesSpec = SPEC,
    workers: WorkersSpec = UNBOUND,
    context: ssl.SSLContext | None = None,
) -> AsyncIterator[Estate]:
    """An open door without nodes."""
    made = Estate(events, folder, spec, workers)
    await made.open(context)
    try:
        yield made
    finally:
        await made.close()
