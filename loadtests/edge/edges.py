"""Would processes that only accept and parse pay? What they would take off the gateway, and what they add.

    python -m loadtests.edge.edges [--rounds 9]

Microseconds of CPU a request of one row, on this machine:

- whole: a real gateway over REST with `identity`, 128 connections; its workers are left out;
- edge: the part that reads, parses, checks and answers (the gateway's REST server with a core that answers at
  once, as `loadtests.edge.rpc_cost` has it): what other processes could do;
- descriptor: what the scheduler's process then does instead. Edges write (id, model, rows, deadline, offset)
  into a ring of shared memory, and an eventfd wakes the scheduler, which writes an answer into the ring back;
- decisions: to admit the request and to form and end its batch, which `whole` has, too.

So the scheduler's process keeps whole - edge + descriptor, which bounds the requests a second with any number
of edges. Several gateways that divide the slices have no such bound, but each sees a part of the queue. The
last table says in virtual time what that costs: the rate at which 99 % are in time.
"""

import argparse
import asyncio
import mmap
import os
import socket
import struct
from collections.abc import Callable
from multiprocessing import get_context
from statistics import median
from time import process_time_ns

import uvloop

from loadtests.core.scheduler_cost import VARIANTS, Load
from loadtests.edge.cpu_rounds import measured_us
from loadtests.edge.key_cost import Core
from loadtests.edge.rpc_cost import HOST, REST, ROUND, ask_calls
from loadtests.harness.gateway import model_entry, started
from loadtests.harness.processes import cpu_us
from loadtests.harness.wire import ask
from loadtests.virtual.virtual_world import World, good_share
from router.http.fastpath import create_server
from serving.scheduler.commands import RunBatch
from serving.scheduler.waiting.requests import Request
from serving.simulation.capacity import search
from serving.values.specs import BatchingSpec, Limits

EDGES = 2
DEPTH = 32
"""Requests of an edge that are under way."""
REQUESTS = 20_000
"""In a round, of all edges together."""
SLOTS = 256
DESCRIPTOR = struct.Struct("<QIIQQ")
"""id, model, rows, deadline in us, offset of its tensors"""
ANSWER = struct.Struct("<QQ")
"""id, outcome"""
HEAD = 64
"""Bytes before the slots: how many were written. A line of the cache, so that a reader disturbs little."""
CONNECTIONS = 128


class Ring:
    """One process writes and one reads. Stores of 8 aligned bytes are whole and in order on x86-64."""

    def __init__(self, slot: struct.Struct) -> None:
        self._slot = slot
        self._bytes = mmap.mmap(-1, HEAD + SLOTS * slot.size)
        self._written = memoryview(self._bytes)[:8].cast("Q")
        self._at = 0
        self.bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def put(self, *fields: int) -> None:
        """Write one slot; the reader sees it at the next `ring`."""
        self._slot.pack_into(self._bytes, HEAD + self._at % SLOTS * self._slot.size, *fields)
        self._at += 1

    def ring(self) -> None:
        """Publish what was written, and wake the reader."""
        self._written[0] = self._at
        os.eventfd_write(self.bell, 1)

    def take(self) -> list[tuple[int, ...]]:
        """Return what was published since the last call."""
        os.eventfd_read(self.bell)
        begin, self._at = self._at, self._written[0]
        size = self._slot.size
        return [
            self._slot.unpack_from(self._bytes, HEAD + number % SLOTS * size)
            for number in range(begin, self._at)
        ]


def edge(asked: Ring, answered: Ring, requests: int) -> None:
    """Keep DEPTH requests under way until all are answered: an edge without its clients."""
    os.set_blocking(answered.bell, True)
    sent = done = 0
    free = DEPTH
    while done < requests:
        for _ in range(min(free, requests - sent)):
            sent += 1
            asked.put(sent, 0, 1, 1 << 40, sent << 12)
        asked.ring()
        free = len(answered.take())
        done += free


