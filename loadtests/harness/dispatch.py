"""Sends every arrival when it is due, whatever became of the ones before, and waits for the last outcome."""

import asyncio
import contextlib
import gc
import os
import resource
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import uvloop

from loadtests.harness.connections import Pool
from loadtests.harness.pace import FineAlarm
from loadtests.harness.record import NO_STATUS, NO_TIME, ClientState, Record
from serving.simulation.traffic.patterns import Seconds

START_S = 0.05  # from the last preparation to the instant 0 of the arrivals
BEHIND_S = 30.0  # a client that is as late as this gives up what it has not sent
OTHER_FILES = 64  # that the process has open beside its connections


@dataclass(frozen=True, slots=True)
class Load:
    """One stream of requests: `due_s` ascending; `requests` are sent in rotation."""

    due_s: Seconds
    requests: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class Server:
    """Where to send, over how many connections, and how long answers may take after the last arrival went."""

    host: str
    port: int
    connections_min: int = 16
    connections_max: int = 1024
    patience_s: float = 30.0


class Dispatcher:
    """Walks the merged arrivals of all loads; the loop that reads the answers rings its alarm.

    `kept`: where the answers go, by the number of their arrival in the record; None for nowhere.
    """

    def __init__(self, loads: Sequence[Load], server: Server, kept: dict[int, bytes] | None = None) -> None:
        due_s = np.concatenate([load.due_s for load in loads])
        owners = np.repeat(np.arange(len(loads)), [len(load.due_s) for load in loads])
        turns = np.concatenate([np.arange(len(load.due_s)) for load in loads])
        order = np.argsort(due_s, kind="stable")
        self._offsets_ns = (due_s[order] * 1e9).astype(np.int64)
        self._owners: list[int] = owners[order].tolist()
        self._requests = [
            loads[owner].requests[turn % len(loads[owner].requests)]
            for owner, turn in zip(self._owners, turns[order].tolist(), strict=True)
        ]
        self._server = server
        self._kept = kept
        self._next = 0
        self.record = Record((), ())

    async def run(self) -> tuple[Record, ClientState]:
        """Return the outcome of every arrival. Raises OSError if no server listens, RuntimeError if this code
        has a mistake."""
        loop = asyncio.get_running_loop()
        over: asyncio.Future[None] = loop.create_future()
        loop.set_exception_handler(lambda _, context: _fail(over, context))
        self._over, self._sent = over, loop.create_future()
        server = self._server
        address = (socket.gethostbyname(server.host), server.port)  # once: no lookup in the run
        self._pool = Pool(*address, server.connections_max, self, self._kept)
        await self._pool.warm(server.connections_min)
        self._alarm = FineAlarm(self._send_due)
        load_average = os.getloadavg()[0]
        with _no_collection():
            start_ns = time.monotonic_ns() + int(START_S * 1e9)
            self._due_ns: list[int] = (self._offsets_ns + start_ns).tolist()
            self.record = Record(self._due_ns, self._owners, start_ns)
            cpu_s, wall_s = time.process_time(), time.monotonic()
            if self._due_ns:
                self._alarm.set(self._due_ns[0])
                await self._finish()
            cpu = (time.process_time() - cpu_s) / (time.monotonic() - wall_s)
        self._alarm.close()
        await self._pool.close()
        await asyncio.sleep(0)  # the transports say goodbye
        if over.done():
            over.result()
        for number in range(self._next, len(self._due_ns)):
            self.record.settle(number, NO_STATUS, NO_TIME)
        if self.record.left:
            raise RuntimeError(f"the load client lost sight of {self.record.left} arrivals")
        pool = self._pool
        state = ClientState(
            cpu, load_average, pool.opened, pool.peak, server.connections_max, pool.connect_ns_max / 1e6
        )
        return self.record, state

    async def _finish(self) -> None:
        """Wait until all is over, or nothing more is waited for. The time by which the client is late is not
        taken off the server's time."""
        late_s = START_S + float(self._offsets_ns[-1]) / 1e9 + BEHIND_S
        await asyncio.wait((self._over, self._sent), timeout=late_s, return_when=asyncio.FIRST_COMPLETED)
        if self._sent.done():
            await asyncio.wait((self._over,), timeout=self._server.patience_s)

    def settle(self, number: int, status: int, reason: str = "") -> None:
        """Note the outcome of an arrival, from its connection."""
        self.record.settle(number, status, reason)
        if not self.record.left and not self._over.done():
            self._over.set_result(None)

    def _send_due(self) -> None:
        """Send all that is due now. The clock is read once for that, so that a client that has fallen behind
        still reads answers in between."""
        now_ns = time.monotonic_ns()
        due_ns, sent_ns, requests, send = self._due_ns, self.record.sent_ns, self._requests, self._pool.send
        number, count = self._next, len(due_ns)
        while number < count and due_ns[number] <= now_ns:
            sent_ns[number] = time.monotonic_ns()
            send(number, requests[number])
            number += 1
        self._next = number
        if number < count:
            self._alarm.set(due_ns[number])
        elif not self._sent.done():
            self._sent.set_result(None)


def measure(
    loads: Sequence[Load], server: Server, kept: dict[int, bytes] | None = None
) -> tuple[Record, ClientState]:
    """Play one open-loop run in an event loop that is made and ended here. `kept` and errors as in
    `Dispatcher`."""
    _allow_files(server.connections_max + OTHER_FILES)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(Dispatcher(loads, server, kept).run())


def _fail(over: "asyncio.Future[None]", context: dict[str, object]) -> None:
    error = context.get("exception")
    if not over.done():
        cause = error if isinstance(error, Exception) else None
        fault = RuntimeError(f"the load client failed: {context.get('message')}")
        fault.__cause__ = cause
        over.set_exception(fault)


def _allow_files(count: int) -> None:
    """Raise the soft limit of open files where it is too low; ValueError where the hard one is."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Stop garbage collection during the run: a full collection would hold up arrivals for tens of
    milliseconds."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
