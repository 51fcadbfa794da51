"""Many clients, or what looks like many, that make the gateway hold bytes, answers or connections."""

import contextlib
import json
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial

import grpc

from loadtests.harness.gateway import Gateway
from loadtests.harness.wire import post
from loadtests.hostile.abuse.bombs import BODY_BYTES, INFER, PATH, PATIENCE_S, Attack, lengthed, varint
from loadtests.hostile.abuse.hostile import OCTETS

ATTACKER = "127.0.0.2"
"""Where the attacks on connections come from; the others are at 127.0.0.1."""
HELD_S = 2.0
_ANSWER_BYTES = 32_000_000


def attacks() -> Iterator[Attack]:
    uploads, readers, silent, scrapers = 40, 40, 4_200, 64
    yield Attack(f"REST: {uploads} uploads of 60 MB, none finished", uploads * 60_000_000, _uploads(uploads))
    yield Attack(f"REST: {readers} readers that take no answer of 32 MB", 0, _readers(readers))
    yield Attack(f"gRPC: {readers} readers that take no answer of 32 MB", 0, partial(_rpc_readers, readers))
    yield Attack(f"REST: {silent:,} silent connections", 0, partial(_silent, silent, _rest_port))
    yield Attack(f"metrics: {scrapers} silent connections", 0, partial(_silent, scrapers, _metrics_port))


def _uploads(count: int) -> Callable[[Gateway], str]:
    """Return each on a connection of its own, held open until all are sent or refused."""

    def play(gateway: Gateway) -> str:
        head = post(PATH, b"", {"Content-Length": BODY_BYTES})
        statuses: Counter[str] = Counter()
        with contextlib.ExitStack() as stack:
            for _ in range(count):
                connection = stack.enter_context(_connect(gateway))
                statuses[_sent(connection, head + bytes(60_000_000))] += 1
        return str(dict(statuses))

    return play


def _readers(count: int) -> Callable[[Gateway], str]:
    """Return an attack: `count` clients each ask for 32 MB back and never read."""
    entry = {"name": "INPUT0", "datatype": "UINT8", "shape": [1, _ANSWER_BYTES]}
    asked = {"binary_data_output": True}
    sized = entry | {"parameters": {"binary_data_size": _ANSWER_BYTES}}
    text = json.dumps({"inputs": [sized], "parameters": asked})
    fields = OCTETS | {"Inference-Header-Content-Length": len(text)}
    question = post(PATH, text.encode() + bytes(_ANSWER_BYTES), fields)

    def play(gateway: Gateway) -> str:
        statuses: Counter[str] = Counter()
        with contextlib.ExitStack() as stack:
            for _ in range(count):
                connection = stack.enter_context(_connect(gateway))
                statuses[_sent(connection, question)] += 1
            time.sleep(HELD_S)
        return str(dict(statuses))

    return play


def _rpc_readers(count: int, gateway: Gateway) -> str:
    """Return the same over gRPC, one call after the other."""
    tensor = lengthed(1, b"INPUT0") + lengthed(2, b"UINT8") + lengthed(3, b"\x01" + varint(_ANSWER_BYTES))
    message = lengthed(1, b"identity") + lengthed(5, tensor) + lengthed(7, bytes(_ANSWER_BYTES))
    calls = []
    with contextlib.ExitStack() as stack:
        for number in range(count):
            apart = (("penstock.attack", number),)  # else all would share one connection
            channel = stack.enter_context(
                grpc.insecure_channel(f"{gateway.host}:{gateway.rpc_port}", options=apart)
            )
            calls.append(channel.stream_stream(INFER)(iter([message]), timeout=PATIENCE_S))
            time.sleep(0.1)
        time.sleep(HELD_S)
        return str(dict(Counter("open" if each.is_active() else each.code().name for each in calls)))


def _silent(count: int, port_of: Callable[[Gateway], int], gateway: Gateway) -> str:
    """Open `count` connections that say nothing for two seconds, and count those closed meanwhile."""
    with contextlib.ExitStack() as stack:
        wires, refused = [], 0
        for _ in range(count):
            try:
                wire = socket.create_connection(
                    (gateway.host, port_of(gateway)), PATIENCE_S, source_address=(ATTACKER, 0)
                )
            except OSError:
                refused += 1
                continue
            wires.append(stack.enter_context(wire))
        time.sleep(HELD_S)
        closed = sum(_is_closed(wire) for wire in wires)
    return f"{count - refused - closed} held, {closed} closed, {refused} refused"


def _rest_port(gateway: Gateway) -> int:
    return gateway.rest_port


def _metrics_port(gateway: Gateway) -> int:
    return gateway.metrics_port


def _is_closed(wire: socket.socket) -> bool:
    wire.setblocking(False)
    try:
        while wire.recv(1 << 16):
            pass
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _connect(gateway: Gateway) -> socket.socket:
    connection = socket.create_connection((gateway.host, gateway.rest_port), PATIENCE_S)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    return connection


def _sent(connection: socket.socket, data: bytes) -> str:
    try:
        connection.sendall(data)
    except OSError as error:
        return type(error).__name__
    return "sent"
