"""What the gateway prints: a reader that is gone or stalled, and clients that make it print."""

import contextlib
import os
import signal
import socket
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import grpc

from loadtests.harness.gateway import ROOT, Gateway, model_entry, served, settings_of
from loadtests.harness.wire import ask, post
from loadtests.hostile import h2wire
from loadtests.hostile.abuse.bombs import INFER, Attack
from loadtests.hostile.abuse.edges import rpc_works
from loadtests.hostile.abuse.hostile import PATH, PATIENCE_S, good_body, is_right
from loadtests.hostile.abuse.others import Broken
from loadtests.hostile.abuse.rpc_probe import question

LINES = 5_000  # answers, each with a line of the access log: ten times what a pipe holds
OFTEN = 500  # of each thing that a client can do to be logged
LOG_BYTES_MAX = 100_000
BACK_S = 30.0
SETTINGS = settings_of([model_entry("simple", slo_ms=5000)], (), ROOT / "profiles")
FORGED = b"\n2026-01-01 00:00:00,000 ERROR forged"


def attacks() -> Iterator[Attack]:
    yield Attack("stdout: its reader is gone, a worker is killed twice", 0, _kill, own=_unread, refuses=True)
    yield Attack(f"stdout: its reader is stalled, {LINES:,} access lines", 0, _lines, own=_stalled)
    logged = _Logged()
    yield Attack(
        f"log: {3 * OFTEN:,} things that clients may be logged for", 0, logged.noise, own=logged.start
    )


@contextlib.contextmanager
def _unread() -> Iterator[Gateway]:
    reader, writer = os.pipe()
    with served(SETTINGS, writer) as gateway:
        os.close(writer)
        os.close(reader)
        yield gateway


@contextlib.contextmanager
def _stalled() -> Iterator[Gateway]:
    reader, writer = os.pipe()
    try:
        with served(SETTINGS | {"logging": {"access": True}}, writer) as gateway:
            yield gateway
    finally:
        os.close(writer)
        os.close(reader)


def _kill(gateway: Gateway) -> str:
    """Kill the workers twice; each death has a line, and the gateway must go on."""
    began_s = time.monotonic()
    for _ in range(2):
        for worker in gateway.workers():
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)
        _until_right(gateway)
    return f"right again, twice, within {time.monotonic() - began_s:.1f} s"


def _until_right(gateway: Gateway) -> None:
    until_s = time.monotonic() + BACK_S
    while time.monotonic() < until_s:
        with contextlib.suppress(OSError):
            if is_right(ask(gateway, post(PATH, good_body()), PATIENCE_S)):
                return
        time.sleep(0.1)
    raise Broken(f"no right answer within {BACK_S:.0f} s")


def _lines(gateway: Gateway) -> str:
    request = b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n"
    received = 0
    with socket.create_connection((gateway.host, gateway.rest_port), PATIENCE_S) as connection:
        for _ in range(LINES // 100):
            connection.sendall(request * 100)
            wanted = received + 100
            while received < wanted:
                received += connection.recv(1 << 16).count(b"HTTP/1.1 200")
    _until_right(gateway)
    return f"{received} answers"


class _Logged:
    """A gateway that prints into a file."""

    def __init__(self) -> None:
        self._path = ""

    @contextlib.contextmanager
    def start(self) -> Iterator[Gateway]:
        with tempfile.NamedTemporaryFile() as file, served(SETTINGS, file.fileno()) as gateway:
            self._path = file.name
            yield gateway

    def noise(self, gateway: Gateway) -> str:
        """Play deadlines that pass, metadata that is not UTF-8, GOAWAYs with lines of their own and cut
        bodies."""
        endings = _short_deadlines(gateway)
        _odd_calls(gateway)
        _cut_bodies(gateway)
        rpc_works(gateway)
        said = Path(self._path).read_bytes()
        if len(said) > LOG_BYTES_MAX or b"Traceback" in said or FORGED in said:
            raise Broken(f"the log has {len(said)} bytes, {said.count(b'Traceback')} tracebacks")
        lines = said.count(b"\n")
        return f"{lines} lines, {len(said)} bytes of log; {dict(endings)}"


def _short_deadlines(gateway: Gateway) -> Counter[str]:
    endings: Counter[str] = Counter()
    with grpc.insecure_channel(f"{gateway.host}:{gateway.rpc_port}") as channel:
        infer = channel.unary_unary(INFER, bytes, bytes)
        for number in range(OFTEN):
            try:
                infer(question(), timeout=0.0005 * (1 + number % 10))
            except grpc.RpcError as error:
                endings[error.code().name] += 1
            else:
                endings["OK"] += 1
    return endings


def _odd_calls(gateway: Gateway) -> None:
    for number in range(OFTEN):
        with socket.create_connection((gateway.host, gateway.rpc_port), PATIENCE_S) as connection:
            call = h2wire.call(1, INFER.encode(), (b"x-odd", b"\xff\xfe")) + h2wire.message(1, b"\x0a\xffno")
            connection.sendall(h2wire.start() + call + (h2wire.goaway(FORGED) if number % 2 else b""))


def _cut_bodies(gateway: Gateway) -> None:
    put = post("/v2/placement", b"x" * 100).replace(b"POST", b"PUT")[:-50]
    for request in (put, post("/v2/repository/models/simple/load", b"x" * 100)[:-50]):
        for number in range(OFTEN // 2):
            port = gateway.admin_port if number % 2 else gateway.rest_port
            with socket.create_connection((gateway.host, port), PATIENCE_S) as connection:
                connection.sendall(request)
