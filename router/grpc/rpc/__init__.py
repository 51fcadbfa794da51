"""The gRPC edge: a watched port, what each call goes through, inference, health."""

from router.grpc.rpc.calls import RpcMethod, Screened
from router.grpc.rpc.server import RpcServer
from router.grpc.rpc.service import SERVICE, RpcService

__all__ = ["SERVICE", "RpcMethod", "RpcServer", "RpcService", "Screened"]
