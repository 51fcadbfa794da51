"""The agent of a node: it calls a gateway, and starts and ends workers as that says.

It decides nothing. If the gateway is lost, its workers wait for it, and the agent calls again: for a while
that gateway alone, then in turn all that it may join.
"""

import asyncio
import logging
import random
import socket
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from serving.runtime.clocks.clock import now_us
from serving.runtime.nodes.dialing import Gateway, Relay, call_as_node, call_as_worker
from serving.runtime.nodes.greeting import NotAdmittedError, hear
from serving.runtime.nodes.model_cache import ModelCache, ParcelError
from serving.runtime.nodes.notes import (
    Check,
    Chunk,
    End,
    Ended,
    Join,
    Leaving,
    Note,
    Offer,
    Ping,
    Pong,
    Printed,
    Release,
    Start,
    Stored,
    Want,
    Welcome,
)
from serving.runtime.nodes.stream import NoteStream
from serving.runtime.slicing.opening import DeviceShares, Shares
from serving.runtime.workers.contract import WorkerProcess
from serving.runtime.workers.supervisor import WorkerProcesses
from serving.values.slice_specs import SliceSpec
from serving.worker.frames.orders import Raised
from serving.worker.frames.wire import ProtocolError
from serving.worker.process.tree import children

logger = logging.getLogger(__name__)

FIRST_WAIT_S: Final = 0.5
LAST_WAIT_S: Final = 10.0
"""Between two calls at a gateway that is not there; it doubles from the first to the last."""
LOYAL_US: Final = 5_000_000
"""For so long it calls a gateway alone that it has lost: one that starts again after a crash is back in 1.2 s
(`python -m loadtests.failures.gateway_faults`)."""
SILENCE_S: Final = 10.0
"""A gateway that says nothing for so long is lost: it pings each second."""


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """What a node is started with. `cores`: those that it may use; `cache_bytes`: what model files may take,
    apart from those in use; `leave_s`: what it waits between its word that it ends, and its end."""

    name: str
    token: str
    join: Join
    cores: tuple[int, ...]
    cache: Path
    cache_bytes: int
    leave_s: float = 5.0


class Node:
    """One node and one gateway at a time, from `run` until `stop`."""

    def __init__(
        self, gateways: Sequence[Gateway], settings: NodeSettings, make_shares: Callable[[], Shares]
    ) -> None:
        """Raises OSError if the cache cannot be made. `gateways`: those that it may join, the first first;
        `make_shares`: of this machine's devices, anew for each connection."""
        self._gateways = gateways
        self._gateway = gateways[0]
        self._joined = False  # to the gateway that was called last
        self._settings = settings
        self._make_shares = make_shares
        self._cache = ModelCache(settings.cache)
        self._stream: NoteStream | None = None
        self._workers: WorkerProcesses | None = None
        self._stopped = asyncio.Event()

    async def run(self) -> None:
        """Serve gateways, one after the other, until `stop`. Raises NotAdmittedError if the first call is
        refused for good."""
        wait_s, ever, lost_us = FIRST_WAIT_S, False, -LOYAL_US
        while not self._stopped.is_set():
            try:
                stream = await call_as_node(self._gateway, self._settings.name, self._settings.token)
                await self._serve(stream)
            except (OSError, ProtocolError, NotAdmittedError) as error:
                others = len(self._gateways) > 1
                if isinstance(error, NotAdmittedError) and not (ever or error.again or others):
                    raise
                if not self._stopped.is_set():
                    again = "the next one is called" if others and not self._joined else "it is called again"
                    logger.warning("%s: %s; %s", self._gateway, error or type(error).__name__, again)
                if not self._joined and now_us() - lost_us >= LOYAL_US:
                    at = self._gateways.index(self._gateway) + 1
                    self._gateway = self._gateways[at % len(self._gateways)]
            if self._joined:
                wait_s, ever, lost_us, self._joined = FIRST_WAIT_S, True, now_us(), False
            wait_s = await self._wait(wait_s)

    async def stop(self) -> None:
        """Say that the node ends, give the gateway `leave_s`, and end."""
        if self._stream is not None and not self._stopped.is_set():
            self._stream.send(Leaving("is leaving"))
            await asyncio.sleep(self._settings.leave_s)
        self._stopped.set()
        if self._stream is not None:
            self._stream.writer.close()

    def end_now(self) -> None:
        """End all workers: this process is about to end."""
        if self._workers is not None:
            self._workers.end_all("was ended: its node ends at once")

    async def _wait(self, wait_s: float) -> float:
        """Wait, with some spread, so that the nodes of a gateway that comes back do not call at once."""
        try:
            async with asyncio.timeout(wait_s * random.uniform(0.5, 1)):  # noqa: S311  no secret
                await self._stopped.wait()
        except TimeoutError:
            pass
        return min(2 * wait_s, LAST_WAIT_S)

    async def _serve(self, stream: NoteStream) -> None:
        """Serve the gateway until it is lost."""
        stream.send(self._settings.join)
        try:
            async with asyncio.timeout(SILENCE_S):
                welcome = await hear(stream, Welcome)
        except BaseException:
            stream.abort()
            raise
        self._joined = True
        logger.info("joined %s; slices here: %d", self._gateway, welcome.slices)
        ways = _WaysToGateway(self._gateway, stream)
        shares = self._make_shares()
        self._workers = workers = WorkerProcesses(ways, shares, _PrintedLines(stream), welcome.workers)
        if isinstance(shares, DeviceShares):
            _heed(shares, workers)
        served = _Served(stream, workers, ways, self._cache, self._settings)
        self._stream = stream
        try:
            await served.run()
        finally:
            self._stream = None
            stream.abort()
            if not self._stopped.is_set():
                await workers.let_go(workers.slices, grace_s=0)
            await workers.stop(0)
            self._cache.give_up()


