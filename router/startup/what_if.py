"""`POST /v2/what-if`: what would be at other rates or SLOs, by the simulator in a child process."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

import orjson
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from router.management.operations.current import Current
from router.protocol.bodies import read_body
from router.settings.values.problems import unknown_name
from router.tensors.parts.wording import quoted
from router.verbs.place.live.advising import without_document
from router.verbs.simulate.what_if import Place, WhatIfBody, WhatIfTask, forecast
from serving.runtime.job import JobError, Work, run
from serving.simulation.traffic.traffic import Mix

PATH: Final = "/v2/what-if"
LIMIT_S: Final = 20.0
BODY_BYTES_MAX: Final = 256 << 10
VALUE_MAX: Final = 1e6
"""Of a rate in requests a second, and of an SLO in milliseconds."""
WAITING_MAX: Final = 4
"""Questions that may wait for the one that is computed; each has a core's share below the workers'."""

Numbers = dict[str, float]
Shapes = Mapping[str, tuple[Counter[int], Counter[int]]]


class WhatIfError(Exception):
    """There is no forecast: the HTTP status, and why."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class WhatIf:
    """Answers one question at a time. `shapes`: reads the rows and sizes of the last requests, by model;
    `ratios`: what batches take over their profiles, where these are not fresh."""

    def __init__(
        self,
        current: Current,
        shapes: Callable[[], Shapes],
        ratios: Callable[[], Mapping[Place, float]],
        job: Work[WhatIfTask, WhatIfBody | str] = forecast,
    ) -> None:
        self._current = current
        self._shapes = shapes
        self._ratios = ratios
        self._job = job
        self._turn = asyncio.Lock()
        self._waiting = 0

    async def answer(self, body: bytes) -> WhatIfBody:
        """Return the forecast for what the body asks. Raises WhatIfError."""
        models = [each.name for each in self._current.settings.models]
        rates, slo_ms = read_question(body, models)
        if self._waiting >= WAITING_MAX:
            raise WhatIfError(503, f"{WAITING_MAX} forecasts are being made; ask again in a few seconds")
        self._waiting += 1
        try:
            async with self._turn:
                return await self._forecast(rates, slo_ms)
        finally:
            self._waiting -= 1

    async def _forecast(self, rates: Numbers, slo_ms: Numbers) -> WhatIfBody:
        settings, shapes = without_document(self._current.settings), self._shapes()
        sized = {each.name for each in settings.models if each.spec.size_hint is not None}
        rows = {name: _mix(found) for name, (found, _) in shapes.items()}
        sizes = {name: _mix(found) for name, (_, found) in shapes.items() if name in sized}
        asked = WhatIfTask(settings, rates, slo_ms, rows, sizes, self._ratios())
        try:
            found = await run(self._job, asked, LIMIT_S)
        except JobError as error:
            raise WhatIfError(503, f"no forecast was made: {error}") from None
        if isinstance(found, str):
            raise WhatIfError(409, found)
        return found


def read_question(body: bytes, models: list[str]) -> tuple[Numbers, Numbers]:
    """Return the rates and the SLOs that a body asks for. Raises WhatIfError that names what is wrong."""
    expected = 'expected {"rates": {"MODEL": REQUESTS_A_SECOND}, "slo_ms": {"MODEL": MILLISECONDS}}'
    try:
        asked = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise WhatIfError(400, f"the body is no JSON: {error}; {expected}") from None
    if not isinstance(asked, dict) or not asked.keys() <= {"rates", "slo_ms"}:
        raise WhatIfError(400, expected)
    rates = _numbers(asked.get("rates"), "rates", 0.0, models)
    return rates, _numbers(asked.get("slo_ms", {}), "slo_ms", 0.1, models)


def _numbers(found: object, key: str, least: float, models: list[str]) -> Numbers:
    if not isinstance(found, Mapping):
        raise WhatIfError(400, f"{key}: expected an object of a number for each model")
    for name, value in found.items():
        if name not in models:
            raise WhatIfError(400, f"{key}: {unknown_name('unknown model', name, models)}")
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= VALUE_MAX:
            got = quoted(str(value))
            raise WhatIfError(400, f"{key}: {name}: expected {least:g} to {VALUE_MAX:g}, got {got}")
    return {name: float(value) for name, value in found.items()}


def _mix(counts: Mapping[int, int]) -> Mix:
    total = sum(counts.values())
    return Mix(tuple(counts), tuple(count / total for count in counts.values()))


def add_what_if(app: FastAPI, what_if: WhatIf) -> None:
    """Add the route to the application."""

    @app.post(PATH, tags=["operation"])
    async def forecast_for(request: Request) -> JSONResponse:
        """Return what is predicted for these rates and SLOs, as `penstock simulate` predicts it: the share of
        requests in time, latencies, variants, and how busy each slice is."""
        try:
            body = await read_body(request, BODY_BYTES_MAX, lambda: WhatIfError(413, "the body is too large"))
            return JSONResponse(await what_if.answer(bytes(body)))
        except WhatIfError as error:
            return JSONResponse({"error": str(error)}, error.status)
