"""The least that a Python web server does with a request: raw ASGI, the body read, bytes sent back.

Run by rest_throughput beside the gateway, so that both figures come from the same minute of the same machine.
The answer is the request's first ECHO_BYTES bytes, as long as the gateway's answer is.
"""

import os
from collections.abc import Awaitable, Callable, MutableMapping

Event = MutableMapping[str, object]

ANSWER_BYTES = int(os.environ.get("ECHO_BYTES", "40"))


async def app(
    scope: Event, receive: Callable[[], Awaitable[Event]], send: Callable[[Event], Awaitable[None]]
) -> None:
    """Serve HTTP as an ASGI application; ignore anything else (the lifespan)."""
    if scope["type"] != "http":
        return
    body, more = b"", True
    while more:
        event = await receive()
        piece = event.get("body", b"")
        if isinstance(piece, bytes):
            body += piece
        more = bool(event.get("more_body"))
    answer = body[:ANSWER_BYTES].ljust(ANSWER_BYTES)
    headers = [
        (b"content-type", b"application/octet-stream"),
        (b"content-length", str(len(answer)).encode()),
    ]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer})
