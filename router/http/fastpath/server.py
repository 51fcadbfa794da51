"""The REST server: listens, stops listening, drains. Signals are its owner's (`router/startup/serve.py`).

uvicorn's own Server is not used: it captures signals and raises them again after its shutdown.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from starlette.middleware.cors import CORSMiddleware
from uvicorn.config import Config
from uvicorn.server import ServerState

from router.http.fastpath.connection import Connection
from router.http.fastpath.edge import FastEdge
from router.http.fastpath.protocol import FastProtocol
from router.listening import BACKLOG, Listening, SocketFile, is_listening
from router.logs.access import logged, say_access
from router.payloads.bulk.pool import Bulk
from router.payloads.regions.registry import Regions
from router.protocol.account import Account
from router.security.auth.asgi import guarded
from router.security.auth.guard import KeyGuard
from router.security.tls.gate import Gate
from serving.ports import Serving
from serving.values.specs import Limits, ServedModel

logger = logging.getLogger(__name__)

HTTP1 = "http/1.1"
"""What every port for REST speaks, by its name of ALPN (RFC 7301)."""
BOTH = ("h2", HTTP1)
"""The dearest first. All connections get one protocol, which knows HTTP/2 by its preface."""

Application = Callable[..., Awaitable[None]]
"""An ASGI application."""


class RestServer:
    """Serves one address; made by `create_server`, started and drained once, on one event loop."""

    def __init__(self, config: Config, edge: FastEdge) -> None:
        self._config = config
        self._edge = edge
        self.tcp = Listening()
        self._listener: asyncio.Server | None = None  # on a Unix socket
        self._port = config.port
        self._file: SocketFile | None = None
        self._name = "REST"
        self._connect: Callable[[], asyncio.Protocol] = self._make

    @property
    def listening(self) -> bool:
        """Whether connections are taken."""
        if self._file is None:
            return self.tcp.is_open
        return is_listening(self._listener) and self._file.is_there

    async def start(self) -> int:
        """Listen; returns the port (the one chosen by the system where 0 was asked for; a socket has none).

        Raises OSError, naming the address, where it cannot be had.
        """
        self._config.load()
        await self.again()
        return self._port

    async def again(self) -> None:
        """Listen (again), on the port that was bound before; open connections go on. OSError as `start`."""
        self.stop_listening()
        loop = asyncio.get_running_loop()
        host, port, file = self._config.host, self._port, self._file
        try:
            if file is None:
                self._port = await self.tcp.open(self._connect, host, port)
            else:
                self._listener = await loop.create_unix_server(self._make, sock=file.bind(), backlog=BACKLOG)
        except OSError as error:
            reason = (error.strerror or str(error)).rpartition(": ")[2]  # asyncio puts the address before it
            where = f"{host}:{port}" if file is None else file.path
            raise OSError(f"cannot serve {self._name} on {where}: {reason}") from error

    def _make(self) -> FastProtocol:
        return FastProtocol(self._config, self._edge)

    def encrypt(self, gate: Gate) -> None:
        """Speak TLS, unless on a Unix socket. Call this before `start`."""
        self._connect = gate.behind(self._make, self._spoken)

    def _spoken(self) -> Sequence[str]:
        return (HTTP1,) if self._edge.http2 is None else BOTH

    def listen_as(self, name: str, path: Path | None = None) -> None:
        """Call this server `name` in errors; with `path`, listen on a Unix socket there. Call this before
        `start`."""
        self._name = name
        self._file = SocketFile(path) if path is not None else None

    def ask_for_keys(self, guard: KeyGuard) -> None:
        """Require keys: let in only callers that the guard lets in. Call this before `log_access` and
        `start`."""
        self._edge.guard = guard
        app = guarded(self._config.app, guard, self._edge.serving)  # type: ignore[arg-type]  # as given
        self._config.app = app

    def allow_origins(self, origins: Sequence[str]) -> None:
        """Let web pages of these origins call (CORS, Fetch Standard 3.3).

        Call this after `ask_for_keys`, because a browser's question before a call has no key. Call it before
        `log_access` and `start`.
        """
        self._edge.cors = True
        app: Any = self._config.app
        self._config.app = CORSMiddleware(
            app, origins, allow_methods=("GET", "POST"), allow_headers=("*",), expose_headers=("*",)
        )

    def speak_http2(self, make: Callable[[], asyncio.Protocol]) -> None:
        """Give connections whose clients begin with HTTP/2's preface to protocols that `make` makes."""
        self._edge.http2 = make

    @property
    def behind(self) -> tuple[FastEdge, Application]:
        """What answers requests, for another protocol that brings them. Read this after `ask_for_keys` and
        `log_access`."""
        app: Any = self._config.app
        return self._edge, app

    def log_access(self) -> None:
        """Log each answer from now on; before `start`."""
        self._edge.access = say_access
        self._config.app = logged(self._config.app)  # type: ignore[arg-type]  # an application, as given

    def use(self, bulk: Bulk) -> None:
        """Read and write large bodies with `bulk`. Call this before `start`."""
        self._edge.bulk = bulk

    def share(self, regions: Regions) -> None:
        """Serve tensors in these regions of clients' shared memory. Call this before `start`."""
        self._edge.regions = regions

    @property
    def account(self) -> Account:
        """What clients make this server hold."""
        return self._edge.account

    @property
    def connection_counts(self) -> tuple[int, int]:
        """Open connections with a regular place, and with one of the reserve."""
        return self._edge.places.counts()

    @property
    def turned_out(self) -> tuple[int, int]:
        """Idle connections that were closed to make room, and connections for which there was none."""
        return self._edge.places.pushed_out, self._edge.places.refused

    def serve(self, models: Mapping[str, ServedModel]) -> None:
        """Let the fast path call these models from now on, and no others."""
        self._edge.serve(models)

    def stop_listening(self) -> None:
        """Refuse new connections; the open ones are still served."""
        self.tcp.close()
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        if self._file is not None:
            self._file.remove()

    def give_away(self) -> list[socket.socket]:
        """Return the connections that wait for a request, for the next gateway; they are closed here. With
        TLS they cannot be given away, and end."""
        given: list[socket.socket] = []
        for connection in tuple(self._edge.state.connections):
            if self._connect != self._make:
                connection.shutdown()
            elif isinstance(connection, Connection) and connection.at_rest:
                transport: Any = connection.transport
                given.append(socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno())))
                transport.abort()
        return given

    @property
    def connection_count(self) -> int:
        """Open connections, whatever they wait for."""
        return len(self._edge.state.connections)

    async def take_on(self, given: socket.socket) -> None:
        """Serve a connection that the gateway before has given away."""
        await asyncio.get_running_loop().connect_accepted_socket(self._make, given)

    async def drain(self, timeout_s: float) -> bool:
        """Answer what was asked, close each connection after its last answer, idle ones at once.

        True where all of it was done within `timeout_s`; what remains then is cut off. Both ways
        count: requests of the fast path and of the ASGI application.
        """
        self.stop_listening()
        self._edge.draining = True
        state = self._edge.state
        for connection in tuple(state.connections):
            connection.shutdown()
        try:
            async with asyncio.timeout(timeout_s):
                await self._edge.closed.wait()
                if state.tasks:
                    await asyncio.wait(tuple(state.tasks))
        except TimeoutError:
            logger.warning(
                "%d connections were still busy after %g s and are cut off", len(state.connections), timeout_s
            )
            await self._cut_off(state)
            return False
        finally:
            self._edge.close()
        return True

    async def _cut_off(self, state: ServerState) -> None:
        tasks = tuple(state.tasks)
        for task in tasks:
            task.cancel()
        for connection in tuple(state.connections):
            transport: Any = connection.transport
            transport.abort()
        await self._edge.closed.wait()
        await asyncio.gather(*tasks, return_exceptions=True)


def create_server(
    serving: Serving, app: Application, host: str, port: int, limits: Limits, *, direct: bool = True
) -> RestServer:
    """Return a REST server on `host`:`port` (0: any free port), not yet listening.

    `direct` False sends inference requests to `app` too; answers and limits are the same.
    """
    config = Config(
        app,
        host=host,
        port=port,
        interface="asgi3",
        ws="none",  # an offer to upgrade is ignored
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
    )
    return RestServer(config, FastEdge(serving, limits, ServerState(), direct=direct))
