"""Connections and calls that an edge must outlive: odd paths, calls by the thousand, calls that never end."""

import asyncio
import contextlib
import io
import resource
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import grpc

from loadtests.harness.gateway import Gateway
from loadtests.harness.wire import read_answer
from loadtests.hostile import h2wire
from loadtests.hostile.abuse.bombs import INFER, Attack
from loadtests.hostile.abuse.hostile import PATIENCE_S
from loadtests.hostile.abuse.others import Broken
from loadtests.hostile.abuse.rpc_probe import question

METHOD = INFER.encode()
WATCH = b"/grpc.health.v1.Health/Watch"
PATHS = 5
CALLS, CHANNELS = 4_000, 8
UPGRADES = 20_000
BARE = 400  # calls without a whole message, on a connection
IDLE, WATCHES = 2_000, 1_000
HELD_S = 3.0
REFUSALS = (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE)
"""Of a busy gateway, which says when to come back."""


def attacks() -> Iterator[Attack]:
    yield Attack(f"gRPC: a :path that is not UTF-8, {PATHS} times", PATHS * 170, _odd_paths)
    yield Attack(f"gRPC: {CALLS:,} calls at once", CALLS * 250, _calls)
    yield Attack(f"gRPC: {BARE} calls without a whole message", BARE * 160, _bare_calls)
    yield Attack(f"gRPC: {IDLE:,} idle connections", IDLE * 33, _idle)
    yield Attack(f"gRPC: {WATCHES:,} Health.Watch streams", WATCHES * 160, _watches)
    request = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"
    yield Attack(f"REST: {UPGRADES:,} pipelined offers to upgrade", len(request) * UPGRADES, _upgrades)


def rpc_works(gateway: Gateway) -> float:
    """Return the seconds until a good call has its answer. Raises Broken if it gets none."""
    began_s = time.monotonic()
    with grpc.insecure_channel(f"{gateway.host}:{gateway.rpc_port}") as channel:
        infer = channel.unary_unary(INFER, bytes, bytes)
        while True:
            try:
                infer(question(), timeout=PATIENCE_S, wait_for_ready=True)
            except grpc.RpcError as error:
                refused = error.code() in REFUSALS and time.monotonic() - began_s < PATIENCE_S
                if not refused:
                    raise Broken(f"a good call ended as {error.code().name}: {error.details()}") from None
                time.sleep(0.01)
            else:
                return time.monotonic() - began_s


def _connect(gateway: Gateway) -> socket.socket:
    return socket.create_connection((gateway.host, gateway.rpc_port), PATIENCE_S)


def _odd_paths(gateway: Gateway) -> str:
    """Send calls with a path that is not UTF-8; each must have a status."""
    longest_s = 0.0
    for _ in range(PATHS):
        with _connect(gateway) as connection:
            connection.sendall(h2wire.start() + h2wire.call(1, b"/\xff", end=True))
            received = b""
            while h2wire.status(received, 1) is None:
                piece = connection.recv(4096)
                if not piece:
                    raise Broken("the connection of such a call was closed")
                received += piece
        longest_s = max(longest_s, rpc_works(gateway))
    return f"the next call is answered within {longest_s * 1e3:.0f} ms"


def _calls(gateway: Gateway) -> str:
    """Make many calls at once; none may end without an outcome that the gateway gave it."""
    endings = asyncio.run(_called(gateway))
    lost = endings["CANCELLED"] + endings["UNKNOWN"] + endings["INTERNAL"]
    said = ", ".join(f"{count} {name}" for name, count in endings.most_common())
    if lost:
        raise Broken(said)
    return said


