"""The fields of a REST request's JSON: read with their types checked, before the spec has a say."""

from collections.abc import Mapping, Sequence
from typing import Final

import orjson

from router.tensors.answer.answered import plain_outputs
from router.tensors.answer.classes import PARAMETER as CLASSES
from router.tensors.answer.classes import read_classes
from router.tensors.parts.errors import RequestError, bad_input, too_large
from router.tensors.parts.nesting import over_count, too_deep
from router.tensors.parts.places import Place, read_place, refused_classes
from router.tensors.parts.wording import listed, quoted, suggestion
from router.tensors.request.check import ClaimedInput, check_count, find_outputs
from router.tensors.request.decoded import RequestedOutput
from router.tensors.request.extensions import INPUT, OUTPUT, refuse_unread
from serving.values.specs import Limits, ServedModel

Object = Mapping[str, object]

_NOTHING: Object = {}

_OURS: Final = ("id", "parameters", "inputs", "outputs")
REQUEST: Final = (*_OURS, "model_name", "model_version")
"""The keys of a request's JSON object, and below those of its inputs and outputs. The protocol has the first
four; KServe's clients repeat the model, which an answer names as well."""
_ENTRY: Final[Mapping[str, Sequence[str]]] = {
    "inputs": ("name", "shape", "datatype", "parameters", "data"),
    "outputs": ("name", "parameters"),
}


class Input:
    """One entry of `inputs`: what it claims, and its data in JSON, its size after the JSON, or its place in
    the client's memory."""

    __slots__ = ("binary_bytes", "claim", "data", "place")

    def __init__(
        self, claim: ClaimedInput, data: object, binary_bytes: int | None, place: Place | None = None
    ) -> None:
        self.claim = claim
        self.data = data
        self.binary_bytes = binary_bytes
        self.place = place


def parse(text: bytes, limits: Limits) -> Object:
    """Return the request's JSON object, with no other keys than the protocol has; RequestError for everything
    else."""
    document = parse_object(text, limits)
    for name in document:
        if name not in REQUEST:
            raise _unknown("the request", name, _OURS)
    return document


def parse_object(text: bytes, limits: Limits) -> Object:
    """Return a JSON object with any keys; RequestError for everything else. Its size is looked at before it
    is parsed: a byte of JSON can become 64 of objects."""
    if len(text) > limits.json_bytes:
        raise too_large(
            f"the request has {len(text)} bytes of JSON; at most {limits.json_bytes} are accepted "
            "(limits.json_mb): send large tensors as binary data"
        )
    if over_count(text, limits.element_count):
        raise too_large(
            f"the request has more than {limits.element_count} values in its JSON (limits.element_count): "
            "send large tensors as binary data"
        )
    if too_deep(text, limits.json_depth):
        raise bad_input(f"the JSON is nested deeper than {limits.json_depth} levels (limits.json_depth)")
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError as fault:
        hint = ""
        if fault.doc.startswith(("NaN", "Infinity", "-Infinity", "inf", "-inf", "nan"), fault.pos):
            hint = "; JSON has no NaN or infinity, send them as binary data"
        raise bad_input(f"the request is not valid JSON: {fault}{hint}") from None
    if not isinstance(document, dict):
        raise bad_input(f"the request must be a JSON object with 'inputs', got {quoted(document)}")
    return document


def check_model(document: Object, model: ServedModel) -> None:
    """Raise RequestError if the request names another model than its path does."""
    for key, path in (("model_name", model.spec.model_name), ("model_version", model.spec.model_version)):
        stated = document.get(key)
        if stated not in (None, "", path):
            raise bad_input(f"{key!r} of the request is {quoted(stated)}, but its path names {quoted(path)}")


def inputs(document: Object, limits: Limits) -> list[Input]:
    """Return the entries of `inputs` in the client's order."""
    entries = _entries(document, "inputs", limits)
    return [_input(entry, f"inputs[{index}]") for index, entry in enumerate(entries)]


