"""The REST server whose inference requests bypass ASGI (docs/architecture.md, "The fast path")."""

from router.http.fastpath.server import RestServer, create_server

__all__ = ["RestServer", "create_server"]
