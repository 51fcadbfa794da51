"""The gRPC edge on libnghttp2, in the gateway's own event loop: listens, drains."""

import asyncio
import errno
import logging
from collections.abc import Callable
from typing import cast

from router.grpc.fastrpc.connection import RpcConnection
from router.grpc.fastrpc.door import RestDoor
from router.grpc.fastrpc.edge import RpcEdge
from router.grpc.rpc.service import RpcService
from router.http.fastpath import RestServer
from router.listening import Listening
from router.protocol.oip import ReadStatistics
from router.security.tls.gate import Gate
from serving.ports import Serving
from serving.values.specs import Limits

logger = logging.getLogger(__name__)

PROTOCOLS = ("h2",)
"""What the port speaks, by the names of ALPN (RFC 7301)."""
END_S = 1.0
"""What handlers that were given up have to end."""


class FastRpcServer(RpcService):
    """Serves one address: started, stopped, on one event loop."""

    def __init__(
        self,
        serving: Serving,
        server_name: str,
        version: str,
        limits: Limits,
        host: str,
        statistics: ReadStatistics,
    ) -> None:
        super().__init__(serving, server_name, version, limits, host, statistics)
        self._edge = RpcEdge(self)
        self.tcp = self._tcp = Listening()
        self._port = 0
        self._rest: RestServer | None = None
        self._connect: Callable[[], asyncio.Protocol] = self.protocol

    def join(self, rest: RestServer) -> None:
        """Serve REST over HTTP/2 too, here and at that server's port, and gRPC at both. Call this before
        `start`."""
        self._rest = rest

    def protocol(self) -> asyncio.Protocol:
        """Return the protocol of a new connection whose client speaks HTTP/2, for any transport."""
        return cast(asyncio.Protocol, RpcConnection(self._edge))  # a native class has no such base

    async def start(self, port: int) -> int:
        self._edge.open()
        if self._rest is not None:
            self._edge.rest = RestDoor(*self._rest.behind)
            self._rest.speak_http2(self.protocol)
        self._port = port
        await self.again()
        return self._port

    @property
    def listening(self) -> bool:
        return self._tcp.is_open

    async def again(self) -> None:
        self._tcp.close()
        try:
            self._port = await self._tcp.open(self._connect, self.host, self._port)
        except OSError as error:
            taken = error.errno == errno.EADDRINUSE
            reason = "the port is taken" if taken else (error.strerror or str(error)).rpartition(": ")[2]
            host = f"[{self.host}]" if ":" in self.host else self.host
            raise OSError(f"cannot serve gRPC on {host}:{self._port}: {reason}") from error

    def encrypt(self, gate: Gate) -> None:
        self._connect = gate.behind(self.protocol, lambda: PROTOCOLS)

    async def stop(self, grace_s: float) -> None:
        edge = self._edge
        self.calls.stop()
        self.health.end()  # a Watch would use up the grace
        self._tcp.close()
        edge.draining = True
        for connection in tuple(edge.connections):
            connection.drain()
        try:
            async with asyncio.timeout(grace_s):
                await edge.closed.wait()
        except TimeoutError:
            left = sum([bool(each.calls) for each in edge.connections])
            if left and grace_s:
                logger.warning(
                    "%d gRPC connections still had calls after %g s: they are cut off", left, grace_s
                )
            for connection in tuple(edge.connections):
                connection.abort()
            await edge.closed.wait()
        edge.close()
        if edge.tasks:
            await asyncio.wait(tuple(edge.tasks), timeout=END_S)
