"""What TLS costs the gateway, in us of CPU: a REST request on an open connection, and a handshake.

python -m loadtests.edge.tls_cost [--rounds 40]

A client in this process encrypts all requests of a round before
the round is timed, and decrypts the answers after it: only the gateway's side counts. The `openssl` program
makes the certificates.
"""

import argparse
import asyncio
import ssl
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import thread_time_ns
from typing import Any, Final

from uvicorn.config import Config
from uvicorn.server import ServerState

from loadtests.edge import key_cost
from router.http.fastpath.edge import FastEdge
from router.http.fastpath.protocol import FastProtocol
from router.security.tls.stream import TlsTransport
from router.settings.door.certificates import make_context
from router.settings.door.tls import TlsSettings
from serving.compiled import is_compiled
from serving.values.specs import Limits

REQUESTS: Final = 1_000  # a round
HANDSHAKES: Final = 100
KINDS: Final = {"EC P-256": ("ec", "-pkeyopt", "ec_paramgen_curve:P-256"), "RSA 2048": ("rsa:2048",)}


class Gate:
    """Lets a handshake take its steps at once."""

    handshake_s = 60.0

    def enter(self, comer: TlsTransport) -> None:
        """Do nothing."""

    def leave(self, guest: TlsTransport, why: str = "") -> None:
        """Do nothing."""

    def failed(self, guest: TlsTransport, error: ssl.SSLError) -> None:  # noqa: ARG002  # the gate's
        """Raise the error: no handshake is to fail here."""
        raise error

    def compute(self, step: Callable[[], None]) -> "asyncio.Future[None]":
        """Make the step here and now."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        try:
            step()
            done.set_result(None)
        except ssl.SSLError as error:
            done.set_exception(error)
        return done


class Wire(key_cost.Sink):
    """Keeps what the gateway writes, for the client."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[bytes] = []

    def write(self, data: Any) -> None:
        """Keep the bytes."""
        self.held.append(bytes(data))

    def pause_reading(self) -> None:
        """Do nothing."""

    def resume_reading(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""

    def abort(self) -> None:
        """Do nothing."""


class Client:
    """The other side of a connection, without a socket."""

    def __init__(self) -> None:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing)

    def step(self) -> bytes:
        """Take the handshake on; return what is to be sent."""
        with suppress(ssl.SSLWantReadError):
            self.tls.do_handshake()
        return self.outgoing.read()

    def encrypted(self, data: bytes) -> bytes:
        """Return the bytes as they are sent."""
        self.tls.write(data)
        return self.outgoing.read()

    def take(self, held: list[bytes]) -> int:
        """Decrypt what was answered; return how many bytes there were."""
        self.incoming.write(b"".join(held))
        held.clear()
        count = 0
        try:
            while True:
                count += len(self.tls.read(1 << 16))
        except ssl.SSLWantReadError:
            return count


def main() -> None:
    """Print what TLS costs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=40)
    rounds = parser.parse_args().rounds
    how = "compiled" if is_compiled() else "interpreted"
    print(f"us of CPU of the gateway, {how}, {ssl.OPENSSL_VERSION.split(' 2')[0].split('  ')[0]}, TLS 1.3")
    with TemporaryDirectory() as folder:
        pairs = {name: _pair(Path(folder, name.replace(" ", "")), kind) for name, kind in KINDS.items()}
        asyncio.run(_measure(pairs, rounds))


def _pair(folder: Path, kind: tuple[str, ...]) -> TlsSettings:
    folder.mkdir()
    command = (
        "openssl",
        "req",
        "-x509",
        "-newkey",
        *kind,
        "-nodes",
        "-keyout",
        "key.pem",
        "-out",
        "cert.pem",
    )
    subprocess.run(
        (*command, "-days", "2", "-subj", "/CN=localhost"), cwd=folder, check=True, capture_output=True
    )  # our own words
    return TlsSettings(folder / "cert.pem", folder / "key.pem")


async def _measure(pairs: dict[str, TlsSettings], rounds: int) -> None:
    core = key_cost.Core()
    data = key_cost.request_of(core, "")
    plain, secure = (
        key_cost.connect(core, None),
        await _connected(core, make_context(next(iter(pairs.values())))),
    )
    off, on = [], []
    for _ in range(rounds + 1):
        off.append(key_cost.round_us(plain, data, core))
        on.append(_round_us(*secure, data, core))
    off, on = sorted(off[1:]), sorted(on[1:])  # the first one warms up
    more = median(b - a for a, b in zip(off, on, strict=True))
    print(f"REST, median of {rounds} rounds of {REQUESTS} requests:")
    print(f"  plain {median(off):.1f}, TLS {median(on):.1f}: {more:.1f} more")
    print(f"  half of the rounds took {off[rounds // 4]:.1f} to {off[3 * rounds // 4]:.1f} without")
    for name, tls in pairs.items():
        context = make_context(tls)
        taken = [await _handshake_us(context) for _ in range(HANDSHAKES)]
        print(f"a handshake, {name}: {median(taken):.0f}")


async def _connected(core: key_cost.Core, context: ssl.SSLContext) -> tuple[TlsTransport, Wire, Client]:
    async def nothing(scope: object, receive: object, send: object) -> None:
        """Do nothing: an ASGI application that is never asked."""

    config = Config(nothing, interface="asgi3", ws="none", lifespan="off", log_config=None, access_log=False)
    config.load()
    edge = FastEdge(core, Limits(), ServerState())
    transport = TlsTransport(Gate(), context, lambda: FastProtocol(config, edge))
    wire, client = Wire(), Client()
    transport.connection_made(wire)
    for _ in range(2):
        transport.data_received(client.step())
        await asyncio.sleep(0)
        client.incoming.write(b"".join(wire.held))
        wire.held.clear()
    return transport, wire, client


def _round_us(transport: TlsTransport, wire: Wire, client: Client, data: bytes, core: key_cost.Core) -> float:
    asked = [client.encrypted(data) for _ in range(REQUESTS)]
    before, begin_ns = core.completed, thread_time_ns()
    for each in asked:
        transport.data_received(each)
    taken_us = (thread_time_ns() - begin_ns) / 1e3 / REQUESTS
    if core.completed - before != REQUESTS or not client.take(wire.held):
        raise RuntimeError(f"{core.completed - before} of {REQUESTS} requests were completed")
    return taken_us


async def _handshake_us(context: ssl.SSLContext) -> float:
    """Return what the gateway's side of a handshake takes."""
    transport = TlsTransport(Gate(), context, asyncio.Protocol)
    wire, client, taken_ns = Wire(), Client(), 0
    transport.connection_made(wire)
    for _ in range(2):
        sent = client.step()
        begin_ns = thread_time_ns()
        transport.data_received(sent)
        await asyncio.sleep(0)
        taken_ns += thread_time_ns() - begin_ns
        client.incoming.write(b"".join(wire.held))
        wire.held.clear()
    transport.connection_lost(None)
    return taken_ns / 1e3


if __name__ == "__main__":
    main()
