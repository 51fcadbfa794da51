"""Which servers can take gRPC calls: `server: {grpc: NAME}`; and what each has to do with the other edges."""

from collections.abc import Callable, Mapping
from typing import Final

from router.grpc.fastrpc import FastRpcServer
from router.grpc.rpc import RpcServer, RpcService
from router.http.fastpath import RestServer

RPC_SERVERS: Final[Mapping[str, type[RpcService]]] = {"ngh2": FastRpcServer, "grpcio": RpcServer}


def join(rest: RestServer, rpc: RpcService, on_end: Callable[[], None]) -> None:
    """Let both serve at one port where they can. `on_end` is called if a server that cannot has ended by
    itself; whoever watches the edges sees the end of the other."""
    if isinstance(rpc, FastRpcServer):
        rpc.join(rest)
    elif isinstance(rpc, RpcServer):
        rpc.port.on_end = on_end
