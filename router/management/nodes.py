"""The nodes of a gateway: their door, and what status and metrics show of them."""

import ssl
from importlib.metadata import version

from router.observing.status import NodeBody
from router.security.tls.certificates import Certificates
from router.settings import Settings
from serving.runtime.clocks.clock import now_us
from serving.runtime.fleet import Fleet
from serving.runtime.nodes.dialing import Gateway
from serving.runtime.nodes.door import Door, NodeStatus
from serving.runtime.nodes.far import FarWorkers


class NodeBoard:
    """What a gateway knows of its nodes. Without `nodes:` in the settings there are none."""

    def __init__(self, settings: Settings, fleet: Fleet, certificates: Certificates | None) -> None:
        """`certificates`: those that encrypt the gateway's ports, None if nothing does."""
        self._certificates = certificates
        self._door: Door | None = None
        self._fleet = fleet
        if settings.nodes is not None:
            far = FarWorkers(fleet, fleet, fleet.model_log, settings.nodes.ship)
            fleet.workers.far = far
            self._host = settings.nodes.host
            fleet.control.scaling.nodes = far.sessions
            self._door = Door(settings.nodes, far, settings.workers, fleet.model_log, version("penstock"))
            self._door.needed = self._needed

    async def start(self) -> str:
        """Open the door, and return its address, "" if there is none. Raises OSError if it cannot listen."""
        if self._door is None:
            return ""
        context = None if self._certificates is None else following(self._certificates)
        port = await self._door.start(context)
        return str(Gateway(self._host, port))

    async def close(self) -> None:
        """Close the door."""
        if self._door is not None:
            await self._door.close()

    def present(self) -> dict[str, bool]:
        """Return whether each node is there."""
        return {} if self._door is None else {each.name: not each.lost for each in self._door.describe()}

    def needed(self) -> dict[str, bool]:
        """Return whether the present load needs each node."""
        if self._door is None:
            return {}
        needed = self._needed()
        return {name: name in needed for name in self.present()}

    def describe(self) -> list[NodeBody]:
        """Return what the status says of them."""
        needed = self.needed()
        known = [] if self._door is None else self._door.describe()
        return [self._body(each, needed[each.name]) for each in known]

    def _needed(self) -> frozenset[str]:
        control = self._fleet.control
        return control.scaling.needed_nodes(control.expected)

    def _body(self, node: NodeStatus, needed: bool) -> NodeBody:
        slices = sorted(name for name, spec in self._fleet.specs.items() if spec.node == node.name)
        return {
            "name": node.name,
            "state": "joined" if not node.lost else "lost" if needed else "absent",
            "needed": needed,
            "reason": node.lost,
            "address": node.address,
            "kind": node.kind,
            "cores": node.cores,
            "gpus": [*node.gpus],
            "joined_s": 0.0 if node.lost else (now_us() - node.since_us) / 1e6,
            "trip_us": node.trip_us,
            "slices": slices,
        }


def following(certificates: Certificates) -> ssl.SSLContext:
    """Return a context that shows the certificate in force at each handshake, also after a renewal."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.tls.cert, certificates.tls.key)

    def choose(sock: ssl.SSLObject | ssl.SSLSocket, _name: str | None, _context: ssl.SSLContext) -> None:
        sock.context = certificates.context(())

    context.sni_callback = choose
    return context