def wanted(document: Object, model: ServedModel, limits: Limits) -> tuple[RequestedOutput, ...]:
    """Return the outputs that the client asks for, or all of them where it names none."""
    default = _flag(parameters(document, "the request"), "binary_data_output", False, "the request")
    entries = _entries(document, "outputs", limits) if document.get("outputs") is not None else []
    if not entries:
        return tuple(RequestedOutput(index, default) for index in plain_outputs(model.spec))
    names: list[str] = []
    binary: list[bool] = []
    classes: list[int] = []
    places: list[Place | None] = []
    for index, entry in enumerate(entries):
        name = _text(entry, "name", f"outputs[{index}]")
        what = f"output {quoted(name)}"
        asked = parameters(entry, what)
        refuse_unread(what, asked, OUTPUT)
        names.append(name)
        place = read_place(asked, what)
        places.append(place)
        binary.append(_flag(asked, "binary_data", default, what) or place is not None)
        classes.append(read_classes(asked.get(CLASSES), what))
        if place is not None and classes[-1]:
            raise refused_classes(what)
    return tuple(map(RequestedOutput, find_outputs(model, names), binary, classes, places))


def request_id(document: Object) -> str:
    """Return the client's `id`, "" where it gave none."""
    return _text(document, "id", "the request") if document.get("id") is not None else ""


def parameters(entry: Object, what: str) -> Object:
    """Return the `parameters` of the request or of a tensor; empty where there are none."""
    found = entry.get("parameters")
    if found is None:
        return _NOTHING
    if not isinstance(found, dict):
        raise bad_input(f"'parameters' of {what} must be an object, got {quoted(found)}")
    return found


def _input(entry: Object, where: str) -> Input:
    name = _text(entry, "name", where)
    what = f"input {quoted(name)}"
    claim = ClaimedInput(name, _text(entry, "datatype", what), _shape(entry, what))
    asked = parameters(entry, what)
    refuse_unread(what, asked, INPUT)
    size = asked.get("binary_data_size")
    place = read_place(asked, what)
    if place is not None:
        if size or "data" in entry:
            raise bad_input(f"{what} has data in the request and in shared memory; send one of them")
        return Input(claim, None, None, place)
    if size is None:
        if "data" not in entry:
            raise bad_input(f"{what} has neither 'data' nor 'parameters.binary_data_size'")
        return Input(claim, entry["data"], None)
    if type(size) is not int or size < 0:
        raise bad_input(f"binary_data_size of {what} must be a whole number of bytes, got {quoted(size)}")
    if "data" in entry:
        raise bad_input(f"{what} has both 'data' and 'parameters.binary_data_size'; send one of them")
    return Input(claim, None, size)


def _shape(entry: Object, what: str) -> tuple[int, ...]:
    dims = entry.get("shape")
    if not isinstance(dims, list):
        raise bad_input(f"'shape' of {what} must be a list of whole numbers, got {_found(entry, 'shape')}")
    for dim in dims:
        if type(dim) is not int:
            raise bad_input(f"'shape' of {what} must hold whole numbers, got {quoted(dim)}")
    return tuple(dims)


def _entries(document: Object, key: str, limits: Limits) -> Sequence[Object]:
    entries = document.get(key)
    if not isinstance(entries, list):
        raise bad_input(f"'{key}' of the request must be a list of objects, got {_found(document, key)}")
    check_count(key, len(entries), limits)
    for index, entry in enumerate(entries):
        if not isinstance(entry, dict):
            raise bad_input(f"{key}[{index}] must be an object, got {quoted(entry)}")
        for name in entry:
            if name not in _ENTRY[key]:
                raise _unknown(f"{key}[{index}]", name, _ENTRY[key])
    return entries


def _unknown(what: str, name: str, known: Sequence[str]) -> RequestError:
    """Return the refusal of a key that nothing reads: an answer would hide what was not done for it."""
    hint = suggestion(name, known) or f"; known are {listed(known)}"
    return bad_input(f"{what} has an unknown key {quoted(name)}{hint}")


def _text(entry: Object, key: str, what: str) -> str:
    text = entry.get(key)
    if not isinstance(text, str):
        raise bad_input(f"'{key}' of {what} must be a string, got {_found(entry, key)}")
    return text


def _flag(entry: Object, key: str, default: bool, what: str) -> bool:
    flag = entry.get(key, default)
    if not isinstance(flag, bool):
        raise bad_input(f"'{key}' of {what} must be true or false, got {quoted(flag)}")
    return flag


def _found(entry: Object, key: str) -> str:
    return quoted(entry[key]) if key in entry else "none"
