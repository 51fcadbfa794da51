"""A port on which grpc.aio serves, made anew where grpc.aio's server ends by itself.

It does so where an error ends its task, whose done-callback closes the port (grpcio 1.85.1,
`_server_main_loop`). Calls that are under way then go on. `accepting` keeps what clients send from doing so.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any  # grpc carries no types

from router.grpc.rpc.calls import Calls
from serving.values.specs import Limits

GOODBYE_S = 0.25
"""What a stop gives connections to go once the last byte of every answer is sent: some round trips. Clients
that acknowledge a goodbye go at once."""

LOOKAHEAD_BYTES = 1 << 16
"""A stream's flow-control window before its message is asked for (HTTP/2's own default: 65,535)."""

_MAIN_LOOP = "AioServer._server_main_loop"
_SHUTDOWN = "AioServer.shutdown"


class RpcPort:
    """One port. `make`: a grpc.aio server with its handlers, without a port. `grace_s`: what the
    calls of a server that ended by itself are given. `on_end` is called when one has."""

    def __init__(self, make: Callable[[], Any], host: str, calls: Calls, grace_s: float) -> None:
        self._make = make
        self._host = f"[{host}]" if ":" in host else host
        self._calls = calls
        self._grace_s = grace_s
        self._server: Any = None
        self._port = 0
        self.credentials: Any = None  # where the port speaks TLS
        self._leaving: set[asyncio.Task[None]] = set()
        self.on_end: Callable[[], None] = lambda: None

    async def start(self, port: int) -> int:
        """Listen; returns the bound port (`port` 0: any). OSError where it cannot be had."""
        server = self._make()
        try:
            address = f"{self._host}:{port}"
            if self.credentials is None:
                bound: int = server.add_insecure_port(address)
            else:
                bound = server.add_secure_port(address, self.credentials)
        except RuntimeError as error:  # grpc does not say why
            reasons = "the port is taken, or the address is none of this machine, or not ours to use"
            raise OSError(f"cannot serve gRPC on {self._host}:{port}: {reasons}") from error
        await server.start()
        self._server, self._port = server, bound
        for task in _tasks(_MAIN_LOOP):
            task.remove_done_callback(self._look)  # of an earlier server's task, too
            task.add_done_callback(self._look)
        return bound

    @property
    def listening(self) -> bool:
        """Whether calls are taken. grpc.aio shows it nowhere but in its own object."""
        return self._server is not None and bool(self._server._server.is_running())  # noqa: SLF001

    async def again(self) -> None:
        """Listen on the same port with a new server; calls of the old one go on. OSError as `start`."""
        old, self._server = self._server, None
        if old is not None:
            task = asyncio.create_task(self._end(old, self._grace_s))
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)
            await asyncio.sleep(0)  # its listener is closed
        await self.start(self._port)

    async def stop(self, grace_s: float) -> None:
        """Take no new call, answer the accepted ones; what is unanswered after `grace_s` is cancelled."""
        servers = [] if self._server is None else [self._server]
        await asyncio.gather(*(self._end(each, grace_s) for each in servers), *self._leaving)

    async def _end(self, server: Any, grace_s: float) -> None:
        stopping = asyncio.ensure_future(server.stop(grace_s))
        while not stopping.done():
            answered = asyncio.ensure_future(self._calls.answered.wait())
            await asyncio.wait((stopping, answered), return_when=asyncio.FIRST_COMPLETED)
            answered.cancel()
            await asyncio.wait((stopping,), timeout=GOODBYE_S)
            if not self._calls.open and not stopping.done():
                # grpc waits 20 s for each client that does not acknowledge its goodbye.
                stopping.cancel()
                await server.stop(None)
                return

    def _look(self, ended: asyncio.Task[Any]) -> None:
        """Note that a server's task has ended: by an error, unless it was stopped."""
        if ended.cancelled() or ended.exception() is None:
            return
        for task in _tasks(_SHUTDOWN):  # grpc's own, never awaited, which fails by the same error
            task.add_done_callback(_retrieve)
        self.on_end()


def _tasks(name: str) -> list[asyncio.Task[Any]]:
    return [each for each in asyncio.all_tasks() if getattr(each.get_coro(), "__qualname__", "") == name]


def _retrieve(task: asyncio.Task[Any]) -> None:
    with contextlib.suppress(asyncio.CancelledError):
        task.exception()


def channel_options(limits: Limits) -> tuple[tuple[str, int], ...]:
    """Return the limits in grpc's words, and its server's other options."""
    count = limits.grpc_call_count
    options = (
        ("grpc.max_receive_message_length", limits.body_bytes),
        # What the core takes of a message before it is asked for; it widens this by itself otherwise.
        ("grpc.http2.lookahead_bytes", LOOKAHEAD_BYTES),
        ("grpc.http2.bdp_probe", 0),
        # grpc inflates without a limit, and in the event loop.
        ("grpc.per_message_decompression", 0),
        ("grpc.max_metadata_size", limits.header_bytes),
        ("grpc.absolute_max_metadata_size", limits.header_bytes),
        ("grpc.max_concurrent_streams", limits.grpc_stream_count),
        # It refuses streams of good clients: those that have ended count until they are freed.
        ("grpc.http.overload_protection", 0),
        ("grpc.max_allowed_incoming_connections", limits.connection_count),
        ("grpc.max_connection_idle_ms", _ms(limits.idle_connection_s)),
        ("grpc.server_handshake_timeout_ms", _ms(limits.slow_client_s)),
        # Calls of a method that wait in the C core for the event loop. More end as CANCELLED, uncounted.
        ("grpc.server.max_pending_requests", 2 * count),
        ("grpc.server.max_pending_requests_hard_limit", 2 * count),
        ("grpc.so_reuseport", 0),  # a second gateway on the port must fail, not share its calls
        # Clients may ping an idle connection every second; grpc's default hangs up on the third ping.
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", 1000),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 1000),
        ("grpc.http2.max_ping_strikes", 0),
    )
    if not limits.grpc_age_s:
        return options
    age = ("grpc.max_connection_age_ms", _ms(limits.grpc_age_s))
    return (*options, age, ("grpc.max_connection_age_grace_ms", _ms(limits.drain_s)))


def _ms(seconds: float) -> int:
    return max(1, round(seconds * 1000))
