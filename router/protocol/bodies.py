"""Reading a request's body on the routes of the application: bounded, and ended by clients that leave."""

from collections.abc import Callable

from fastapi import FastAPI, Request
from fastapi.responses import Response
from starlette.requests import ClientDisconnect

from router.protocol.outcomes import CLIENT_LEFT


def end_for_leavers(app: FastAPI) -> None:
    """Make a client that leaves in mid-body end its request silently, whichever route reads it."""
    app.add_exception_handler(ClientDisconnect, _on_left)


async def read_body(request: Request, bytes_max: int, over: Callable[[], Exception]) -> bytearray:
    """Return the whole body. Raises what `over` makes where it has more than `bytes_max` bytes, as soon as
    that is known, by its stated length before any of it is read; ClientDisconnect where the client leaves."""
    stated = request.headers.get("content-length", "")
    if stated.isdecimal() and int(stated) > bytes_max:
        raise over()
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > bytes_max:
            raise over()
    return body


async def _on_left(request: Request, error: Exception) -> Response:  # noqa: ARG001  # Starlette's signature
    return Response(status_code=CLIENT_LEFT)
