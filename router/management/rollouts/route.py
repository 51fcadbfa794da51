"""`GET /v2/rollouts`, and `POST /v2/rollouts/{model}/start`, `/promote` and `/abort`."""

from collections.abc import Callable
from typing import Annotated

from fastapi import FastAPI, Path
from fastapi.responses import JSONResponse

from router.management.rollouts.board import RolloutBoard, RolloutError
from router.observing.rollout_status import RolloutsBody

Name = Annotated[str, Path(description="The model whose place a candidate is to take.")]


def add_rollouts(app: FastAPI, board: Callable[[], RolloutBoard]) -> None:
    """Add the routes to the application."""

    @app.get("/v2/rollouts", tags=["operation"])
    async def rollouts() -> JSONResponse:
        """Return all guarded rollouts: the share of each candidate, why, and the measures of the present
        step."""
        return JSONResponse(RolloutsBody(rollouts=board().describe()))

    @app.post("/v2/rollouts/{model}/start", tags=["operation"])
    async def start(model: Name) -> JSONResponse:
        """Begin a rollout from its first step."""
        return await _acted(board(), model, "start")

    @app.post("/v2/rollouts/{model}/promote", tags=["operation"])
    async def promote(model: Name) -> JSONResponse:
        """Give the candidate all requests at once."""
        return await _acted(board(), model, "promote")

    @app.post("/v2/rollouts/{model}/abort", tags=["operation"])
    async def abort(model: Name) -> JSONResponse:
        """Give the candidate no request any more."""
        return await _acted(board(), model, "abort")


async def _acted(board: RolloutBoard, model: str, act: str) -> JSONResponse:
    try:
        now = board.act(model, act)
    except RolloutError as error:
        return JSONResponse({"error": str(error)}, error.status)
    await board.keep()
    return JSONResponse(now)
