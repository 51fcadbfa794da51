"""One request at an application's endpoint: read, prepared, submitted to the core, written in its dialect."""

import asyncio
import logging
import time
from collections.abc import Callable
from math import prod
from typing import Final
from uuid import uuid4

from fastapi import Request
from fastapi.responses import Response
from starlette.requests import ClientDisconnect

from router.http.endpoints.choosing import choose
from router.http.infer import NOBODY, response_of, submit
from router.payloads.bulk.pool import Bulk
from router.payloads.bulk.requests import open_body, pack_body
from router.protocol.dialects.catalogue import Endpoint
from router.protocol.dialects.errors import bug, dressed
from router.protocol.dialects.preparing import prepare
from router.protocol.dialects.question import Prepared, Question, Stamp
from router.protocol.dialects.texts import is_loaded, tokenizer_of
from router.protocol.explanation import completed_lines
from router.protocol.rest import (
    INLINE_BYTES,
    INLINE_JSON_BYTES,
    INLINE_PACKED_BYTES,
    Fields,
    Rendered,
    apply_fields,
    fields_of,
    render_error,
    render_failure,
    stated_tenant,
)
from router.security.auth.asgi import caller, check_model, check_tier
from router.security.auth.identity import own_tenant
from router.tensors.heading import Heading
from router.tensors.parts.errors import RequestError, bad_input, too_large
from router.tensors.parts.wording import quoted
from router.tensors.request.check import ClaimedInput, arrange, left_out
from router.tensors.request.decoded import Decoded, RequestedOutput
from router.tensors.request.parameters import read
from serving.ports import Reply, Serving
from serving.values.specs import ServedModel
from serving.values.tensor import Tensor
from serving.values.vocabulary import CLIENT_GONE, COMPLETED, Outcome

logger = logging.getLogger(__name__)

Count = Callable[[str, str, Outcome, int], None]
"""Takes an endpoint's name, a model, how a request ended, and the tokens of its texts."""

INLINE_TEXT_BYTES: Final = 1 << 11
"""Texts up to here have their tokens counted in the event loop (0.7 ms)."""
INLINE_ROWS: Final = 256
"""So many rows are prepared, and their answers written, in the event loop."""


