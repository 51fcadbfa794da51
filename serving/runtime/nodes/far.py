"""The workers on nodes: as `Supervisor` has those of this machine."""

import secrets
from collections.abc import Collection, Iterable
from dataclasses import replace
from itertools import count
from typing import Protocol

from serving.profile.device import device_kind
from serving.runtime.nodes.farlink import FarLink
from serving.runtime.nodes.notes import Check, Join, Release, Start
from serving.runtime.nodes.session import FarProcess, NodeSession
from serving.runtime.workers.contract import WorkerLog
from serving.runtime.workers.ends import STOP_GRACE_S, Ends
from serving.runtime.workers.link import Link, LinkEvents
from serving.values.slice_specs import SliceSpec
from serving.values.specs import ModelSpec
from serving.worker.frames.orders import LoadOrder

KEY_BYTES = 16


class Devices(Protocol):
    """Hears what befalls the devices of nodes, by failure domain."""

    def device_leaving(self, domain: str, reason: str) -> None: ...

    def device_lost(self, domain: str, reason: str) -> None: ...

    def device_back(self, domain: str) -> None: ...


class FarWorkers:
    """A `Workers` of all nodes. `sessions`: the nodes that have joined, by name."""

    def __init__(self, events: LinkEvents, devices: Devices, log: WorkerLog, ship: bool = True) -> None:
        """`events` hears of each worker, and `devices` of nodes that come and go."""
        self.sessions: dict[str, NodeSession] = {}
        self._events = events
        self._devices = devices
        self._log = log
        self._ship = ship
        self._specs: dict[str, SliceSpec] = {}  # of slices that were ever started
        self._ends = Ends[FarLink]()
        self._numbers = count(1)
        self._awaited: dict[int, tuple[str, FarLink]] = {}  # workers that have not called yet: their keys
        self._stopping = False

    async def start(self, spec: SliceSpec) -> None:
        """See `Workers`. The slices of a node that is not there are lost until it joins."""
        if self._stopping:
            return
        self._specs[spec.name] = spec
        session = self.sessions.get(spec.node)
        if session is None:
            reason = f"node {spec.node} has not joined"
            self._devices.device_lost(spec.domain, reason)
        else:
            reason = unfit(spec, session.join)
        if session is None or reason:
            Link(spec.name, self._events).fail_to_start(reason)
            return
        self._awaited = {n: each for n, each in self._awaited.items() if not each[1].ended.is_set()}
        number, key = next(self._numbers), secrets.token_hex(KEY_BYTES)
        ship = session.ship if self._ship else _shared
        link = FarLink(spec.name, self._events, FarProcess(session, spec.name), ship)
        link.on_raised = self._log.raised
        self._ends.add(link)
        self._awaited[number] = (key, link)
        session.begin(number, link, Start(number, key, replace(spec, node="")))

    def release(self, slice_name: str) -> None:
        """See `Workers`."""
        spec = self._specs.get(slice_name)
        if spec is not None and (session := self.sessions.get(spec.node)) is not None:
            session.send(Release(slice_name))

    def kill(self, slice_name: str, reason: str) -> None:
        """See `Workers`."""
        for link in self._ends.of(slice_name):
            link.kill(reason)

    def end_all(self, reason: str) -> None:
        """See `Workers`."""
        self._ends.kill(reason)

    async def check(self, slice_name: str, pid: int) -> None:
        """See `Workers`; the node looks."""
        spec = self._specs.get(slice_name)
        if spec is not None and (session := self.sessions.get(spec.node)) is not None:
            session.send(Check(slice_name, pid))

    async def ended(self, slice_name: str) -> None:
        """See `Workers`. Of a node that is lost, nothing is known to live."""
        for link in self._ends.of(slice_name):
            await link.ended.wait()

    async def let_go(self, slices: Collection[str]) -> None:
        """See `Workers`. An agent lets its workers go once it has lost this gateway."""
        for link in self._ends:
            if link.slice in slices:
                link.let_go()

    async def stop(self, grace_s: float = STOP_GRACE_S) -> None:
        """See `Workers`."""
        self._stopping = True
        await self._ends.stop(grace_s)

    # what the door tells

    def key_of(self, number: str) -> str:
        """Return the key of a worker that was started and has not called yet; "" if there is none."""
        awaited = self._awaited.get(int(number)) if number.isdecimal() else None
        return awaited[0] if awaited is not None else ""

    def called(self, number: str) -> FarLink | None:
        """Return the link of a worker that calls for the first time, None if it is not awaited any more."""
        awaited = self._awaited.pop(int(number), None)
        return awaited[1] if awaited is not None and not awaited[1].ended.is_set() else None

    def joined(self, session: NodeSession) -> None:
        """Use a node's devices from now on."""
        self.sessions[session.name] = session
        for domain in self._domains(session.name):
            self._devices.device_back(domain)

    def leaving(self, session: NodeSession) -> None:
        """Note that a node will end soon."""
        for domain in self._domains(session.name):
            self._devices.device_leaving(domain, f"node {session.name} {session.leaving}")

    def lost(self, session: NodeSession, reason: str) -> None:
        """Use a node's devices no longer. The session has reported its workers lost."""
        del self.sessions[session.name]
        if not self._stopping:
            for domain in self._domains(session.name):
                self._devices.device_lost(domain, f"node {session.name} {reason}")

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes of slices that were ever wanted."""
        return tuple(dict.fromkeys(spec.node for spec in self._specs.values()))

    def slices_of(self, node: str) -> int:
        """Return how many slices of a node were ever wanted."""
        return sum(spec.node == node for spec in self._specs.values())

    def _domains(self, node: str) -> Iterable[str]:
        return dict.fromkeys(spec.domain for spec in self._specs.values() if spec.node == node)


async def _shared(order: LoadOrder, _model: ModelSpec) -> LoadOrder:
    """Bring nothing: nodes have the files at the same paths."""
    return order


def unfit(spec: SliceSpec, join: Join) -> str:
    """Return why a slice cannot run on its node, "" if it can."""
    if spec.cores and spec.cores[-1] >= join.cores:
        return f"node {spec.node} has {join.cores} cores, 0 to {join.cores - 1}, and no core {spec.cores[-1]}"
    there = join.kind if spec.device == "cpu" else join.gpus.get(spec.device, "")
    if not there:
        gpus = ", ".join(join.gpus) or "no GPU"
        return f"node {spec.node} has {gpus}, and no {spec.device}"
    wanted = device_kind(spec)
    if there != wanted:
        said = "states" if spec.kind else "states no kind, which means this machine's,"
        return (
            f"{spec.device} of node {spec.node} is {there}, and slice {spec.name} {said} {wanted}: "
            f"state `kind: {there}` in its entry of `slices:`"
        )
    return ""
