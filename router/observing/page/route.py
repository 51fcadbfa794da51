"""The page at `/`, its files, and what it reads beside the other routes: `GET /v2/live`, `GET /v2/events`."""

from importlib.resources import files
from typing import Annotated, Final

from fastapi import FastAPI, Query
from fastapi.responses import JSONResponse, Response, StreamingResponse

from router.logs.events import KEPT, Events
from router.observing.page.feed import WATCHERS_MAX, Feed

STREAM: Final = "text/event-stream; charset=utf-8"
TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
HEADERS: Final = {
    "content-security-policy": "default-src 'self'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}


def page_files() -> dict[str, bytes]:
    """Return the files of the page by name, without a folder."""
    folder = files("router.observing.page") / "static"
    return {each.name: each.read_bytes() for each in folder.iterdir() if each.is_file()}


def add_page(app: FastAPI, feed: Feed, events: Events) -> None:
    """Add the routes to the application."""
    found = page_files()

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return _file("index.html", found["index.html"])

    @app.get("/page/{name}", include_in_schema=False)
    async def page_file(name: str) -> Response:
        if name not in found:
            return JSONResponse({"error": f"the page has no file '{name[:64]}'"}, 404)
        return _file(name, found[name])

    @app.get("/v2/live", tags=["operation"])
    async def live() -> Response:
        """Return the status as server-sent events: all of it, then each second what has changed."""
        if not feed.has_room:
            return JSONResponse({"error": f"{WATCHERS_MAX} pages are open, as many as may be"}, 503)
        return StreamingResponse(feed.watch(), 200, {"cache-control": "no-cache"}, STREAM)

    @app.get("/v2/events", tags=["operation"])
    async def latest(
        since: Annotated[int, Query(ge=0)] = 0, limit: Annotated[int, Query(ge=1, le=KEPT)] = 100
    ) -> JSONResponse:
        """Return the latest events, oldest first: lines of the log that are of no single request. `since`:
        only those after that number."""
        return JSONResponse({"events": events.since(since)[-limit:], "last": events.last})


def _file(name: str, content: bytes) -> Response:
    kind = TYPES.get("." + name.rpartition(".")[2], "application/octet-stream")
    return Response(content, 200, HEADERS, kind)
