"""Both edges on ports of their own, joined as in a gateway, and a client of each version of HTTP."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

import ngh2

from router.grpc.fastrpc import FastRpcServer
from router.grpc.servers import join
from router.http.app import create_app
from router.http.fastpath import RestServer, create_server
from router.payloads.bulk.pool import Bulk
from router.security.auth.guard import KeyGuard
from serving.values.specs import Limits
from tests.router.fakes import FakeServing
from tests.router.grpc.fastrpc.client import Client
from tests.router.http.fastpath.wire import Answer

TIMED = ("date", "server-timing")
"""Fields whose values are never the same twice."""
OF_HTTP1 = ("connection", "transfer-encoding")


class Edges:
    """`ports`: of REST and of gRPC."""

    def __init__(self, serving: FakeServing, rest: RestServer, rpc: FastRpcServer) -> None:
        self.serving = serving
        self.rest = rest
        self.rpc = rpc
        self.ports: tuple[int, int] = (0, 0)


@contextlib.asynccontextmanager
async def edges(
    limits: Limits | None = None,
    guard: KeyGuard | None = None,
    direct: bool = True,
    cors: tuple[str, ...] = (),
) -> AsyncIterator[Edges]:
    """`direct`: inference goes the fast path's way, and not the application's. `cors`: origins of pages."""
    limits = limits or Limits()
    serving, bulk = FakeServing(), Bulk(limits)
    statistics = serving.telemetry.statistics
    app = create_app(serving, statistics, name="penstock", version="0.1.0", bulk=bulk)
    rest = create_server(serving, app, "127.0.0.1", 0, limits, direct=direct)
    rpc = FastRpcServer(serving, "penstock", "0.1.0", limits, "127.0.0.1", statistics)
    rest.use(bulk)
    rpc.count(rest.account)
    if guard is not None:
        rest.ask_for_keys(guard)
        rpc.ask_for_keys(guard)
    if cors:
        rest.allow_origins(cors)
    join(rest, rpc, lambda: None)
    found = Edges(serving, rest, rpc)
    await bulk.start(0)
    found.ports = await rest.start(), await rpc.start(0)
    try:
        yield found
    finally:
        await asyncio.gather(rest.drain(0), rpc.stop(0))
        await bulk.close()


@dataclass(frozen=True)
class Asked:
    """A request; `fields` in lower case."""

    method: str
    path: str
    body: bytes = b""
    fields: tuple[tuple[str, str], ...] = ()


async def over_http1(port: int, asked: Asked) -> Answer:
    """The answer on a connection of its own."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = [f"{asked.method} {asked.path} HTTP/1.1", "host: test"]
    head += [f"{name}: {value}" for name, value in asked.fields]
    if asked.body:
        head.append(f"content-length: {len(asked.body)}")
    writer.write(("\r\n".join(head) + "\r\n\r\n").encode() + asked.body)
    async with asyncio.timeout(60):
        first, *named = (await reader.readuntil(b"\r\n\r\n")).decode().rstrip().split("\r\n")
        fields = {name.lower(): value for name, value in (each.split(": ", 1) for each in named)}
        size = 0 if asked.method == "HEAD" else int(fields["content-length"])
        body = await reader.readexactly(size)
    writer.close()
    return Answer(int(first.split()[1]), fields, body)


@contextlib.asynccontextmanager
async def http2(port: int) -> AsyncIterator[Client]:
    client = Client(*await asyncio.open_connection("127.0.0.1", port))
    client.taking = True
    try:
        yield client
    finally:
        client.writer.close()


def begin(client: Client, asked: Asked) -> int:
    """Send a request; returns its stream."""
    head = [(":method", asked.method), (":scheme", "http"), (":path", asked.path), (":authority", "test")]
    if asked.body:
        head.append(("content-length", str(len(asked.body))))
    named = tuple((name.encode(), value.encode()) for name, value in (*head, *asked.fields))
    stream = client.http.send_request(named, end_stream=not asked.body)
    if asked.body:
        client.http.send_data(stream, asked.body, end_stream=True)
    return stream


async def answer(client: Client, stream: int) -> Answer:
    """The whole answer on a stream."""
    await client.until(lambda: any(_ends(each, stream) for each in client.seen))
    fields: dict[str, str] = {}
    body = b""
    for each in client.seen:
        if isinstance(each, ngh2.ResponseReceived) and each.stream_id == stream:
            fields = {name.decode(): value.decode() for name, value in each.headers}
        elif isinstance(each, ngh2.DataReceived) and each.stream_id == stream:
            body += each.data
    return Answer(int(fields.pop(":status", "0")), fields, body)


def _ends(event: ngh2.Event, stream: int) -> bool:
    if isinstance(event, ngh2.ResponseReceived | ngh2.DataReceived):
        return event.stream_id == stream and event.end_stream
    return isinstance(event, ngh2.StreamReset) and event.stream_id == stream


async def over_http2(port: int, asked: Asked) -> Answer:
    async with http2(port) as client:
        return await answer(client, begin(client, asked))


def said(found: Answer) -> tuple[int, dict[str, str], bytes]:
    """What two answers to one question have in common."""
    fields = {name: value for name, value in found.fields.items() if name not in (*TIMED, *OF_HTTP1)}
    return found.status, fields, found.body
