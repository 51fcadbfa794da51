"""`generate` and `generate_stream` of Triton's generate extension: flat JSON in; out as one JSON object, or
as Server-Sent Events while the model answers (WHATWG HTML, 9.2.6)."""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from typing import Annotated, Final

from fastapi import FastAPI, Path, Request
from fastapi.responses import Response
from starlette.types import Receive, Scope, Send

from router.http.apidocs import GENERATE_OPERATION
from router.payloads.bulk.pool import Bulk
from router.protocol.account import Account
from router.protocol.bodies import read_body
from router.protocol.explanation import separate
from router.protocol.oip import check_one_row, find_model
from router.protocol.outcomes import CLIENT_LEFT, INTERNAL_ERROR, error_body
from router.protocol.rest import (
    Fields,
    Rendered,
    encode_reply,
    fields_of,
    plain_error,
    read_request,
    render_error,
    stated_tenant,
)
from router.security.auth.asgi import caller, check_tier
from router.security.auth.identity import own_tenant
from router.tensors.generate import BODY_BYTES_MAX, flat_answer, protocol_request
from router.tensors.parts.compression import unknown_coding
from router.tensors.parts.errors import RETRY_US, RequestError, bad_input, memory_full, too_large
from router.tensors.request.decoded import Decoded
from router.tensors.rest import joined
from serving.policy.limits.memory import SMALL_BYTES
from serving.ports import Reply, Serving
from serving.values.specs import Limits
from serving.values.tensor import Tensor
from serving.values.vocabulary import CLIENT_GONE, COMPLETED, MEMORY_FULL, QUEUE_FULL

logger = logging.getLogger(__name__)

Name = Annotated[str, Path(description="A name out of `GET /v2/models`.")]
Version = Annotated[str, Path(description="Of a model with numbered folders; else `1`.")]

EVENTS: Final = "text/event-stream; charset=utf-8"
_PLAIN: Final = (b"", b"identity")
_ONE: Final = "generate expects model to produce exactly 1 response"
"""As Triton says it."""


class Asked:
    """A request that was understood. `began_us`: when it came; `arrived_us`: when all of it was there."""

    __slots__ = ("arrived_us", "began_us", "decoded", "fields")

    def __init__(self, decoded: Decoded, fields: Fields, began_us: int, arrived_us: int) -> None:
        self.decoded = decoded
        self.fields = fields
        self.began_us = began_us
        self.arrived_us = arrived_us


class GenerateRoute:
    """Answers both routes for one server. `_open`: the answers that go on."""

    def __init__(self, serving: Serving, bulk: Bulk) -> None:
        self.serving = serving
        self.bulk = bulk
        self.limits: Limits = bulk.limits
        self._open: set[Answers] = set()

    async def answer(self, request: Request, name: str, version: str, *, events: bool) -> Response:
        """Return the answer to one request, errors included."""
        serving, fields = self.serving, fields_of(request.scope["headers"])
        tenant = stated_tenant(serving, fields, own_tenant(caller(request.scope)))
        try:
            asked = await self._read(request, fields, tenant, (name, version))
        except RequestError as error:
            serving.refused(name, error.outcome, tenant)
            return _rendered(render_error(error), fields)
        return AnswerResponse(self, asked, events=events)

    async def _read(self, request: Request, fields: Fields, tenant: str, model: tuple[str, str]) -> Asked:
        serving, limits = self.serving, self.limits
        began_us = serving.now_us()
        served = find_model(serving, *model)
        coding = fields.get(b"content-encoding", b"")
        if coding not in _PLAIN:
            raise bad_input(f"generate takes no compressed bodies: {unknown_coding(coding)}")
        if len(self._open) >= limits.infer_stream_count:
            most = f"{limits.infer_stream_count} answers of generate open (limits.infer_stream_count)"
            raise RequestError(QUEUE_FULL, f"the gateway has its limit of {most}", RETRY_US)
        sentence = (
            f"the request body is over the {BODY_BYTES_MAX} bytes that generate takes: send it to infer"
        )
        body = await read_body(request, BODY_BYTES_MAX, lambda: too_large(sentence))
        tier = serving.tenants[tenant].tier
        text = protocol_request(bytes(body), served, limits)
        decoded = read_request(text, fields, served, limits, tier)
        if served.spec.decoupled:
            check_one_row(decoded.call)
        check_tier(request.scope, decoded.call.objective.tier, tier)
        arrived_us = decoded.call.arrived_us = serving.now_us()
        decoded.call.tenant = tenant
        return Asked(decoded, fields, began_us, arrived_us)

    def begin(self, answers: "Answers") -> None:
        """Count an answer until it has ended."""
        self._open.add(answers)

    def end(self, answers: "Answers") -> None:
        """Count it out."""
        self._open.discard(answers)