def _heed(shares: DeviceShares, workers: WorkerProcesses) -> None:
    """Log what goes wrong with shares of GPUs, and end the workers of an MPS daemon that is started anew."""

    def restarted(slices: Sequence[str], reason: str) -> None:
        logger.warning("%s; it was started anew, and the workers of its GPU end", reason)
        for name in slices:
            workers.kill(name, "was ended: its MPS daemon was started anew")

    shares.on_trouble = logger.warning
    shares.on_restart = restarted
    shares.on_broken = lambda device, reason: logger.error("%s: %s", device, reason)


class _Served:
    """What the gateway says over one connection, carried out."""

    def __init__(
        self,
        stream: NoteStream,
        workers: WorkerProcesses,
        ways: "_WaysToGateway",
        cache: ModelCache,
        settings: NodeSettings,
    ) -> None:
        self._stream = stream
        self._workers = workers
        self._ways = ways
        self._cache = cache
        self._settings = settings
        self._tasks: set[asyncio.Task[None]] = set()
        self._offer: Offer | None = None
        self._wanted: set[str] = set()
        self._used: dict[str, Path] = {}

    async def run(self) -> None:
        """Carry out notes until the gateway is lost. Raises OSError or ProtocolError."""
        try:
            while True:
                async with asyncio.timeout(SILENCE_S):
                    read = await self._stream.read()
                if read is None:
                    raise ConnectionError("it has closed the connection")
                self._take(*read)
        finally:
            for task in self._tasks:
                task.cancel()

    def _take(self, note: Note, payload: memoryview) -> None:
        match note:
            case Ping(number=number):
                self._stream.send(Pong(number, now_us()))
            case Start():
                self._start(note)
            case End(slice=name, reason=reason):
                self._workers.kill(name, reason)
            case Release(slice=name):
                self._workers.release(name)
            case Check(slice=name, pid=pid):
                self._do(self._workers.check(name, pid))
            case Offer():
                self._take_offer(note)
            case Chunk(blob=blob, last=last):
                self._take_chunk(blob, payload, last)
            case _:
                raise ProtocolError(f"a gateway sends no {type(note).__name__}")

    def _do(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _start(self, start: Start) -> None:
        usable = self._settings.cores
        if start.spec.cores and start.spec.cores[-1] >= len(usable):
            self._stream.send(Ended(start.number, f"could not be started: there are {len(usable)} cores"))
            return
        spec = replace(start.spec, cores=tuple(usable[core] for core in start.spec.cores))
        self._ways.expect(start)
        self._do(self._workers.start(spec))

    # model files

    def _take_offer(self, offer: Offer) -> None:
        try:
            wanted = self._cache.wanted(offer)
        except ParcelError as error:
            self._stream.send(Stored(offer.digest, fault=str(error)))
            return
        self._offer, self._wanted = offer, set(wanted)
        if wanted:
            self._stream.send(Want(offer.digest, wanted))
        else:
            self._store(offer)

    def _take_chunk(self, blob: str, payload: memoryview, last: bool) -> None:
        offer = self._offer
        if offer is None:  # what is left of an offer that failed
            return
        try:
            self._cache.take(blob, payload, last)
        except (OSError, ParcelError) as error:
            self._fail(offer, error)
            return
        if last:
            self._wanted.discard(blob)
            if not self._wanted:
                self._store(offer)

    def _store(self, offer: Offer) -> None:
        self._offer = None
        try:
            root = self._used[offer.digest] = self._cache.build(offer)
            self._cache.prune(self._settings.cache_bytes, self._used)
        except OSError as error:
            self._fail(offer, error)
            return
        self._stream.send(Stored(offer.digest, str(root.resolve())))

    def _fail(self, offer: Offer, error: Exception) -> None:
        self._offer = None
        self._cache.give_up()
        self._stream.send(Stored(offer.digest, fault=f"node {self._settings.name}: {error}"))


class _WaysToGateway:
    """Ways to workers whose links are in the gateway: each calls at its door. A `Ways`."""

    def __init__(self, gateway: Gateway, stream: NoteStream) -> None:
        self._gateway = gateway
        self._stream = stream
        self._starts: dict[str, Start] = {}  # the last of each slice

    def expect(self, start: Start) -> None:
        """Make the next way to the slice's worker by this note."""
        self._starts[start.spec.name] = start

    async def make(self, spec: SliceSpec) -> "_FarWay":
        """See `Ways`."""
        start = self._starts[spec.name]
        try:
            sock, relay = await call_as_worker(self._gateway, start.number, start.key)
        except (NotAdmittedError, ProtocolError) as error:
            raise OSError(f"its connection to the gateway: {error}") from None
        return _FarWay(self._stream, start, sock, relay)

    def failed(self, spec: SliceSpec, reason: str) -> None:
        """See `Ways`."""
        self._stream.send(Ended(self._starts[spec.name].number, f"could not be started: {reason}"))


class _FarWay:
    """The way to one worker. A `Way`."""

    def __init__(self, stream: NoteStream, start: Start, sock: socket.socket, relay: Relay | None) -> None:
        self._stream = stream
        self._start = start
        self._sock = sock
        self._relay = relay

    @property
    def given(self) -> tuple[int, ...]:
        """See `Way`."""
        return (self._sock.fileno(),)

    def end(self, child: WorkerProcess) -> "_Report":
        """See `Way`."""
        return _Report(self._stream, self._start, child, self)

    async def connect(self) -> None:
        """See `Way`. The worker has the connection."""

    def release(self) -> None:
        """Keep the connection no longer; what the worker has sent still goes on its way."""
        self._sock.close()

    def close(self) -> None:
        """See `Way`. A worker that has the connection meets its end."""
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()
        if self._relay is not None:
            self._relay.close()


class _Report:
    """A worker's end on a node: it tells the gateway how the worker ended. A `WorkerEnd`."""

    def __init__(self, stream: NoteStream, start: Start, child: WorkerProcess, way: _FarWay) -> None:
        self.slice = start.spec.name
        self.ended = asyncio.Event()
        self.overran = False
        self._stream = stream
        self._number = start.number
        self._child = child
        self._way = way
        self._fault = ""

    @property
    def pid(self) -> int:
        """The worker's process id; the child is its keeper."""
        return next(iter(children(self._child.pid)), self._child.pid)

    def kill(self, reason: str = "") -> None:
        """See `WorkerEnd`."""
        self.blame(reason)
        self._child.kill()

    def blame(self, reason: str) -> None:
        """See `WorkerEnd`."""
        self._fault = self._fault or reason

    def close(self) -> None:
        """See `WorkerEnd`: the gateway asks the worker itself."""

    def let_go(self) -> None:
        """See `WorkerEnd`."""
        self._way.close()
        self.ended.set()

    def exited(self, how: str, crashed: bool = False) -> None:
        """See `WorkerEnd`."""
        self._way.release()
        self.ended.set()
        fault = self._fault
        self._stream.send(Ended(self._number, fault or how, crashed and not fault, self.overran))


class _PrintedLines:
    """Sends what workers print to the gateway's log. A `WorkerLog`."""

    def __init__(self, stream: NoteStream) -> None:
        self._stream = stream

    def raised(self, slice_name: str, raised: Raised) -> None:
        """See `WorkerLog`: the worker tells the gateway itself."""

    def printed(self, slice_name: str, stream: str, model: str, line: str) -> None:
        """See `WorkerLog`. If the gateway takes too little, lines are left out."""
        self._stream.say(Printed(slice_name, stream, model, line))
