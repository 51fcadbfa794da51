"""The gRPC edge on grpc.aio.

ModelInfer takes and returns bytes and does its own (de)serialising: that is 10 % cheaper than the
generated servicer (290 against 330 us of CPU a call, nearly all of it grpc.aio's own), and a damaged
message becomes INVALID_ARGUMENT with a sentence.
"""

from typing import Any  # grpc carries no types

from router.grpc.rpc.accepting import AcceptingServer
from router.grpc.rpc.credentials import credentials
from router.grpc.rpc.port import RpcPort, channel_options
from router.grpc.rpc.quiet import hush
from router.grpc.rpc.service import RpcService
from router.logs.access import RpcAccess
from router.protocol.oip import ReadStatistics
from router.security.tls.gate import Gate
from serving.ports import Serving
from serving.values.specs import Limits


class RpcServer(RpcService):
    """The gRPC edge of a `Serving`, on one port."""

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
        self.port = RpcPort(self._make, host, self.calls, limits.drain_s)

    def encrypt(self, gate: Gate) -> None:
        self.port.credentials = credentials(gate.certificates)

    async def start(self, port: int) -> int:
        hush()
        return await self.port.start(port)

    async def stop(self, grace_s: float) -> None:
        self.calls.stop()
        self.health.end()  # a Watch would use up the grace
        await self.port.stop(grace_s)

    @property
    def listening(self) -> bool:
        return self.port.listening

    async def again(self) -> None:
        await self.port.again()

    def _make(self) -> Any:
        interceptors = (RpcAccess(),) if self.access else ()
        return AcceptingServer(channel_options(self.limits), interceptors, self.handlers())
