"""What only the gateway with a model can say of it is asked there: a redirect names that gateway."""

import re
from collections.abc import Callable
from typing import Final
from urllib.parse import unquote

from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

OWN_PATHS: Final = re.compile(r"/v2/models/([^/]+)/(?:versions/[^/]+/)?(explain|feedback|selection|stats)")
"""Of a model: why it stands as it does, and what its gateway has counted and learnt."""


class Elsewhere:
    """ASGI middleware. `where(model)`: the REST address of the gateway that has a model, "" for this one."""

    def __init__(self, app: ASGIApp, where: Callable[[str], str]) -> None:
        self._app = app
        self._where = where

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Redirect a request that another gateway has to answer (307: with its method and body)."""
        app = self._app
        if scope["type"] == "http" and (found := OWN_PATHS.fullmatch(scope["path"])):
            there = self._where(unquote(found[1]))
            if there:
                query = scope.get("query_string", b"").decode("latin-1")
                app = RedirectResponse(there + scope["path"] + (f"?{query}" if query else ""), 307)
        await app(scope, receive, send)
