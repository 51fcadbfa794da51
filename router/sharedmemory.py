"""Triton's shared memory extensions as far as they can be kept without shared memory: nothing is registered.

Its clients ask for the status and unregister all regions as a matter of course: that is answered as Triton
answers with no region. To register one is refused by name, and so is a tensor that names one.
"""

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any  # the generated messages carry no types

import grpc
from fastapi import FastAPI, Path
from fastapi.responses import JSONResponse, Response
from tritonclient.grpc import service_pb2

from router.rpc import RpcMethod
from router.tensors.wording import quoted

KINDS = ("system", "cuda")

Region = Annotated[str, Path(description="What the client calls the region.")]


def add_shared_memory(app: FastAPI) -> None:
    """Add the REST half to the application: status, register and unregister, of both kinds."""
    for kind in KINDS:
        _add(app, kind)


def _add(app: FastAPI, kind: str) -> None:
    base = f"/v2/{kind}sharedmemory"

    async def status() -> list[str]:
        """Return the regions that are registered: none."""
        return []

    async def region_status(region: Region) -> Response:
        """Return 404: no region is registered."""
        return JSONResponse({"error": _unknown(kind, region)}, 404)

    async def register(region: Region) -> Response:
        """Return 501: tensors travel in the messages themselves."""
        return JSONResponse({"error": _unsupported(kind, region)}, 501)

    async def unregister() -> Response:
        """Return 200: there are no regions to unregister."""
        return Response()

    async def unregister_region(region: Region) -> Response:  # noqa: ARG001  # as Triton: any name will do
        """Return 200, whether or not there was such a region."""
        return Response()

    for path, method, answer in (
        ("/status", "GET", status),
        ("/region/{region}/status", "GET", region_status),
        ("/region/{region}/register", "POST", register),
        ("/unregister", "POST", unregister),
        ("/region/{region}/unregister", "POST", unregister_region),
    ):
        name = f"{kind}_memory_{answer.__name__}"
        app.add_api_route(base + path, answer, methods=[method], tags=["operation"], name=name)


def shared_memory_methods() -> Mapping[str, RpcMethod]:
    """Return the gRPC half."""
    methods: dict[str, RpcMethod] = {}
    for kind in KINDS:
        prefix = f"{kind.title()}SharedMemory"
        methods[f"{prefix}Status"] = partial(_status, kind)
        methods[f"{prefix}Register"] = partial(_register, kind)
        methods[f"{prefix}Unregister"] = partial(_unregister, kind)
    return methods


async def _status(kind: str, request: Any, context: Any) -> Any:
    if request.name:
        await context.abort(grpc.StatusCode.NOT_FOUND, _unknown(kind, request.name))
    return getattr(service_pb2, f"{kind.title()}SharedMemoryStatusResponse")()


async def _register(kind: str, request: Any, context: Any) -> None:
    await context.abort(grpc.StatusCode.UNIMPLEMENTED, _unsupported(kind, request.name))


async def _unregister(kind: str, _request: Any, _context: Any) -> Any:
    return getattr(service_pb2, f"{kind.title()}SharedMemoryUnregisterResponse")()


def _unknown(kind: str, region: str) -> str:
    return f"Unable to find {kind} shared memory region: {quoted(region)}"  # begins as Triton's


def _unsupported(kind: str, region: str) -> str:
    why = "tensors travel in the messages themselves"
    return f"failed to register {kind} shared memory region {quoted(region)}: not supported, {why}"
