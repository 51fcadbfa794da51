"""The gRPC edge: a watched port, what each call goes through, inference, health."""

from router.rpc.calls import RpcMethod, Screened
from router.rpc.server import SERVICE, RpcServer

__all__ = ["SERVICE", "RpcMethod", "RpcServer", "Screened"]
