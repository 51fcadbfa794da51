"""The notice of an operator that a GPU was reset, over REST.

POST /v2/devices/{name}/back   slices use it again: cuda:0, gpu-0 or its UUID
"""

from collections.abc import Awaitable, Callable
from typing import Annotated, Final

from fastapi import FastAPI, Path
from fastapi.responses import JSONResponse

from router.management.devices import FaultyGpuError, UnknownGpuError
from router.tensors.parts.wording import listed, quoted, suggestion

BACK: Final = "/v2/devices/{name}/back"

Name = Annotated[str, Path(description="A GPU that slices use: cuda:0, gpu-0 or its UUID.", max_length=80)]


def add_gpu_notices(app: FastAPI, back: Callable[[str], Awaitable[list[str]]]) -> None:
    """Add the route to the application. `back`: as `DeviceBoard.back`."""

    @app.post(BACK, tags=["operation"], status_code=202)
    async def device_back(name: Name) -> JSONResponse:
        """Note that a GPU was reset or repaired: slices that were lost with it use it again."""
        try:
            return JSONResponse({"slices": await back(name)}, 202)
        except UnknownGpuError as error:
            there = f"; there are {listed(error.known)}" if error.known else ""
            hint = suggestion(name, error.known) or there
            return JSONResponse({"error": f"no slice uses a GPU {quoted(name)}{hint}"}, 404)
        except FaultyGpuError as error:
            said = f"{quoted(name)} cannot be used: {error}; reset it, or restart the machine, and try again"
            return JSONResponse({"error": said}, 409)