class Answers:
    """The answers of one call, as flat JSON, until its client has them. `address`: the client's."""

    def __init__(self, route: GenerateRoute, asked: Asked, address: str) -> None:
        self._serving = route.serving
        self._limit = route.limits.infer_stream_bytes
        self._account: Account = route.bulk.account
        self._decoded = asked.decoded
        self._address = address
        self._texts: deque[bytes] = deque()
        self._unread_bytes = 0
        self._request_id = 0
        self._changed = asyncio.Event()
        self.reply: Reply | None = None  # what ended the call

    def submit(self) -> None:
        """Give the call to the core."""
        call = self._decoded.call
        if call.model.spec.decoupled:
            call.on_answer = self._take
        request_id = self._serving.submit(call, self._deliver)
        if self.reply is None:
            self._request_id = request_id

    def _take(self, outputs: Sequence[Tensor], version: int = 0) -> None:
        if self.reply is not None:
            return
        if self._unread_bytes > self._limit:
            sentence = f"{self._unread_bytes} bytes of answers wait for the client (limits.infer_stream_mb)"
            self.fail(Reply(MEMORY_FULL, sentence))
            return
        try:
            text = flat_answer(self._decoded, outputs, version)
        except RequestError as error:
            self.fail(Reply(error.outcome, error.message))
            return
        self._texts.append(text)
        self._unread_bytes += len(text)
        if self._unread_bytes > SMALL_BYTES:
            self._account.fall_behind(self)
        self._changed.set()

    def _deliver(self, reply: Reply) -> None:
        self._request_id = 0
        if self.reply is not None:
            return
        if reply.outcome is COMPLETED and reply.outputs:
            self._take(reply.outputs, reply.version)
        if self.reply is None:
            self.reply = reply
        self._changed.set()

    def fail(self, reply: Reply) -> None:
        """End the call so; what was not given out is dropped."""
        if self.reply is not None:
            return
        self.reply = reply
        self._texts.clear()
        request_id, self._request_id = self._request_id, 0
        if request_id:
            self._serving.cancel(request_id)
        self._changed.set()

    async def next(self) -> bytes | None:
        """Return the next answer; None once there are no more: `reply` says how the call ended."""
        while not self._texts:
            if self.reply is not None:
                return None
            self._changed.clear()
            await self._changed.wait()
        text = self._texts.popleft()
        self._unread_bytes -= len(text)
        if self._unread_bytes <= SMALL_BYTES:
            self._account.catch_up(self)
        return text

    def close(self) -> None:
        """Let go of it: it was sent, or its client has left."""
        self.fail(Reply(CLIENT_GONE))
        self._account.catch_up(self)

    # what the account asks of it: see `router.protocol.account.Holder`

    def held_bytes(self) -> int:
        return self._unread_bytes

    def address(self) -> str:
        return self._address

    def give_up(self, _sentence: str) -> None:
        error = memory_full(_sentence)
        self.fail(Reply(error.outcome, error.message))


