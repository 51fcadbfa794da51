"""The access log: a line for each request that was answered, over REST and gRPC. Off, it is not there."""

import logging
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from types import MappingProxyType
from typing import Any, Final

import grpc

from router.logs.logs import ACCESS
from router.protocol.outcomes import CLIENT_LEFT

NOTHING: Final = "-"
"""A client without an address."""
_logger = logging.getLogger(ACCESS)

Scope = MutableMapping[str, Any]
"""As ASGI's; its values are of any kind."""
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]


NO_IDS: Final[Mapping[str, str]] = MappingProxyType({})


def say_access(
    client: object,
    request: str,
    status: object,
    answer_bytes: int,
    took_us: int,
    ids: Mapping[str, str] = NO_IDS,
) -> None:
    """Log one line about a request. `client`: an address of the socket library; `request`: method and path;
    `status`: of HTTP or gRPC; `took_us`: from the whole request to its answer; `ids`: `request_id` and
    `trace_id`, for lines of JSON."""
    address = f"{client[0]}:{client[1]}" if isinstance(client, tuple | list) and len(client) > 1 else client
    fields = {
        "client": address or NOTHING,
        "request": request,
        "status": status,
        "answer_bytes": answer_bytes,
        "took_ms": took_us / 1000,
        **ids,
    }
    text = '%s "%s" %s %d bytes %.3f ms'
    _logger.info(
        text, address or NOTHING, request, status, answer_bytes, took_us / 1000, extra={"fields": fields}
    )


def ids_of(request_id: str, traceparent: str) -> dict[str, str]:
    """Return the `ids` of a request with these fields, "" where it has none."""
    trace = traceparent.split("-")[1:2]
    return {"request_id": request_id, "trace_id": trace[0] if trace else ""}


def logged(app: Application) -> Application:
    """Return the ASGI application, with a line for each of its answers."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        began_ns, status, answer_bytes = time.perf_counter_ns(), CLIENT_LEFT, 0

        async def count(message: MutableMapping[str, Any]) -> None:
            nonlocal status, answer_bytes
            if message["type"] == "http.response.start":
                status = message["status"]
            elif message["type"] == "http.response.body":
                answer_bytes += len(message.get("body", b""))
            await send(message)

        try:
            await app(scope, receive, count)
        finally:
            took_us = (time.perf_counter_ns() - began_ns) // 1000
            request = f"{scope['method']} {scope['raw_path'].decode('latin-1')}"
            say_access(scope.get("client"), request, status, answer_bytes, took_us)

    return answer


class RpcAccess(grpc.aio.ServerInterceptor):  # type: ignore[misc]  # grpc has no types
    """A line for each gRPC call with one answer; a Watch, which has many, has none."""

    async def intercept_service(self, continuation: Any, details: Any) -> Any:
        """Return the handler, with its line."""
        handler = await continuation(details)
        if handler is None or handler.stream_unary is None:
            return handler
        answer = handler.stream_unary

        async def timed(request: Any, context: Any) -> Any:
            began_ns, answered = time.perf_counter_ns(), False
            try:
                found = await answer(request, context)
                answered = True
            finally:
                took_us = (time.perf_counter_ns() - began_ns) // 1000
                status = rpc_status(context.code(), answered)
                answer_bytes = len(found) if answered and isinstance(found, bytes) else 0
                say_access(context.peer(), details.method, status, answer_bytes, took_us)
            return found

        return grpc.stream_unary_rpc_method_handler(
            timed, handler.request_deserializer, handler.response_serializer
        )


def rpc_status(code: Any, answered: bool) -> str:
    """Return the name of a gRPC status; a call that ended without any was cancelled by its client."""
    if isinstance(code, grpc.StatusCode):
        return str(code.name)
    return "OK" if answered else "CANCELLED"
