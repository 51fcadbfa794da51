"""What would be, by the simulator in a child process: at other rates or SLOs (`POST /v2/what-if`), and in
each step of a guarded rollout (`GET /v2/rollouts/{model}/prediction`)."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Annotated, Final, TypeVar

import orjson
from fastapi import FastAPI, Path, Query, Request
from fastapi.responses import JSONResponse

from router.management.operations.current import Current
from router.observing.rollout_status import RolloutPrediction
from router.protocol.bodies import read_body
from router.settings import Settings
from router.settings.values.problems import unknown_name
from router.tensors.parts.wording import quoted
from router.verbs.place.candidate.predicting import RolloutTask, as_one, candidate_of, predict
from router.verbs.place.live.advising import without_document
from router.verbs.place.question.rates import given
from router.verbs.simulate.traffic import SimulateRequestError
from router.verbs.simulate.what_if import Place, WhatIfBody, WhatIfTask, forecast
from serving.planning.task import ONE_ROW, AskedRate
from serving.runtime.job import JobError, Work, run
from serving.simulation.traffic.traffic import Mix

PATH: Final = "/v2/what-if"
LIMIT_S: Final = 20.0
PREDICT_S: Final = 90.0
"""For a rollout: a forecast for each of its steps, and what a slice of each model carries."""
BODY_BYTES_MAX: Final = 256 << 10
VALUE_MAX: Final = 1e6
"""Of a rate in requests a second, and of an SLO in milliseconds."""
WAITING_MAX: Final = 4
"""Questions that may wait for the one that is computed; each has a core's share below the workers'."""

A = TypeVar("A")
R = TypeVar("R")
Name = Annotated[str, Path(description="The model whose place a candidate is to take.")]
Rates = Annotated[str, Query(description="Requests a second: MODEL=RATE,...; without it the present ones.")]
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
        return await self._in_turn(self._job, lambda: self._task(rates, slo_ms), LIMIT_S)

    async def predict(self, model: str, text: str, present: Mapping[str, float]) -> RolloutPrediction:
        """Return what each step of the guarded rollout in a model's place would need and break.

        `text`: rates as `penstock place --rates` has them, "" for the `present` requests a second. Raises
        WhatIfError.
        """
        settings = without_document(self._current.settings)
        try:
            candidate, _ = candidate_of(settings, model)
        except SimulateRequestError as error:
            raise WhatIfError(404, str(error)) from None
        try:
            stated = given(settings, [text] if text else [], "").by_model
        except SimulateRequestError as error:
            raise WhatIfError(400, str(error)) from None
        rates = {**present, **({candidate.name: 0.0} if model in stated else {})}
        rates |= {name: each.requests for name, each in stated.items()}
        pair = model, candidate.name
        return await self._in_turn(predict, lambda: self._rollout(settings, pair, rates), PREDICT_S)

    async def _in_turn(self, job: Work[A, R | str], task: Callable[[], A], limit_s: float) -> R:
        """Return what the job finds, as soon as no other one is computed; its sentence is a WhatIfError."""
        if self._waiting >= WAITING_MAX:
            raise WhatIfError(503, f"{WAITING_MAX} forecasts are being made; ask again in a few seconds")
        self._waiting += 1
        try:
            async with self._turn:
                found = await run(job, task(), limit_s)
        except JobError as error:
            raise WhatIfError(503, f"no forecast was made: {error}") from None
        finally:
            self._waiting -= 1
        if isinstance(found, str):
            raise WhatIfError(409, found)
        return found

    def _task(self, rates: Numbers, slo_ms: Numbers) -> WhatIfTask:
        settings, shapes = without_document(self._current.settings), self._shapes()
        sized = {each.name for each in settings.models if each.spec.size_hint is not None}
        rows = {name: _mix(found) for name, (found, _) in shapes.items()}
        sizes = {name: _mix(found) for name, (_, found) in shapes.items() if name in sized}
        return WhatIfTask(settings, rates, slo_ms, rows, sizes, self._ratios())

    def _rollout(self, settings: Settings, pair: tuple[str, str], rates: Mapping[str, float]) -> RolloutTask:
        """Return the task for a rollout, `pair`: the model and the candidate. What the candidate answers is
        asked of the model, and has its rows and sizes."""
        shapes, (model, candidate) = dict(self._shapes()), pair
        if candidate in shapes:
            rows, sizes = shapes.pop(candidate)
            before = shapes.get(model, (Counter(), Counter()))
            shapes[model] = before[0] + rows, before[1] + sizes
        asked = {
            name: AskedRate(rate, _mix(shapes[name][0]) if name in shapes else ONE_ROW)
            for name, rate in rates.items()
        }
        mixes = {name: _mix(sizes) for name, (_, sizes) in shapes.items()}
        return RolloutTask(settings, model, as_one(asked, model, candidate), mixes, self._ratios())


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


def add_what_if(app: FastAPI, what_if: WhatIf, present: Callable[[], Mapping[str, float]]) -> None:
    """Add the routes to the application. `present`: reads the rates of all models."""

    @app.post(PATH, tags=["operation"])
    async def forecast_for(request: Request) -> JSONResponse:
        """Return what is predicted for these rates and SLOs, as `penstock simulate` predicts it: the share of
        requests in time, latencies, variants, and how busy each slice is."""
        try:
            body = await read_body(request, BODY_BYTES_MAX, lambda: WhatIfError(413, "the body is too large"))
            return JSONResponse(await what_if.answer(bytes(body)))
        except WhatIfError as error:
            return JSONResponse({"error": str(error)}, error.status)

    @app.get("/v2/rollouts/{model}/prediction", tags=["operation"])
    async def prediction(model: Name, rates: Rates = "") -> JSONResponse:
        """Return for each step of a guarded rollout how many slices its candidate would fill, and which share
        of the promises would break."""
        try:
            return JSONResponse(await what_if.predict(model, rates, present()))
        except WhatIfError as error:
            return JSONResponse({"error": str(error)}, error.status)
