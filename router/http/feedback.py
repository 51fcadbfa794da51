"""Feedback on answers over REST, and what it has taught: `POST .../feedback`, `GET .../selection`."""

from collections.abc import Mapping
from typing import Annotated, Any

import orjson
from fastapi import FastAPI, Path, Request
from fastapi.responses import Response

from router.protocol.bodies import read_body
from router.protocol.oip import find_model
from router.protocol.rest import fields_of, plain_error, stated_tenant
from router.security.auth.asgi import caller
from router.security.auth.identity import own_tenant
from router.tensors.parts.errors import RequestError, bad_input, too_large
from router.tensors.parts.nesting import over_count
from router.tensors.parts.wording import quoted
from serving.runtime.calls.selecting import SelectingServing
from serving.selection.feedback import Feedback, FeedbackError

BODY_BYTES_MAX = 1 << 17  # a loss in full for each of 4,096 rows, and room
VALUES_MAX = 16_384  # in a body: they are read at once, in some 2 ms
ENTRIES_MAX = 256  # at once: learning from each takes some 30 us of the event loop

Name = Annotated[str, Path(description="A name out of `GET /v2/models`.")]

_KEYS = ("query", "label", "labels", "loss", "losses")
_EXPECTED = "expected one of label, labels, loss and losses"
_PROPERTIES: Mapping[str, Any] = {name: {} for name in (*_KEYS, "feedback")}
_OPERATION = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": {"type": "object", "properties": _PROPERTIES}}},
    }
}


def add_feedback(app: FastAPI, selecting: SelectingServing) -> None:
    """Add the feedback routes to the application."""
    app.add_exception_handler(FeedbackError, _on_refused)

    @app.post("/v2/models/{model}/feedback", tags=["selection"], openapi_extra=_OPERATION)
    async def feedback(model: Name, request: Request) -> Response:
        """Take feedback on answers, by the name (`x-penstock-query`) that each came with. Feedback is the
        right class (`label`, or `labels` of its rows) or the cost, 0 to 1 (`loss`, `losses`). Several at once
        are a list under `feedback`: all are taken, or none."""
        name = find_model(selecting, model).name
        given = decode_feedback(await read_body(request, BODY_BYTES_MAX, _too_large))
        own = own_tenant(caller(request.scope))
        tenant = stated_tenant(selecting, fields_of(request.scope["headers"]), own)
        return _json({"taken": selecting.feedback(name, given, tenant)})

    @app.get("/v2/models/{model}/selection", tags=["selection"])
    async def selection(model: Name) -> Response:
        """Return the members of a model with a `selection`, and what is known of them: weights,
        probabilities, and the joint accuracy of members that vote together."""
        return _json(selecting.selection(find_model(selecting, model).name))


def decode_feedback(body: bytes | bytearray) -> list[Feedback]:
    """Return the feedback in a request's JSON; RequestError where it is not well formed."""
    if over_count(bytes(body), VALUES_MAX):
        raise too_large(f"the body has more than the {VALUES_MAX} values that feedback may have")
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise bad_input(f"the body is not valid JSON: {error}") from None
    if isinstance(value, dict) and "feedback" in value:
        entries = value["feedback"]
        if not isinstance(entries, list) or not 0 < len(entries) <= ENTRIES_MAX or len(value) > 1:
            raise bad_input(f"'feedback' must be a list of 1 to {ENTRIES_MAX}, and nothing may be beside it")
        return [_decode_entry(entry, f"feedback[{place}]: ") for place, entry in enumerate(entries)]
    return [_decode_entry(value, "")]


def _decode_entry(value: object, where: str) -> Feedback:
    if not isinstance(value, dict):
        raise bad_input(f"{where}feedback must be a JSON object with a query, got {quoted(value)}")
    unknown = [name for name in value if name not in _KEYS]
    if unknown:
        raise bad_input(f"{where}unknown key {quoted(unknown[0])}; known are {', '.join(_KEYS)}")
    query = value.get("query")
    if not isinstance(query, str) or not 0 < len(query) <= 64:
        raise bad_input(f"{where}'query' must be what x-penstock-query named, got {quoted(query)}")
    said = [name for name in _KEYS[1:] if name in value]
    if len(said) != 1:
        raise bad_input(f"{where}{_EXPECTED}, got {' and '.join(said) or 'none'}")
    name = said[0]
    values = value[name] if name in ("labels", "losses") else [value[name]]
    if not isinstance(values, list) or not values:
        raise bad_input(f"{where}{quoted(name)} must be a list of numbers, one for each row")
    if name in ("label", "labels"):
        wrong = [each for each in values if type(each) is not int or not 0 <= each < 1 << 31]
        if wrong:
            raise bad_input(f"{where}a label is the number of a class, from 0 on, got {quoted(wrong[0])}")
        return Feedback(query, labels=tuple(values))
    wrong = [each for each in values if type(each) not in (int, float) or not 0 <= each <= 1]
    if wrong:
        raise bad_input(f"{where}a loss is a number from 0 to 1, got {quoted(wrong[0])}")
    return Feedback(query, losses=tuple(map(float, values)))


def _too_large() -> RequestError:
    return too_large(f"the body is over the {BODY_BYTES_MAX} bytes that feedback may have")


def _json(value: object) -> Response:
    return Response(orjson.dumps(value), media_type="application/json")


async def _on_refused(request: Request, error: Exception) -> Response:  # noqa: ARG001  # Starlette's signature
    assert isinstance(error, FeedbackError)  # noqa: S101  # registered for this class
    return Response(plain_error(str(error)), 409 if error.conflict else 400, media_type="application/json")
