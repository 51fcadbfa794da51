"""The placement that is in force, over REST: what it is, how far a move to it is, another one, and back.

GET      what is in force and by whom, the progress of a move, how the last one ended, what has drifted
PUT      another placement (router/management/operations/proposal.py); 202: it is kept, and on its way
DELETE   back to what penstock.yaml says; 202 as well
POST     .../roll-back: give up the move under way
POST     .../proposed: carry out the plan that the gateway proposes
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from router.management.operations.applied import AppliedPlacement, applied, digest, kept, put_back, remaining
from router.management.operations.current import ROLLED_BACK as TOLD
from router.management.operations.current import ChangeRefused, Current
from router.management.operations.proposal import UnsoundError, proposal
from router.management.operations.slice_json import told_slice
from router.protocol.bodies import read_body
from router.settings import Settings, SettingsError, load_settings
from router.settings.machine.slices import usable_cores
from router.settings.values.document import FILE_BYTES_MAX
from serving.control.rollouts.rollout import RolloutState
from serving.control.state.desired import DesiredState

logger = logging.getLogger(__name__)

PATH = "/v2/placement"
ROLL_BACK = f"{PATH}/roll-back"
PROPOSED = f"{PATH}/proposed"
DONE, ROLLED_BACK, FAILED = "done", "rolled back", "failed"

Json = dict[str, object]


class PlacementRequestError(Exception):
    """It is not done: the HTTP status, and why, in sentences."""

    def __init__(self, status: int, reasons: Sequence[str]) -> None:
        super().__init__("; ".join(reasons))
        self.status = status
        self.reasons = tuple(reasons)


@dataclass(frozen=True, slots=True)
class MoveOutcome:
    """How a move ended (`result`: DONE, TURNED_BACK or FAILED), why, and after how long; `id`: the move's."""

    id: str
    result: str
    reasons: tuple[str, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class _Move:
    """From `base` through `by` to `target`; `found`: what is kept of it, None for what the file says."""

    id: str
    base: Settings
    target: Settings
    by: tuple[DesiredState, ...] = ()
    found: AppliedPlacement | None = None

    def from_base(self, settings: Settings) -> Settings:
        """Return the target, where those settings are still in force that it was made from."""
        if settings is not self.base:
            raise ChangeRefused(("another change came first",))
        return self.target


class PlacementService:
    """Carries placements out, one at a time, and keeps them.

    `drift`: what was last found to have drifted. `lost_cores`: the cores that new slices get last.
    """

    def __init__(
        self,
        current: Current,
        drift: Callable[[], Sequence[str]] = tuple,
        lost_cores: Callable[[], Collection[int]] = tuple,
    ) -> None:
        self._current = current
        self._drift = drift
        self._lost_cores = lost_cores
        self._preparing = False
        self._move: asyncio.Task[None] | None = None
        self._moving = ""
        self._withdrawn = False
        self._outcome: MoveOutcome | None = None

    async def describe(self) -> Json:
        """Return the body of GET."""
        settings, found = await self._applied()
        progress = self._current.progress()
        return {
            "by": "file" if found is None else "apply",
            "id": found.id if found else "",
            "at": found.at if found else "",
            "slices": [told_slice(each) for each in settings.slices],
            "models": {
                each.name: {
                    "slices": each.slices,
                    "variant": each.answering_variant,
                    "load": asdict(found.loads[each.name]) if found and each.name in found.loads else None,
                }
                for each in settings.models
            },
            "moving": self._moving,
            "progress": {
                "state": progress.state,
                "step": progress.step,
                "steps": progress.steps,
                "waiting": progress.waiting,
                "reasons": progress.reasons,
            },
            "outcome": asdict(self._outcome) if self._outcome else None,
            "drift": list(self._drift()),
        }

    async def _applied(self) -> tuple[Settings, AppliedPlacement | None]:
        """Return the settings in force and what was applied of them, both of the same moment."""
        while True:
            settings, moving = self._current.settings, self._moving
            found = await asyncio.to_thread(applied, settings)
            if settings is self._current.settings and moving == self._moving:
                return settings, found

    async def apply(self, content: bytes) -> str:
        """Keep a placement (the body of PUT) and begin to carry it out; returns the move's id.

        PlacementError where it cannot be: nothing is changed.
        """
        with self._prepared() as base:
            try:
                asked = await asyncio.to_thread(proposal, content, base, usable_cores(), self._lost_cores())
            except UnsoundError as error:
                raise PlacementRequestError(400, error.reasons) from None
            filed = await asyncio.to_thread(_filed, base)
            models = {each.name: each.slices for each in asked.settings.models}
            at = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
            found = AppliedPlacement(
                secrets.token_hex(8), at, digest(filed), asked.settings.slices, models, asked.loads
            )
            return await self._begin(_Move(found.id, base, asked.settings, asked.by, found))

    async def reset(self) -> str:
        """Begin to go back to what penstock.yaml says, and keep nothing; returns the move's id.

        PlacementError where it cannot be.
        """
        with self._prepared() as base:
            filed = await asyncio.to_thread(_filed, base)
            on = {each.name: each.slices for each in filed.models}
            names = [each.name for each in filed.slices]
            models = tuple(
                replace(each, slices=on.get(each.name) or remaining(each, names)) for each in base.models
            )
            target = replace(base, slices=filed.slices, models=models)
            return await self._begin(_Move(secrets.token_hex(8), base, target))

    async def ended(self) -> MoveOutcome | None:
        """Wait for the end of the move under way, and return how the last move ended; None without any."""
        if self._move is not None:
            await asyncio.wait([self._move])
        return self._outcome

    def roll_back(self) -> None:
        """Give up the move under way. PlacementError where there is none."""
        if not self._moving:
            raise PlacementRequestError(409, ("no placement is being carried out",))
        self._withdrawn = True
        self._current.roll_back()

    @contextmanager
    def _prepared(self) -> Iterator[Settings]:
        """Yield the settings in force, while a move from them is prepared. Raises PlacementRequestError if
        another change is under way."""
        progress = self._current.progress()
        if self._preparing or self._moving or progress.state is not RolloutState.STEADY:
            waiting = f" ({'; '.join(progress.waiting[:3])})" if progress.waiting else ""
            raise PlacementRequestError(409, (f"another change is under way{waiting}: wait for it",))
        self._preparing = True
        try:
            yield self._current.settings
        finally:
            self._preparing = False

    async def _begin(self, move: _Move) -> str:
        path = move.base.path
        was = await asyncio.to_thread(kept, path)
        try:
            await asyncio.to_thread(put_back, path, move.found)
        except OSError as error:
            why = f"the placement cannot be kept: {error.filename}: {error.strerror or error}"
            raise PlacementRequestError(500, (f"{why}; nothing is changed",)) from None
        self._moving, self._outcome, self._withdrawn = move.id, None, False
        self._move = asyncio.create_task(self._carry_out(move, was))
        return move.id

    async def _carry_out(self, move: _Move, was: AppliedPlacement | None) -> None:
        begun_s = time.monotonic()
        result, reasons = DONE, tuple[str, ...]()
        try:
            if self._withdrawn:  # before this task had its first turn
                raise ChangeRefused((TOLD,))
            back = partial(asyncio.to_thread, _restore, move.base.path, was)  # should it end on the way back
            await self._current.change(move.from_base, move.by, back)
        except ChangeRefused as error:
            result, reasons = ROLLED_BACK, error.reasons
            await asyncio.to_thread(_restore, move.base.path, was)
        except Exception:
            logger.exception("a placement could not be carried out")
            result, reasons = FAILED, ("it failed inside the gateway, whose log says how",)
        seconds = round(time.monotonic() - begun_s, 3)
        self._outcome = MoveOutcome(move.id, result, reasons, seconds)
        self._moving = ""
        logger.info("placement %s: %s after %g s %s", move.id, result, seconds, "; ".join(reasons))


def add_placement(app: FastAPI, placement: PlacementService) -> None:
    """Add the routes of PATH."""

    @app.get(PATH, tags=["operation"])
    async def read_placement() -> JSONResponse:
        """Return the slices, the models on each, the origin of the placement, the progress of a move, and
        what has drifted."""
        return JSONResponse(await placement.describe())

    @app.put(PATH, tags=["operation"], status_code=202)
    async def apply_placement(request: Request) -> JSONResponse:
        """Carry out another placement, as `penstock place --apply` does; it outlives restarts."""
        try:
            content = await read_body(request, FILE_BYTES_MAX, _too_large)
            return JSONResponse({"id": await placement.apply(bytes(content))}, 202)
        except PlacementRequestError as error:
            return _refused(error)

    @app.delete(PATH, tags=["operation"], status_code=202)
    async def reset_placement() -> JSONResponse:
        """Go back to what penstock.yaml says."""
        try:
            return JSONResponse({"id": await placement.reset()}, 202)
        except PlacementRequestError as error:
            return _refused(error)

    @app.post(ROLL_BACK, tags=["operation"], status_code=202)
    async def roll_back() -> JSONResponse:
        """Give up the move under way: what was there before it is there again."""
        try:
            placement.roll_back()
        except PlacementRequestError as error:
            return _refused(error)
        return JSONResponse({}, 202)


def add_proposed(app: FastAPI, take: Callable[[], Awaitable[str]]) -> None:
    """Add the route of PROPOSED. `take` carries the plan out, and returns the move's id."""

    @app.post(PROPOSED, tags=["operation"], status_code=202)
    async def apply_proposed() -> JSONResponse:
        """Carry out the plan that the gateway proposes (`proposal` of `GET /v2/status`)."""
        try:
            return JSONResponse({"id": await take()}, 202)
        except PlacementRequestError as error:
            return _refused(error)


def _too_large() -> PlacementRequestError:
    return PlacementRequestError(
        413, (f"the body is over the {FILE_BYTES_MAX >> 10} KB that a placement may have",)
    )


def _refused(error: PlacementRequestError) -> JSONResponse:
    return JSONResponse({"error": str(error), "reasons": error.reasons}, error.status)


def _filed(base: Settings) -> Settings:
    """Return what the file of these settings says. PlacementError where it is not sound."""
    try:
        return load_settings(base.path, base.rehearse)
    except SettingsError as error:
        raise PlacementRequestError(
            409, (f"mend {base.path.name} first", *map(str, error.problems))
        ) from None


def _restore(path: Path, was: AppliedPlacement | None) -> None:
    try:
        put_back(path, was)
    except OSError as error:
        logger.error("what is applied cannot be kept: %s: %s", error.filename, error.strerror or error)