class SchedulerProcess:
    """Reads descriptors and answers them: with the scheduler, or at once."""

    def __init__(self, pairs: list[tuple[Ring, Ring]], decides: bool) -> None:
        self._pairs = pairs
        self._load = Load(1)
        self._edge_of: dict[int, tuple[Ring, int]] = {}
        self._decides = decides
        self._left = REQUESTS // EDGES * EDGES
        self.over = asyncio.Event()

    def start(self) -> None:
        """Read each ring as its bell rings."""
        loop = asyncio.get_running_loop()
        for asked, answered in self._pairs:
            loop.add_reader(asked.bell, self._read, asked, answered)

    def stop(self) -> None:
        """Read no ring any more."""
        loop = asyncio.get_running_loop()
        for asked, _ in self._pairs:
            loop.remove_reader(asked.bell)

    def _read(self, asked: Ring, answered: Ring) -> None:
        found = asked.take()
        if self._decides:
            self._decide(found, answered)
        else:
            for number, *_ in found:
                answered.put(number, 0)
            answered.ring()
        self._left -= len(found)
        if not self._left:
            self.over.set()

    def _decide(self, found: list[tuple[int, ...]], answered: Ring) -> None:
        load = self._load
        scheduler = load.scheduler
        for number, _, rows, deadline_us, _ in found:
            load.count += 1
            self._edge_of[load.count] = (answered, number)
            request = Request(load.count, "m0", rows, load.now_us, deadline_us)
            request.variants = VARIANTS
            scheduler.arrive(request, load.now_us)
        load.now_us += 1
        bells = {answered: None}
        commands = scheduler.wake(load.now_us)
        while batch := next((each for each in commands if isinstance(each, RunBatch)), None):
            load.now_us += 1
            for piece in batch.pieces:
                ring, number = self._edge_of.pop(piece.request.id)
                ring.put(number, 0)
                bells[ring] = None
            commands = scheduler.batch_done(batch.id, 1, load.now_us)
        for ring in bells:
            ring.ring()


async def descriptor_us(decides: bool) -> float:
    """Return the us of CPU of the scheduler's process by a request."""
    pairs = [(Ring(DESCRIPTOR), Ring(ANSWER)) for _ in range(EDGES)]
    process = SchedulerProcess(pairs, decides)
    process.start()
    fork = get_context("fork")  # the rings are inherited
    edges = [fork.Process(target=edge, args=(*pair, REQUESTS // EDGES)) for pair in pairs]
    for each in edges:
        each.start()
    begin_ns = process_time_ns()
    await process.over.wait()
    taken_us = (process_time_ns() - begin_ns) / 1e3 / REQUESTS
    process.stop()
    for each in edges:
        await asyncio.to_thread(each.join)
    return taken_us


def whole_us(rounds: int) -> list[float]:
    """Return the us of CPU of a gateway by a request over REST, in each round."""
    with started([model_entry("identity", slo_ms=1000)]) as gateway:
        example = ask(gateway, b"GET /v2/models/identity/example HTTP/1.1\r\nHost: x\r\n\r\n").body
        head = f"POST /v2/models/identity/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {len(example)}\r\n\r\n"
        request = head.encode() + example
        clients = [socket.create_connection((gateway.host, gateway.rest_port)) for _ in range(CONNECTIONS)]
        taken = []
        for _ in range(rounds + 1):
            begin_us = cpu_us(gateway.pid)
            for _ in range(REQUESTS // CONNECTIONS):
                for each in clients:
                    each.sendall(request)
                for each in clients:
                    if not each.recv(1 << 16).startswith(b"HTTP/1.1 200"):
                        raise RuntimeError("a request was not answered with 200")
            taken.append((cpu_us(gateway.pid) - begin_us) / (REQUESTS // CONNECTIONS * CONNECTIONS))
        return taken[1:]  # the first warms up


async def edge_us(rounds: int) -> list[float]:
    """Return the us of CPU that REST takes of a request, in each round."""
    core = Core()

    async def nothing(scope: object, receive: object, send: object) -> None:
        """Stand in for an ASGI application that gets no requests."""

    rest = create_server(core, nothing, HOST, 0, Limits())
    case = (REST, await rest.start(), CONNECTIONS, 1)
    try:
        return (await measured_us({REST: case}, ask_calls, ROUND, rounds))[REST]
    finally:
        await rest.drain(0)


def attained(world: World, owners: int) -> Callable[[float, int], float]:
    """Return the share in time by rate and seed, where each of `owners` has its part of the slices."""

    def share(rate: float, seed: int) -> float:
        return good_share(world, rate / owners, 10 * owners, seed + 1)

    return share


def print_owners() -> None:
    """Print what dividing 8 slices of a model costs: the rate at which 99 % are in time."""
    print("owners of 8 slices   rate at 99 % in time   of one owner's")
    one = 0.0
    for owners in (1, 2, 4):
        world = World(BatchingSpec("slo"), slices=8 // owners)
        rate = search(attained(world, owners), 0.99, 8 * 1e6 / world.alpha_us).rate
        one = one or rate
        print(f"{owners:18}{rate:23,.0f}{rate / one:17.3f}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    whole = median(whole_us(rounds))
    edge_part = median(uvloop.run(edge_us(rounds)))
    both = median([uvloop.run(descriptor_us(True)) for _ in range(rounds)])
    ring = median([uvloop.run(descriptor_us(False)) for _ in range(rounds)])
    kept = whole - edge_part + ring
    print(f"us of CPU a request: whole {whole:.1f}, edge {edge_part:.1f}, descriptor {ring:.1f}")
    print(f"decisions {both - ring:.1f}; the scheduler's process keeps {kept:.1f}")
    print(f"so edges carry at most {whole / kept:.2f} times the requests of one gateway")
    print_owners()


if __name__ == "__main__":
    main()
