"""A REST server in a thread, and a client that writes bytes: what HTTP libraries would not send."""

import asyncio
import json
import socket
import ssl
import struct
import threading
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, TypedDict, TypeVar, Unpack

import uvloop

from router.http.app import create_app
from router.http.endpoints.routes import add_endpoints
from router.http.fastpath import RestServer, create_server
from router.management.sharedmemory import add_shared_memory
from router.payloads.bulk.pool import Bulk
from router.payloads.regions.registry import open_registry
from router.security.auth.guard import KeyGuard
from router.security.tls import Gate
from router.settings.values.client_shm import ClientShm
from serving.values.specs import Limits
from tests.router.fakes import FakeServing

T = TypeVar("T")

SIMPLE_INFER = "/v2/models/simple/infer"

PATIENCE_S = 60.0
"""How long a step may take on a machine that stands still at times."""

LIMITS = Limits(body_bytes=1 << 20, header_bytes=16 << 10, header_count=64, write_buffer_bytes=64 << 10)


class Loop(uvloop.Loop):
    """Its clock can be put forward."""

    ahead_s = 0.0

    def time(self) -> float:
        return super().time() + self.ahead_s


class Doors(TypedDict, total=False):
    """What a server may have beside its limits: callers with keys, TLS, shared memory of clients, another
    core, origins of web pages."""

    guard: KeyGuard | None
    gate: Gate | None
    shm: ClientShm | None
    serving: FakeServing
    cors: tuple[str, ...]


class Running:
    """A server on a port of its own until `stop`; its event loop runs in a thread, so tests may block."""

    def __init__(
        self,
        limits: Limits = LIMITS,
        *,
        direct: bool = True,
        access: bool = False,
        processes: int = 0,
        **doors: Unpack[Doors],
    ) -> None:
        self.serving = doors.get("serving") or FakeServing()
        self.tls: ssl.SSLContext | None = None  # what clients trust and show
        self._gate = doors.get("gate")
        self.bulk = Bulk(limits)
        self.regions = open_registry(
            doors.get("shm"), limits, self.bulk, lambda: self.server.account.refusal()
        )
        self._access = access
        self._guard = doors.get("guard")
        self._cors = doors.get("cors", ())
        self._limits = limits
        self.direct = direct
        self.loop = Loop()
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()
        self.run(self.bulk.start(processes))
        self.server, self.port = self._start()

    def _start(self) -> tuple[RestServer, int]:
        statistics = self.serving.telemetry.statistics
        app = create_app(self.serving, statistics, name="penstock", version="0.1.0", bulk=self.bulk)
        add_shared_memory(app, self.regions)
        add_endpoints(app, self.serving, self.bulk, self.serving.telemetry.endpoint_asked)
        server = create_server(self.serving, app, "127.0.0.1", 0, self._limits, direct=self.direct)
        server.use(self.bulk)
        if self.regions is not None:
            server.share(self.regions)
        if self._guard is not None:
            server.ask_for_keys(self._guard)
        if self._cors:
            server.allow_origins(self._cors)
        if self._access:
            server.log_access()
        if self._gate is not None:
            server.encrypt(self._gate)
        return server, self.run(server.start())

    def restart(self) -> None:
        """A new server after the old one was drained."""
        self.server, self.port = self._start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine on the server's loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(PATIENCE_S)

    def settle(self) -> None:
        """Until the loop has done what it was given before."""
        for _ in range(3):
            self.run(asyncio.sleep(0))

    def wait_left(self) -> None:
        """Until the server has noticed that all its clients have left."""
        self.run(self.server._edge.closed.wait())

    def pass_time(self, seconds: float) -> None:
        """So long passes for the limits on connections: a machine that stands still is no idle client."""
        self.run(self._look())
        self.loop.ahead_s += seconds
        self.run(self._look())

    async def _look(self) -> None:
        sweep = self.server._edge.sweep
        sweep.stop()
        sweep.start()  # looks at once

    def stop(self) -> None:
        self.run(self.server.drain(0.5))
        self.run(self.bulk.close())
        if self._gate is not None:
            self.loop.call_soon_threadsafe(self._gate.close)
        self.settle()  # a handshake's socket closes a turn later
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    def connect(self, receive_buffer_bytes: int = 0, source: str = "127.0.0.1") -> "Wire":
        return Wire(self.port, receive_buffer_bytes, source, self.tls)

    def ask(self, data: bytes, source: str = "127.0.0.1") -> "Answer":
        """One request on a connection of its own."""
        with self.connect(source=source) as wire:
            wire.send(data)
            return wire.read()