async def _called(gateway: Gateway) -> Counter[str]:
    endings: Counter[str] = Counter()
    options = [("grpc.use_local_subchannel_pool", 1)]

    async def ask(infer: Any) -> None:
        try:
            await infer(question(), timeout=PATIENCE_S)
        except grpc.aio.AioRpcError as error:
            endings[error.code().name] += 1
        else:
            endings["OK"] += 1

    async with contextlib.AsyncExitStack() as stack:
        infers = []
        for _ in range(CHANNELS):
            channel = grpc.aio.insecure_channel(f"{gateway.host}:{gateway.rpc_port}", options)
            await stack.enter_async_context(channel)
            infers.append(channel.unary_unary(INFER, bytes, bytes))
        await asyncio.gather(*(ask(infers[number % CHANNELS]) for number in range(CALLS)))
    return endings


def _bare_calls(gateway: Gateway) -> str:
    """Send calls, half without a byte, half with a part of what they state; each must get a status."""
    streams = range(1, 2 * BARE, 2)
    sent = h2wire.start()
    for number, stream in enumerate(streams):
        part = h2wire.message(stream, b"part", stated=100) if number % 2 else b""
        sent += h2wire.call(stream, METHOD, end=not part) + part
    answered: set[int] = set()
    rest = b""
    with _connect(gateway) as connection:
        connection.sendall(sent)
        until_s = time.monotonic() + PATIENCE_S
        while len(answered) < BARE and time.monotonic() < until_s:
            with contextlib.suppress(TimeoutError):
                piece = connection.recv(1 << 16)
                if not piece:
                    break
                rest += piece
            for kind, flags, stream, payload in h2wire.frames(rest):
                rest = rest[9 + len(payload) :]
                if kind == h2wire.HEADERS and flags & h2wire.END_STREAM:
                    answered.add(stream)
    if len(answered) < BARE:
        raise Broken(f"{len(answered)} of {BARE} calls have a status")
    return f"all {BARE} have a status"


def _idle(gateway: Gateway) -> str:
    _raise_descriptors()
    with contextlib.ExitStack() as held:
        for _ in range(IDLE):
            held.enter_context(_connect(gateway)).sendall(h2wire.start())
        time.sleep(HELD_S)
        took_s = rpc_works(gateway)
    return f"a good call beside them takes {took_s * 1e3:.0f} ms"


def _watches(gateway: Gateway) -> str:
    """Open watches on one connection; those over `limits.grpc_watch_count` are refused at once."""
    check = struct.pack(">I", 0)
    with _connect(gateway) as connection:
        sender = threading.Thread(target=_open_watches, args=(connection, b"\0" + check))
        sender.start()
        received = b""
        connection.settimeout(HELD_S)
        with contextlib.suppress(TimeoutError):
            while piece := connection.recv(1 << 16):
                received += piece
        sender.join()
        took_s = rpc_works(gateway)
    ended = sum(
        kind == h2wire.HEADERS and bool(flags & h2wire.END_STREAM)
        for kind, flags, _, _ in h2wire.frames(received)
    )
    return f"{ended} were refused; a good call beside them takes {took_s * 1e3:.0f} ms"


def _open_watches(connection: socket.socket, message: bytes) -> None:
    with contextlib.suppress(OSError):
        connection.sendall(h2wire.start())
        for stream in range(1, 2 * WATCHES, 2):
            body = h2wire.frame(h2wire.DATA, h2wire.END_STREAM, stream, message)
            connection.sendall(h2wire.call(stream, WATCH) + body)


def _upgrades(gateway: Gateway) -> str:
    request = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"
    received = bytearray()
    with socket.create_connection((gateway.host, gateway.rest_port), PATIENCE_S) as connection:
        sender = threading.Thread(target=_send, args=(connection, request * UPGRADES))
        sender.start()
        while piece := connection.recv(1 << 20):
            received += piece
        sender.join()
    stream = io.BytesIO(bytes(received))
    statuses: Counter[int] = Counter()
    while (answer := read_answer(stream)) is not None:
        statuses[answer.status] += 1
    if statuses.total() != UPGRADES:
        raise Broken(f"{statuses.total()} of {UPGRADES} are answered")
    return f"answered: {dict(statuses)}"


def _send(connection: socket.socket, data: bytes) -> None:
    with contextlib.suppress(OSError):
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)


def _raise_descriptors() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
