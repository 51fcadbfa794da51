"""The gRPC edge on libnghttp2 (docs/architecture.md, "gRPC in the event loop")."""

from router.grpc.fastrpc.server import FastRpcServer

__all__ = ["FastRpcServer"]
