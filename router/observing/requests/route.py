"""`GET /v2/requests` and `GET /v2/requests/{name}`: single requests of the last minutes."""

from typing import Annotated

from fastapi import FastAPI, Query
from fastapi.responses import JSONResponse

from router.observing.requests.body import RequestsBody, request_body
from router.observing.requests.words import request_lines
from router.observing.telemetry.observer import Telemetry

LISTED, LISTED_MAX = 20, 1000
"""Requests of a list, if the question does not say how many, and at most."""


def add_requests(app: FastAPI, telemetry: Telemetry) -> None:
    """Add the routes to the application."""

    @app.get("/v2/requests", tags=["operation"])
    async def requests(
        model: str = "", limit: Annotated[int, Query(ge=1, le=LISTED_MAX)] = LISTED
    ) -> JSONResponse:
        """Return the latest requests that were late, refused or failed, newest first."""
        found = telemetry.journal.notable(model, limit)
        body = RequestsBody(requests=[request_body(each, telemetry.epoch_us) for each in found])
        return JSONResponse(body)

    @app.get("/v2/requests/{name:path}", tags=["operation"])
    async def request(name: str, words: bool = False) -> JSONResponse:
        """Return a request by its name (`x-request-id`, or the `id` of the protocol), or by the gateway's
        number; "last" is the latest that was late, refused or failed. `words=true`: with `sentences` as
        well."""
        entry = telemetry.journal.find(name)
        if entry is None:
            told = f"no request '{name[:128]}' is among the last that are kept; see GET /v2/requests"
            return JSONResponse({"error": told}, 404)
        found = request_body(entry, telemetry.epoch_us)
        return JSONResponse({**found, "sentences": request_lines(found)} if words else found)
