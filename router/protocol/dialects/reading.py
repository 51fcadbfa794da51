"""The fields of an application's JSON: read with their types checked, and no key passed over in silence."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import orjson

from router.protocol.dialects.question import Question
from router.tensors.parts.errors import bad_input, too_large
from router.tensors.parts.nesting import over_count, too_deep
from router.tensors.parts.wording import listed, quoted, suggestion
from serving.values.specs import Limits

Object = Mapping[str, object]

SHARED: Final = ("model", "parameters")
"""Keys that all dialects have; `parameters` are those of the Open Inference Protocol."""

NOTHING: Final = (None, False, 0, "", "auto")
"""Values by which a client asks for nothing."""


def check_bounds(body: bytes, limits: Limits) -> None:
    """Raise RequestError for JSON that is too large, has too many values or is nested too deep. A byte of
    JSON can become 64 of objects."""
    if len(body) > limits.json_bytes:
        raise too_large(
            f"the request has {len(body)} bytes of JSON; at most {limits.json_bytes} are accepted "
            "(limits.json_mb)"
        )
    if over_count(body, limits.element_count):
        raise too_large(
            f"the request has more than {limits.element_count} values in its JSON (limits.element_count)"
        )
    if too_deep(body, limits.json_depth):
        raise bad_input(f"the JSON is nested deeper than {limits.json_depth} levels (limits.json_depth)")


def parse(body: bytes, limits: Limits) -> Object:
    """Return the JSON object in a body; RequestError for everything else."""
    check_bounds(body, limits)
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as fault:
        raise bad_input(f"the request is not valid JSON: {fault}") from None
    if not isinstance(document, dict):
        raise bad_input(f"the request must be a JSON object, got {quoted(document)}")
    return document


def refuse_others(document: Object, read: Collection[str], unread: Collection[str] = ()) -> None:
    """Raise RequestError for a key that nothing reads. `unread`: keys that a dialect has and the gateway does
    not offer; a value that asks for nothing is accepted there."""
    for key, value in document.items():
        if key in read or key in SHARED:
            continue
        if key not in unread:
            hint = suggestion(key, read) or f"; known are {listed((*read, *SHARED))}"
            raise bad_input(f"the request has an unknown key {quoted(key)}{hint}")
        if not _asks_nothing(value):
            raise bad_input(f"the request asks for {quoted(key)}, which this gateway does not offer")


def begin(document: Object) -> Question:
    """Return a question with what all dialects have: its model and its parameters."""
    parameters = document.get("parameters")
    if parameters is not None and not isinstance(parameters, dict):
        raise bad_input(f"'parameters' of the request must be an object, got {quoted(parameters)}")
    return Question(model=text(document, "model", ""), parameters=parameters or {})


def text(document: Object, key: str, default: str | None = None) -> str:
    """Return a string; `default` where the key is absent or null, RequestError without one."""
    value = document.get(key)
    if value is None and default is not None:
        return default
    if not isinstance(value, str):
        raise bad_input(f"'{key}' of the request must be a string, got {_found(document, key)}")
    return value


def flag(document: Object, key: str, default: bool) -> bool:
    """Return true or false."""
    value = document.get(key)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise bad_input(f"'{key}' of the request must be true or false, got {quoted(value)}")
    return value


def whole(document: Object, key: str, default: int, least: int = 0) -> int:
    """Return a whole number of at least `least`."""
    value = document.get(key)
    if value is None:
        return default
    if type(value) is not int or value < least:
        said = f"a whole number, {least} or more"
        raise bad_input(f"'{key}' of the request must be {said}, got {quoted(value)}")
    return value


def one_of(document: Object, key: str, names: Sequence[str]) -> str:
    """Return one of the names, in lower case; the first where the key is absent."""
    value = text(document, key, names[0]).lower()
    if value not in names:
        raise bad_input(f"'{key}' of the request must be {' or '.join(names)}, got {quoted(value)}")
    return value


def texts(document: Object, key: str) -> list[str]:
    """Return a string or a list of strings as a list, which is not empty."""
    value = document.get(key)
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list) or not value:
        said = "a string or a list of strings"
        raise bad_input(f"'{key}' of the request must be {said}, got {_found(document, key)}")
    for place, each in enumerate(value):
        if not isinstance(each, str):
            raise bad_input(f"{key}[{place}] must be a string, got {quoted(each)}")
    return value


def truncation(document: Object) -> bool:
    """Return whether texts that are too long are cut, in the words of text-embeddings-inference."""
    if one_of(document, "truncation_direction", ("right", "left")) == "left":
        raise bad_input("'truncation_direction' must be right: this gateway cuts the end of a text")
    return flag(document, "truncate", False)


def _asks_nothing(value: object) -> bool:
    return value in NOTHING if isinstance(value, bool | int | str | None) else not value


def _found(document: Object, key: str) -> str:
    return quoted(document[key]) if key in document else "none"