@dataclass(frozen=True)
class Answer:
    """A response as it came: field names in lower case."""

    status: int
    fields: dict[str, str]
    body: bytes

    @property
    def error(self) -> str:
        """The sentence of an error answer, which must be JSON."""
        assert self.fields["content-type"] == "application/json", self
        message = json.loads(self.body)["error"]
        assert isinstance(message, str)
        return message


class Wire:
    """One connection, blocking, `PATIENCE_S` at most per step. `source`: the client's address.
    `tls`: what the client trusts and shows, where it speaks TLS."""

    def __init__(
        self,
        port: int,
        receive_buffer_bytes: int = 0,
        source: str = "127.0.0.1",
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.socket = socket.socket()
        self.socket.bind((source, 0))
        if receive_buffer_bytes:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self.socket.settimeout(PATIENCE_S)
        try:
            self.socket.connect(("127.0.0.1", port))
            if tls is not None:
                self.socket = tls.wrap_socket(self.socket, server_hostname="localhost")
        except OSError:
            self.socket.close()
            raise
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self.socket.makefile("rb")

    def __enter__(self) -> "Wire":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def end(self) -> None:
        """Finish sending; still read."""
        self.socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._file.close()
        self.socket.close()

    def reset(self) -> None:
        """Leave without a goodbye."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def read(self) -> Answer:
        """The next final answer; interim ones are skipped, as HTTP/1.1 asks of every client."""
        while True:
            status, fields = self.read_head()
            if status >= 200:
                return Answer(status, fields, self._read_body(fields))

    def read_head(self) -> tuple[int, dict[str, str]]:
        version, status, _ = self._line().split(" ", 2)
        assert version == "HTTP/1.1"
        fields = {}
        while line := self._line():
            name, _, value = line.partition(": ")
            fields[name.lower()] = value
        return int(status), fields

    def at_end(self) -> bool:
        """Whether the server has closed, with nothing more to read."""
        return self._file.read(1) == b""

    def _line(self) -> str:
        line = self._file.readline()
        assert line.endswith(b"\r\n"), f"the server closed early: {line!r}"
        return line[:-2].decode("latin-1")

    def _read_body(self, fields: dict[str, str]) -> bytes:
        if "content-length" in fields:
            return self._file.read(int(fields["content-length"]))
        assert fields["transfer-encoding"] == "chunked"
        body = b""
        while size := int(self._line(), 16):
            body += self._file.read(size)
            self._line()
        self._line()
        return body


def request(path: str = SIMPLE_INFER, body: bytes = b"", method: str = "POST", **fields: str | None) -> bytes:
    """A request; underscores in field names are hyphens; `content_length=None` leaves that field out."""
    named: dict[str, str | None] = {"host": "test", "content-length": str(len(body))}
    named |= {name.replace("_", "-"): value for name, value in fields.items()}
    head = [f"{method} {path} HTTP/1.1"] + [f"{n}: {v}" for n, v in named.items() if v is not None]
    return ("\r\n".join(head) + "\r\n\r\n").encode("latin-1") + body


def get(path: str) -> bytes:
    return request(path, method="GET", content_length=None)


def body_of(number: int, **more: object) -> bytes:
    """JSON for `simple`: INPUT0 all `number`, INPUT1 all 1."""
    inputs = [
        {"name": name, "shape": [1, 16], "datatype": "INT32", "data": [value] * 16}
        for name, value in (("INPUT0", number), ("INPUT1", 1))
    ]
    return json.dumps({"inputs": inputs, **more}).encode()


def infer(number: int, path: str = SIMPLE_INFER, **fields: str) -> bytes:
    return request(path, body_of(number), **fields)


def binary_infer(number: int) -> bytes:
    """The same with binary tensors in and out."""
    inputs = [
        {"name": name, "shape": [1, 16], "datatype": "INT32", "parameters": {"binary_data_size": 64}}
        for name in ("INPUT0", "INPUT1")
    ]
    head = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}}).encode()
    data = struct.pack("<16i", *[number] * 16) + struct.pack("<16i", *[1] * 16)
    return request(body=head + data, inference_header_content_length=str(len(head)))


def total(answer: Answer) -> int:
    """The first element of OUTPUT0 of a good JSON answer: `number` + 1."""
    assert answer.status == 200, answer
    value = json.loads(answer.body)["outputs"][0]["data"][0]
    assert isinstance(value, int)
    return value


def chunked(body: bytes, size: int = 50, trailer: bytes = b"") -> bytes:
    """`body` in chunks of at most `size` bytes."""
    pieces = [body[i : i + size] for i in range(0, len(body), size)]
    return b"".join(b"%x\r\n%b\r\n" % (len(p), p) for p in pieces) + b"0\r\n" + trailer + b"\r\n"