class EndpointRoute:
    """Answers the endpoints of one server."""

    def __init__(self, serving: Serving, bulk: Bulk, count: Count) -> None:
        self._serving = serving
        self._bulk = bulk
        self._limits = bulk.limits
        self._count = count

    async def answer(self, request: Request, endpoint: Endpoint, name: str = "") -> Response:
        """Return the answer to one request, errors included. `name`: the model that the path names."""
        asking = _Asking(self._serving, request, endpoint, name)
        try:
            decoded = await self._open(asking)
            reply = await submit(self._serving, request, decoded)
            if reply.outcome is CLIENT_GONE:
                self._note(asking, reply.outcome)
                return NOBODY
            rendered = await self._render(asking, decoded, reply)
            self._note(asking, reply.outcome)
        except RequestError as error:
            if asking.decoded is None:
                self._serving.refused(asking.model, error.outcome, asking.tenant)
            self._note(asking, error.outcome)
            rendered = dressed(render_error(error), asking.form, error.outcome, error.message)
        except ClientDisconnect:
            self._serving.refused(asking.model, CLIENT_GONE, asking.tenant)
            raise
        except Exception:
            logger.exception("a request to %s failed in the gateway", endpoint.paths[0])
            rendered = bug(asking.form)
        return response_of(rendered, asking.fields)

    def _note(self, asking: "_Asking", outcome: Outcome) -> None:
        self._count(asking.endpoint.name, asking.model, outcome, asking.prepared.tokens)

    async def _open(self, asking: "_Asking") -> Decoded:
        """Return the call that a request asks for; RequestError for what cannot be served as it stands."""
        request, endpoint = asking.request, asking.endpoint
        body = await self._read_body(asking)
        asking.form, asking.body_bytes = endpoint.form_of(body), len(body)
        asking.arrived_us = self._serving.now_us()
        question = asking.question = await self._read(asking, body)
        if asking.named and question.model not in ("", asking.named):
            what = f"'model' of the request is {quoted(question.model)}"
            raise bad_input(f"{what}, but its path names {quoted(asking.named)}")
        asking.model = asking.named or question.model
        check_model(request.scope, asking.model)
        model = choose(self._serving, endpoint, asking.model, caller(request.scope))
        asking.model = model.name
        asking.prepared = await self._prepare(asking, model)
        decoded = self._decode(asking, model)
        tier = self._serving.tenants[asking.tenant].tier
        apply_fields(decoded, asking.fields, tier)
        check_tier(request.scope, decoded.call.objective.tier, tier)
        decoded.call.arrived_us = asking.arrived_us
        decoded.call.tenant = asking.tenant
        asking.decoded = decoded
        return decoded

    async def _read_body(self, asking: "_Asking") -> bytes:
        """Return the whole body, without its compression. What is held meanwhile is counted."""
        limit, bulk = self._limits.body_bytes, self._bulk
        body = bytearray()
        try:
            async for piece in asking.request.stream():
                bulk.hold(len(piece))
                body += piece
                if len(body) > limit:
                    raise too_large(f"the request body is over the limit of {limit} bytes (limits.body_mb)")
                bulk.admit(len(body))
            return bytes(await open_body(bulk, body, asking.fields))
        finally:
            bulk.hold(-len(body))

    async def _read(self, asking: "_Asking", body: bytes) -> Question:
        stated = asking.fields.get(b"content-type", b"").partition(b";")[0].strip().lower()
        endpoint, content_type = asking.endpoint, stated.decode("latin-1")
        if len(body) <= INLINE_BYTES:
            return endpoint.read(body, content_type, self._limits)
        self._bulk.admit(len(body))
        found: Question = await self._bulk.run(
            "read_question", len(body), endpoint.name, body, content_type, self._limits
        )
        return found

    async def _prepare(self, asking: "_Asking", model: ServedModel) -> Prepared:
        """Return the tensors, in a bulk process where tokens take long to count, or values to pack."""
        question, application = asking.question, model.spec.application
        size = sum([len(text.encode()) for text in question.texts]) + 4 * sum(map(len, question.ids))
        most = INLINE_BYTES
        if size and application is not None and application.tokenizer is not None:
            most = INLINE_TEXT_BYTES
            if not is_loaded(application.tokenizer):
                await asyncio.to_thread(tokenizer_of, application.tokenizer)
        elif question.content is not None:
            size = asking.body_bytes
        if size <= most and len(question.texts) <= INLINE_ROWS:
            return prepare(question, model, self._limits)
        found: Prepared = await self._bulk.run("prepare_question", size, question, model, self._limits)
        return found

    def _decode(self, asking: "_Asking", model: ServedModel) -> Decoded:
        """Return the call, as the Open Inference Protocol's codec makes it."""
        tensors = asking.prepared.tensors
        parameters = asking.question.parameters
        if "binary_data_output" in parameters:
            raise bad_input(
                "parameter 'binary_data_output' concerns tensors, which this endpoint does not return"
            )
        claims = [ClaimedInput(name, datatype, shape) for name, datatype, shape, _ in tensors]
        absent = left_out(model, claims)
        tensors = [*tensors, *((each.name, each.datatype, each.shape, b"") for each in absent)]
        claims += absent
        order = arrange(model, claims, self._limits)
        heading = Heading(
            model,
            [claims[place] for place in order],
            "",
            _wanted(model, asking.endpoint),
            read(parameters, model),
        )
        return heading.complete([Tensor(*tensors[place]) for place in order], None)

    async def _render(self, asking: "_Asking", decoded: Decoded, reply: Reply) -> Rendered:
        """Return the answer to a call, in the request's dialect."""
        serving, call = self._serving, decoded.call
        if reply.outcome is not COMPLETED:
            rendered = render_failure(reply, call.due_us)
            return dressed(rendered, asking.form, reply.outcome, reply.detail)
        body = await self._write(asking, call.model, reply)
        body, coding = await pack_body(self._bulk, body, asking.fields)
        lines = completed_lines(reply, call.due_us, asking.began_us, serving.now_us())
        if coding:
            lines += b"\r\ncontent-encoding: " + coding
        if reply.limits:
            lines += reply.limits.encode()
        if reply.answered_us:
            read_us, made_us = asking.arrived_us - asking.began_us, serving.now_us() - reply.answered_us
            serving.answered(call.model.name, reply, read_us, made_us)
        return 200, body, None, lines

    async def _write(self, asking: "_Asking", model: ServedModel, reply: Reply) -> bytes:
        """Return the body of an answer, made in a bulk process where that takes over a millisecond."""
        question, endpoint, tokens = asking.question, asking.endpoint, asking.prepared.tokens
        outputs = [tensor for tensor in reply.outputs if endpoint.returns(model.spec, tensor.name)]
        size = sum([len(tensor.data) for tensor in outputs])
        stamp = Stamp(uuid4().hex, int(time.time()))
        packed = endpoint.is_packed(question)
        elements = sum([prod(tensor.shape) for tensor in outputs])
        if not packed and elements > self._limits.element_count:
            raise bad_input(
                f"the answer has {elements} values; at most {self._limits.element_count} are written as JSON "
                "(limits.element_count): send fewer rows"
            )
        most = INLINE_PACKED_BYTES if packed else INLINE_JSON_BYTES
        if size <= most and all(tensor.shape[0] <= INLINE_ROWS for tensor in outputs):
            return endpoint.write(question, model.spec, outputs, tokens, stamp)
        rows = [(each.name, each.datatype, each.shape, bytes(each.data)) for each in outputs]
        order = endpoint.name, question, model, rows, tokens, stamp
        found: bytes = await self._bulk.run("write_answer", size, *order)
        return found


class _Asking:
    """What is known of one request, as far as it has come."""

    __slots__ = (
        "arrived_us", "began_us", "body_bytes", "decoded", "endpoint", "fields", "form", "model", "named",
        "prepared", "question", "request", "tenant",
    )  # fmt: skip
    decoded: Decoded | None

    def __init__(self, serving: Serving, request: Request, endpoint: Endpoint, name: str) -> None:
        self.began_us = self.arrived_us = serving.now_us()
        self.body_bytes = 0
        self.request = request
        self.endpoint = endpoint
        self.named = name
        self.form = endpoint.errors
        self.fields: Fields = fields_of(request.scope["headers"])
        self.tenant = stated_tenant(serving, self.fields, own_tenant(caller(request.scope)))
        self.model = name
        self.question = Question()
        self.prepared = Prepared(())
        self.decoded = None


def _wanted(model: ServedModel, endpoint: Endpoint) -> tuple[RequestedOutput, ...]:
    """Return the outputs that the answer is made of."""
    outputs = enumerate(model.spec.outputs)
    return tuple(RequestedOutput(i, True) for i, each in outputs if endpoint.returns(model.spec, each.name))
