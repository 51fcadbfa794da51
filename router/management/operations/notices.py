"""Notices that spot slices are taken away, and that they are back, over REST: for an agent of their cloud.

POST /v2/slices/{name}/lost   {"reason": "...", "in_s": 30}, both optional: it is lost, or will be in so long
POST /v2/slices/{name}/back   it can be used again, or will not be lost

What will be lost gets replacements at once and keeps its batches; what is lost has its worker ended. A
gateway that is started again knows of no notices: the agent says it once more.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Annotated, Any, Final, Protocol

import orjson
from fastapi import FastAPI, Path, Request
from fastapi.responses import JSONResponse

from router.protocol.bodies import read_body
from router.tensors.parts.wording import listed, quoted, suggestion
from serving.control.control import Control
from serving.values.slice_specs import SliceSpec

LOST: Final = "/v2/slices/{name}/lost"
BACK: Final = "/v2/slices/{name}/back"
BODY_BYTES_MAX: Final = 16 << 10
IN_S_MAX: Final = 86_400.0  # clouds say so 30 s to some minutes before
REASON_CHARACTERS_MAX: Final = 200
UNSAID: Final = "its owner takes it away"
_FIELDS: Final = ("reason", "in_s")

Name = Annotated[str, Path(description="A spot slice: `spot: true` in penstock.yaml.")]
_BODY: Final[dict[str, Any]] = {  # Any: FastAPI's own type for it
    "requestBody": {
        "required": False,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": {
                        "reason": {
                            "type": "string",
                            "maxLength": REASON_CHARACTERS_MAX,
                            "description": "For people: shown by `penstock status`.",
                        },
                        "in_s": {
                            "type": "number",
                            "minimum": 0,
                            "maximum": IN_S_MAX,
                            "default": 0,
                            "description": "Seconds until it is lost.",
                        },
                    },
                },
            }
        },
    }
}


class NoticeError(Exception):
    """It is not taken: the HTTP status, and a sentence."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class DeviceEvents(Protocol):
    """Receives what befalls devices, by what is lost together: `serving.runtime.fleet.Fleet`."""

    def device_leaving(self, domain: str, reason: str) -> None: ...
    def device_lost(self, domain: str, reason: str) -> None: ...
    async def device_ended(self, domain: str) -> None: ...
    def device_back(self, domain: str) -> None: ...


@dataclass(slots=True)
class _Notice:
    """`at_s`: when it is lost, on the event loop's clock; `timer` until then, None from then on."""

    reason: str
    at_s: float
    timer: asyncio.TimerHandle | None = None


class Notices:
    """Notices on all slices that `read_slices` knows at that moment, by name; each goes to `devices`."""

    def __init__(self, devices: DeviceEvents, read_slices: Callable[[], Mapping[str, SliceSpec]]) -> None:
        self._devices = devices
        self._read_slices = read_slices
        self._notices: dict[str, _Notice] = {}  # by what is lost together

    def lost(self, name: str, reason: str = UNSAID, in_s: float = 0.0) -> list[str]:
        """Note that a slice is lost, or will be in `in_s` seconds; a later notice takes the place of an
        earlier one. Return the slices that go by that name. Raises NoticeError if there is none, or it is no
        spot slice."""
        found = self._find(name)
        loop = asyncio.get_running_loop()
        for spec in found.values():
            before = self._notices.get(spec.domain)
            notice = self._notices[spec.domain] = _Notice(reason, loop.time() + in_s)
            if before is not None and before.timer is None:
                continue  # it is lost already
            if before is not None and before.timer is not None:
                before.timer.cancel()
            if in_s > 0:
                notice.timer = loop.call_later(in_s, self._lose, spec.domain, notice)
                self._devices.device_leaving(spec.domain, reason)
            else:
                self._lose(spec.domain, notice)
        return [*found]

    async def back(self, name: str) -> list[str]:
        """Note that a slice can be used again, or will not be lost after all; do nothing without an earlier
        notice. Returns and raises as `lost` does."""
        found = self._find(name)
        for spec in found.values():
            notice = self._notices.get(spec.domain)
            if notice is None:
                continue
            if notice.timer is not None:
                notice.timer.cancel()
            else:
                await self._devices.device_ended(spec.domain)  # one process at a time
            if self._notices.get(spec.domain) is notice:  # else it is lost again by now
                del self._notices[spec.domain]
                self._devices.device_back(spec.domain)
        return [*found]

    def said(self, spec: SliceSpec) -> str:
        """Return the notice on a slice, in words; "" if there is none."""
        notice = self._notices.get(spec.domain)
        if notice is None:
            return ""
        if notice.timer is None:
            return f"lost: {notice.reason}"
        left_s = max(notice.at_s - asyncio.get_running_loop().time(), 0.0)
        return f"will be lost in {left_s:.0f} s: {notice.reason}"

    def _lose(self, domain: str, notice: _Notice) -> None:
        notice.timer = None
        self._devices.device_lost(domain, notice.reason)

    def _find(self, name: str) -> dict[str, SliceSpec]:
        """Return the slice, and those that took its name while it had another share (`name~2`)."""
        known = self._read_slices()
        found = {each: spec for each, spec in known.items() if name in (each, each.partition("~")[0])}
        if not found:
            hint = suggestion(name, known) or f"; there are {listed(known)}"
            raise NoticeError(404, f"there is no slice {quoted(name)}{hint}")
        if not all(spec.spot for spec in found.values()):
            said = f"slice {quoted(name)} is no spot slice"
            raise NoticeError(409, f"{said}: say `spot: true` of it in penstock.yaml if it may be taken away")
        return found


