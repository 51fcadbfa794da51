"""Which servers can take gRPC calls: `server: {grpc: NAME}`."""

from collections.abc import Mapping
from typing import Final

from router.fastrpc import FastRpcServer
from router.rpc import RpcServer, RpcService

RPC_SERVERS: Final[Mapping[str, type[RpcService]]] = {"ngh2": FastRpcServer, "grpcio": RpcServer}
