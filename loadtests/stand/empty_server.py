"""A server that computes nothing: it sleeps for as long as it is told to, and gives an answer made before.

It says in `Server-Timing` how long it held a request. What a client measures beyond that is its own work and
the transport's: the kernel's over REST, and grpc's library's over gRPC. It sleeps, as a process on an idle
core takes longer to wake than on a busy one: so do a gateway's client, and the gateway.
"""

import asyncio
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from time import perf_counter_ns, sleep
from typing import Any, cast  # grpc carries no types

import grpc
import uvloop

from loadtests.harness.wire import Answer, parse_head

METHOD = "/inference.GRPCInferenceService/ModelInfer"


@dataclass(frozen=True, slots=True)
class Made:
    """The answers: over REST to a JSON request and to a binary one, over gRPC the message and the trailing
    metadata; and for how long each request is held."""

    rest: Sequence[Answer]
    message: bytes
    metadata: Sequence[tuple[str, str]]
    hold_s: float

    def hold(self, began_ns: int) -> str:
        """Sleep, and say as `Server-Timing` does how long the request has been here."""
        sleep(self.hold_s)
        return f"own;dur={(perf_counter_ns() - began_ns) / 1e6:.3f}"


class _Rest(asyncio.Protocol):
    """A connection on which one request comes after the other."""

    def __init__(self, made: Made) -> None:
        self._made = made
        self._heads = [_head(each) for each in made.rest]
        self._received = b""
        self._began_ns = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._began_ns = self._began_ns if self._received else perf_counter_ns()
        self._received += data
        head, end, body = self._received.partition(b"\r\n\r\n")
        if not end:
            return
        fields = parse_head(b"HTTP/1.1 200 OK\r\n" + head.partition(b"\r\n")[2])[1]
        if len(body) < int(fields["content-length"]):
            return
        self._received = b""
        binary = "inference-header-content-length" in fields
        timing = self._made.hold(self._began_ns).encode()
        self._transport.write(
            b"%bserver-timing: %b\r\n\r\n%b" % (self._heads[binary], timing, self._made.rest[binary].body)
        )


def _head(answer: Answer) -> bytes:
    """Return the head of the answer without the field that is new in each answer, and without the empty
    line."""
    kept = [f"{name}: {value}\r\n" for name, value in answer.headers.items() if name != "server-timing"]
    return f"HTTP/1.1 200 OK\r\n{''.join(kept)}".encode("latin-1")


class _Rpc(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc carries no types
    """The method for inference, which reads its message as the gateway does."""

    def __init__(self, made: Made) -> None:
        self._made = made

    def service(self, details: Any) -> Any:
        """Return the handler of a call."""
        return grpc.stream_unary_rpc_method_handler(self._answer) if details.method == METHOD else None

    async def _answer(self, _requests: Any, context: Any) -> bytes:
        began_ns = perf_counter_ns()
        await context.read()
        timing = self._made.hold(began_ns)
        context.set_trailing_metadata((*self._made.metadata, ("server-timing", timing)))
        return self._made.message


@contextmanager
def empty_server(made: Made, cores: set[int]) -> Iterator[tuple[int, int]]:
    """Yield the ports for REST and for gRPC of such a server, in a process of its own on these cores."""
    spawn = get_context("spawn")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=_serve, args=(theirs, made, cores), daemon=True)
    process.start()
    try:
        yield ours.recv()
    finally:
        process.terminate()
        process.join()


def _serve(ports: Connection, made: Made, cores: set[int]) -> None:
    os.sched_setaffinity(0, cores)

    async def serve() -> None:
        rest = await asyncio.get_running_loop().create_server(lambda: _Rest(made), "127.0.0.1", 0)
        rpc = grpc.aio.server()
        rpc.add_generic_rpc_handlers((_Rpc(made),))
        rpc_port = rpc.add_insecure_port("127.0.0.1:0")
        await rpc.start()
        ports.send((rest.sockets[0].getsockname()[1], rpc_port))
        await rest.serve_forever()

    uvloop.run(serve())
