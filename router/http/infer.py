"""Inference as an ASGI route: the same three calls as the fast path, for any ASGI server."""

import asyncio

from fastapi import Request
from fastapi.responses import Response

from router.payloads.bulk.pool import Bulk
from router.payloads.bulk.requests import Opened, make_rest, open_rest
from router.payloads.regions.registry import regions_of
from router.protocol.bodies import read_body
from router.protocol.explanation import separate
from router.protocol.oip import find_model
from router.protocol.outcomes import CLIENT_LEFT
from router.protocol.rest import (
    Fields,
    Rendered,
    decode_request,
    encode_reply,
    fields_of,
    is_bulk,
    is_bulk_answer,
    render_error,
    stated_tenant,
)
from router.security.auth.asgi import caller, check_tier
from router.security.auth.identity import own_tenant
from router.tensors.parts.errors import RequestError, too_large
from router.tensors.parts.places import CopyFirst
from router.tensors.request.decoded import Decoded
from router.tensors.rest import joined
from serving.ports import Reply, Serving
from serving.values.specs import ServedModel
from serving.values.vocabulary import CLIENT_GONE

NOBODY = Response(status_code=CLIENT_LEFT)
"""The answer to a client that has left."""


class InferRoute:
    """Answers `POST .../infer` for one server."""

    def __init__(self, serving: Serving, bulk: Bulk) -> None:
        self._serving = serving
        self._bulk = bulk
        self._limits = bulk.limits

    async def answer(self, request: Request, name: str, version: str) -> Response:
        """Return the answer to one request, errors included."""
        serving = self._serving
        began_us = serving.now_us()
        fields = fields_of(request.scope["headers"])
        tenant = stated_tenant(serving, fields, own_tenant(caller(request.scope)))
        try:
            model = find_model(serving, name, version)
            body = await self._read(request)
            arrived_us = serving.now_us()
            opened: Opened = body, fields
            if is_bulk(body, fields):
                opened = await open_rest(self._bulk, body, fields, model)
            tier = serving.tenants[tenant].tier
            decoded = await self._decode(request, opened, model, tier)
            check_tier(request.scope, decoded.call.objective.tier, tier)
            decoded.call.arrived_us = arrived_us
            decoded.call.tenant = tenant
        except RequestError as error:
            serving.refused(name, error.outcome, tenant)
            return response_of(render_error(error), fields)
        reply = await submit(serving, request, decoded)
        if reply.outcome == CLIENT_GONE:
            return NOBODY
        try:
            made = None
            if is_bulk_answer(decoded, reply, fields, self._limits):
                made = await make_rest(self._bulk, decoded, reply, fields)
            response = response_of(
                encode_reply(decoded, reply, fields, began_us, serving.now_us, made), fields
            )
            if reply.answered_us:
                made_us = serving.now_us() - reply.answered_us
                serving.answered(decoded.call.model.name, reply, arrived_us - began_us, made_us)
            return response
        except RequestError as error:  # what was asked for cannot be written as it was asked
            return response_of(render_error(error), fields)

    async def _decode(self, request: Request, opened: Opened, model: ServedModel, tier: str) -> Decoded:
        regions = regions_of(request.app)
        memory = None if regions is None else regions.of(caller(request.scope))
        try:
            return decode_request(*opened, model, self._limits, tier, memory)
        except CopyFirst as first:
            copied = await first.copy(len(opened[0]))
            return decode_request(*opened, model, self._limits, tier, copied)

    async def _read(self, request: Request) -> bytearray:
        limit = self._limits.body_bytes
        sentence = f"the request body is over the limit of {limit} bytes (limits.body_mb)"
        return await read_body(request, limit, lambda: too_large(sentence))


async def submit(serving: Serving, request: Request, decoded: Decoded) -> Reply:
    """Return the core's reply; a client that leaves first is cancelled there, so that it is CLIENT_GONE."""
    answered: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

    def deliver(reply: Reply) -> None:
        if not answered.done():  # done: this task was cancelled
            answered.set_result(reply)

    request_id = serving.submit(decoded.call, deliver)
    if answered.done():
        return answered.result()
    leaving = asyncio.ensure_future(request.receive())  # the body is read: only a departure can come
    try:
        await asyncio.wait((answered, leaving), return_when=asyncio.FIRST_COMPLETED)
    finally:
        leaving.cancel()
        if not answered.done():
            serving.cancel(request_id)
    return await answered


def response_of(rendered: Rendered, fields: Fields) -> Response:
    """Return a rendered answer, with the client's own name for the request."""
    status, body, json_length, more = rendered
    headers = separate(more)
    if json_length is not None:
        headers["inference-header-content-length"] = str(json_length)
    request_id = fields.get(b"x-request-id")
    if request_id is not None:
        headers["x-request-id"] = request_id.decode("latin-1")
    media_type = "application/json" if json_length is None else "application/octet-stream"
    return Response(joined(body), status, headers, media_type)