class AnswerResponse(Response):
    """The response to an understood request: its client is watched while the model computes, and is sent an
    event for each answer as it takes them."""

    def __init__(self, route: GenerateRoute, asked: Asked, *, events: bool) -> None:
        super().__init__()
        self._route = route
        self._asked = asked
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, as an ASGI application."""
        client = scope.get("client")
        answers = Answers(self._route, self._asked, str(client[0]) if client else "")
        self._route.begin(answers)
        leaving = asyncio.ensure_future(_leave(answers, receive))
        try:
            answers.submit()
            first = await answers.next()
            if self._events and first is not None:
                await self._tell(answers, first, send)
            elif answers.reply is not None and answers.reply.outcome is CLIENT_GONE:
                await Response(status_code=CLIENT_LEFT)(scope, receive, send)
            else:
                await (await self._whole(answers, first))(scope, receive, send)
        except Exception:
            logger.exception("generate on '%s' failed in the gateway", self._asked.decoded.call.model.name)
            raise
        finally:
            leaving.cancel()
            answers.close()
            self._route.end(answers)

    async def _tell(self, answers: Answers, first: bytes, send: Send) -> None:
        """Send an event for each answer, and one for an error that ends them."""
        head = [(b"content-type", EVENTS.encode()), (b"cache-control", b"no-cache"), *self._echoed()]
        limit_s = self._route.limits.slow_client_s
        text: bytes | None = first
        try:
            async with asyncio.timeout(limit_s):
                await send({"type": "http.response.start", "status": 200, "headers": head})
            while text is not None:
                async with asyncio.timeout(limit_s):
                    await send(_event(text))
                text = await answers.next()
        except TimeoutError:
            answers.fail(Reply(CLIENT_GONE, "it takes no answers"))
        reply = answers.reply
        if reply is not None and reply.outcome not in (COMPLETED, CLIENT_GONE):
            await send(_event(error_body(reply.outcome, reply.detail)))
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _whole(self, answers: Answers, text: bytes | None) -> Response:
        """Return the response of a call with one answer, or without any."""
        asked, reply = self._asked, answers.reply
        if text is not None:
            if await answers.next() is not None:
                return self._error(
                    f"{_ONE}; '{asked.decoded.call.model.spec.model_name}' gives more: ask generate_stream"
                )
            reply = answers.reply
        if reply is None:
            return Response(plain_error(INTERNAL_ERROR), 500, media_type="application/json")
        if reply.outcome is not COMPLETED:
            return _rendered(
                encode_reply(asked.decoded, reply, asked.fields, asked.began_us, self._route.serving.now_us),
                asked.fields,
            )
        if text is None and self._events:
            return Response(b"", 200, {"cache-control": "no-cache"}, EVENTS)
        if text is None:
            return self._error(f"{_ONE}; '{asked.decoded.call.model.spec.model_name}' gave none")
        made = text, None, b""
        now_us = self._route.serving.now_us
        return _rendered(
            encode_reply(asked.decoded, reply, asked.fields, asked.began_us, now_us, made), asked.fields
        )

    def _error(self, sentence: str) -> Response:
        return _rendered(render_error(bad_input(sentence)), self._asked.fields)

    def _echoed(self) -> list[tuple[bytes, bytes]]:
        request_id = self._asked.fields.get(b"x-request-id")
        return [] if request_id is None else [(b"x-request-id", request_id)]


async def _leave(answers: Answers, receive: Receive) -> None:
    """End the call when its client leaves. The body is read: only that can come."""
    while (await receive())["type"] != "http.disconnect":
        pass
    answers.fail(Reply(CLIENT_GONE))


def _event(text: bytes) -> dict[str, object]:
    return {"type": "http.response.body", "body": b"data: %b\n\n" % text, "more_body": True}


def _rendered(rendered: Rendered, fields: Fields) -> Response:
    status, body, _, more = rendered
    headers = separate(more)
    request_id = fields.get(b"x-request-id")
    if request_id is not None:
        headers["x-request-id"] = request_id.decode("latin-1")
    return Response(joined(body), status, headers, "application/json")


def add_generate(app: FastAPI, route: GenerateRoute) -> None:
    """Put both routes on the application, each with and without the version said."""

    @app.post("/v2/models/{model}/generate", tags=["inference"], openapi_extra=GENERATE_OPERATION)
    async def generate(model: Name, request: Request) -> Response:
        """Run the model on one row of flat JSON, and return its one answer (the extension generate)."""
        return await route.answer(request, model, "", events=False)

    @app.post("/v2/models/{model}/generate_stream", tags=["inference"], openapi_extra=GENERATE_OPERATION)
    async def generate_stream(model: Name, request: Request) -> Response:
        """Return each answer as a Server-Sent Event, as the model gives it."""
        return await route.answer(request, model, "", events=True)

    versioned = "/v2/models/{model}/versions/{model_version}"

    @app.post(f"{versioned}/generate", tags=["inference"], openapi_extra=GENERATE_OPERATION)
    async def generate_version(model: Name, model_version: Version, request: Request) -> Response:
        """Return the one answer, with the version said."""
        return await route.answer(request, model, model_version, events=False)

    @app.post(f"{versioned}/generate_stream", tags=["inference"], openapi_extra=GENERATE_OPERATION)
    async def generate_stream_version(model: Name, model_version: Version, request: Request) -> Response:
        """Return the events, with the version said."""
        return await route.answer(request, model, model_version, events=True)