def slices_of(control: Control) -> dict[str, SliceSpec]:
    """Return those that are there, and those that are wanted, whatever the load is."""
    wanted = {each.spec.name: each.spec for each in control.desired.slices}
    return wanted | {name: record.spec for name, record in control.slices.items()}


def add_notices(app: FastAPI, notices: Notices) -> None:
    """Add the routes to the application."""

    @app.post(LOST, tags=["operation"], status_code=202, openapi_extra=_BODY)
    async def lost(name: Name, request: Request) -> JSONResponse:
        """Note that a spot slice is taken away, now or in `in_s` seconds: what it holds is replaced
        elsewhere."""
        try:
            reason, in_s = _read_notice(await _read(request))
            return JSONResponse({"slices": notices.lost(name, reason, in_s), "in_s": in_s}, 202)
        except NoticeError as error:
            return JSONResponse({"error": str(error)}, error.status)

    @app.post(BACK, tags=["operation"], status_code=202)
    async def back(name: Name, request: Request) -> JSONResponse:
        """Note that a spot slice can be used again, or will not be taken away after all."""
        try:
            for field in await _read(request):
                raise NoticeError(400, f"{quoted(field)} means nothing here: the body is to be empty")
            return JSONResponse({"slices": await notices.back(name)}, 202)
        except NoticeError as error:
            return JSONResponse({"error": str(error)}, error.status)


def _too_large() -> NoticeError:
    return NoticeError(413, f"the body is over {BODY_BYTES_MAX} bytes")


async def _read(request: Request) -> dict[str, object]:
    """Return the body's JSON object; {} where there is no body."""
    body = await read_body(request, BODY_BYTES_MAX, _too_large)
    if not body:
        return {}
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise NoticeError(400, f"the body is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise NoticeError(400, f"the body must be a JSON object, got {quoted(value)}")
    return value


def _read_notice(body: Mapping[str, object]) -> tuple[str, float]:
    for field in body:
        if field not in _FIELDS:
            hint = suggestion(field, _FIELDS) or f"; there are {listed(_FIELDS)}"
            raise NoticeError(400, f"a notice has no field {quoted(field)}{hint}")
    reason, in_s = body.get("reason", UNSAID), body.get("in_s", 0)
    if not isinstance(reason, str) or not reason.strip() or not reason.isprintable():
        raise NoticeError(400, f"'reason' must be a line of text, got {quoted(reason)}")
    if len(reason) > REASON_CHARACTERS_MAX:
        raise NoticeError(400, f"'reason' may have {REASON_CHARACTERS_MAX} characters, got {len(reason)}")
    if isinstance(in_s, bool) or not isinstance(in_s, int | float) or not isfinite(in_s):
        raise NoticeError(400, f"'in_s' must be a number of seconds, got {quoted(in_s)}")
    if not 0 <= in_s <= IN_S_MAX:
        raise NoticeError(400, f"'in_s' must be from 0 to {IN_S_MAX:g} seconds, got {quoted(in_s)}")
    return reason.strip(), float(in_s)
