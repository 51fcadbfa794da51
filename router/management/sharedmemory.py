"""Triton's shared memory extensions over REST and gRPC: register, unregister and status.

Regions of system shared memory are registered where `server: {client_shm: ...}` says so, each caller's apart.
Memory of a GPU is refused by name. To ask and to unregister works always: clients do both as a matter of
course.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Annotated, Any, Final, Protocol  # Any: the generated messages carry no types

import grpc
import orjson
from fastapi import FastAPI, Path, Request
from fastapi.responses import JSONResponse, Response

from router.grpc.rpc import RpcMethod
from router.payloads.regions.region import Region
from router.payloads.regions.registry import Fault, Regions, RegistrationRefusedError, keep_regions
from router.protocol.bodies import read_body
from router.security.auth.asgi import caller
from router.security.auth.identity import CALLER
from router.tensors.parts.errors import RequestError, bad_input, too_large
from router.tensors.parts.places import DISABLED, ENABLE
from router.tensors.parts.wording import listed, quoted
from router.tensors.protos.files import oip

KINDS = ("system", "cuda")

BODY_BYTES_MAX: Final = 1 << 14
_KEYS: Final = ("key", "offset", "byte_size")

RegionName = Annotated[str, Path(description="What the client calls the region.")]

_STATUS: Final[Mapping[Fault, tuple[int, grpc.StatusCode]]] = {
    Fault.INVALID: (400, grpc.StatusCode.INVALID_ARGUMENT),
    Fault.EXISTS: (400, grpc.StatusCode.ALREADY_EXISTS),
    Fault.FULL: (413, grpc.StatusCode.RESOURCE_EXHAUSTED),
}


class Sharing(Protocol):
    """A server that serves tensors in shared memory."""

    def share(self, regions: Regions) -> None:
        """Serve tensors in these regions."""
        ...


class RpcSharing(Sharing, Protocol):
    """The gRPC server, which has the methods too."""

    def offer(self, methods: Mapping[str, RpcMethod]) -> None:
        """Serve these methods."""
        ...


def offer_shared_memory(app: FastAPI, rest: Sharing, rpc: RpcSharing, regions: Regions | None) -> None:
    """Serve the extensions over REST and gRPC; `regions`: None where clients may register nothing."""
    add_shared_memory(app, regions)
    rpc.offer(shared_memory_methods(regions))
    if regions is not None:
        rest.share(regions)
        rpc.share(regions)


def add_shared_memory(app: FastAPI, regions: Regions | None) -> None:
    """Add the REST half to the application; `regions`: None where clients may register nothing."""
    keep_regions(app, regions)
    _add_system(app, regions)
    _add_cuda(app)


def _add_system(app: FastAPI, regions: Regions | None) -> None:
    _add_status(app, regions)

    async def register(region: RegionName, request: Request) -> Response:
        """Register a part of a file under /dev/shm, which the client has made by shm_open, as a region."""
        if regions is None:
            return JSONResponse({"error": _disabled(region)}, 501)
        key, offset, byte_size = _registration(bytes(await read_body(request, BODY_BYTES_MAX, _over)))
        try:
            regions.of(caller(request.scope)).register(region, key, offset, byte_size)
        except RegistrationRefusedError as error:
            return JSONResponse({"error": str(error)}, _STATUS[error.fault][0])
        return Response()

    async def unregister(request: Request) -> Response:
        """Unregister all regions of the caller; 200."""
        if regions is not None:
            regions.of(caller(request.scope)).unregister()
        return Response()

    async def unregister_region(region: RegionName, request: Request) -> Response:
        """Unregister a region; 200, whether or not there was such a region."""
        if regions is not None:
            regions.of(caller(request.scope)).unregister(region)
        return Response()

    schema = {"type": "object", "properties": {name: {} for name in _KEYS}}
    body = {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}
    _route(app, "system", "/region/{region}/register", "POST", register, body)
    _route(app, "system", "/unregister", "POST", unregister)
    _route(app, "system", "/region/{region}/unregister", "POST", unregister_region)


def _add_status(app: FastAPI, regions: Regions | None) -> None:
    async def status(request: Request) -> Response:
        """Return the regions that the caller has registered."""
        found = () if regions is None else regions.of(caller(request.scope)).registered()
        return JSONResponse([_described(each) for each in found])

    async def region_status(region: RegionName, request: Request) -> Response:
        """Return the region, as a list of one; 404 without it."""
        found = None if regions is None else regions.of(caller(request.scope)).find(region)
        if found is None:
            return JSONResponse({"error": _unknown("system", region)}, 404)
        return JSONResponse([_described(found)])

    _route(app, "system", "/status", "GET", status)
    _route(app, "system", "/region/{region}/status", "GET", region_status)


def _route(
    app: FastAPI,
    kind: str,
    path: str,
    method: str,
    answer: Callable[..., Awaitable[object]],
    extra: dict[str, Any] | None = None,
) -> None:
    name = f"{kind}_memory_{answer.__name__}"
    where = f"/v2/{kind}sharedmemory{path}"
    app.add_api_route(where, answer, methods=[method], tags=["shared memory"], name=name, openapi_extra=extra)


def _add_cuda(app: FastAPI) -> None:
    async def status() -> list[str]:
        """Return the regions that are registered: none."""
        return []

    async def region_status(region: RegionName) -> Response:
        """Return 404: no region is registered."""
        return JSONResponse({"error": _unknown("cuda", region)}, 404)

    async def register(region: RegionName) -> Response:
        """Return 501: no tensor is passed in the memory of a GPU."""
        return JSONResponse({"error": _no_gpus(region)}, 501)

    async def unregister() -> Response:
        """Return 200: there are no regions to unregister."""
        return Response()

    async def unregister_region(region: RegionName) -> Response:  # noqa: ARG001  # as Triton: any name will do
        """Return 200, whether or not there was such a region."""
        return Response()

    _route(app, "cuda", "/status", "GET", status)
    _route(app, "cuda", "/region/{region}/status", "GET", region_status)
    _route(app, "cuda", "/region/{region}/register", "POST", register)
    _route(app, "cuda", "/unregister", "POST", unregister)
    _route(app, "cuda", "/region/{region}/unregister", "POST", unregister_region)


def _registration(body: bytes) -> tuple[str, int, int]:
    """Return key, offset and byte size of a registration over REST. Raises RequestError for a faulty body."""
    try:
        said = orjson.loads(body)
    except orjson.JSONDecodeError as fault:
        raise bad_input(f"the registration is not valid JSON: {fault}") from None
    if not isinstance(said, dict):
        raise bad_input(f"a registration is an object with {listed(_KEYS)}, got {quoted(said)}")
    for name in said:
        if name not in _KEYS:
            raise bad_input(f"a registration has an unknown key {quoted(name)}; known are {listed(_KEYS)}")
    key, offset, byte_size = said.get("key"), said.get("offset", 0), said.get("byte_size")
    if not isinstance(key, str):
        raise bad_input(f"'key' must be a string such as '/my_inputs', got {quoted(key)}")
    if type(offset) is not int or offset < 0:
        raise bad_input(f"'offset' must be a whole number of bytes, got {quoted(offset)}")
    if type(byte_size) is not int or byte_size < 0:
        raise bad_input(f"'byte_size' must be a whole number of bytes, got {quoted(byte_size)}")
    return key, offset, byte_size


def _over() -> RequestError:
    return too_large(f"a registration has at most {BODY_BYTES_MAX} bytes")


def _described(region: Region) -> dict[str, object]:
    return {
        "name": region.name,
        "key": region.key,
        "offset": region.offset,
        "byte_size": region.byte_size,
    }


def shared_memory_methods(regions: Regions | None) -> Mapping[str, RpcMethod]:
    """Return the gRPC half; `regions`: None where clients may register nothing."""
    return {
        "SystemSharedMemoryStatus": partial(_status, regions),
        "SystemSharedMemoryRegister": partial(_register, regions),
        "SystemSharedMemoryUnregister": partial(_unregister, regions),
        "CudaSharedMemoryStatus": _cuda_status,
        "CudaSharedMemoryRegister": _register_cuda,
        "CudaSharedMemoryUnregister": _unregister_cuda,
    }


async def _status(regions: Regions | None, request: Any, context: Any) -> Any:
    memory = None if regions is None else regions.of(CALLER.get())
    found = () if memory is None else memory.registered()
    if request.name:
        found = [each for each in found if each.name == request.name]
        if not found:
            await context.abort(grpc.StatusCode.NOT_FOUND, _unknown("system", request.name))
    answer = oip.SystemSharedMemoryStatusResponse()
    for each in found:
        said = answer.regions[each.name]
        said.name, said.key, said.offset, said.byte_size = each.name, each.key, each.offset, each.byte_size
    return answer


async def _register(regions: Regions | None, request: Any, context: Any) -> Any:
    if regions is None:
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, _disabled(request.name))
        raise AssertionError("an aborted call goes on")
    memory = regions.of(CALLER.get())
    try:
        memory.register(request.name, request.key, request.offset, request.byte_size)
    except RegistrationRefusedError as error:
        await context.abort(_STATUS[error.fault][1], str(error))
    return oip.SystemSharedMemoryRegisterResponse()


async def _unregister(regions: Regions | None, request: Any, _context: Any) -> Any:
    if regions is not None:
        regions.of(CALLER.get()).unregister(request.name)
    return oip.SystemSharedMemoryUnregisterResponse()


async def _cuda_status(request: Any, context: Any) -> Any:
    if request.name:
        await context.abort(grpc.StatusCode.NOT_FOUND, _unknown("cuda", request.name))
    return oip.CudaSharedMemoryStatusResponse()


async def _register_cuda(request: Any, context: Any) -> None:
    await context.abort(grpc.StatusCode.UNIMPLEMENTED, _no_gpus(request.name))


async def _unregister_cuda(_request: Any, _context: Any) -> Any:
    return oip.CudaSharedMemoryUnregisterResponse()


def _unknown(kind: str, region: str) -> str:
    return f"Unable to find {kind} shared memory region: {quoted(region)}"  # begins as Triton's


def _disabled(region: str) -> str:
    return f"{DISABLED}: the region {quoted(region)} cannot be registered; {ENABLE}"


def _no_gpus(region: str) -> str:
    why = "the gateway passes no tensors in the memory of a GPU; register system shared memory"
    return f"failed to register CUDA shared memory region: {quoted(region)}, GPUs not supported: {why}"
