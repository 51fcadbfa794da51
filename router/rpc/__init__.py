"""The gRPC edge: a watched port, what each call goes through, inference, health."""

from router.rpc.calls import RpcMethod, Screened
from router.rpc.server import RpcServer
from router.rpc.service import SERVICE, RpcService

__all__ = ["SERVICE", "RpcMethod", "RpcServer", "RpcService", "Screened"]
