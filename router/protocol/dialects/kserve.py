"""KServe's first protocol: `:predict` with `instances`, a row each, or with `inputs`, a batch of each input.

https://kserve.github.io/website/docs/concepts/architecture/data-plane/v1-protocol describes it; `inputs` and
`outputs`, and bytes as `{"b64": ...}`, are TensorFlow Serving's.
"""

from base64 import b64encode
from collections.abc import Sequence
from typing import Final

import orjson

from router.protocol.dialects.question import Question, Stamp
from router.protocol.dialects.raw import FORM, form_rows, is_raw
from router.protocol.dialects.reading import begin, check_bounds, parse, refuse_others
from router.tensors.parts.elements import list_elements
from router.tensors.parts.errors import bad_input, too_large
from router.tensors.parts.wording import quoted
from serving.values.specs import Limits, ModelSpec
from serving.values.tensor import Tensor

_JSON: Final = orjson.OPT_SERIALIZE_NUMPY

TEXT: Final = "text/plain"
LINES: Final = (
    "application/x-ndjson",
    "application/jsonl",
    "application/json-lines",
    "application/jsonlines",
)


def read(body: bytes, content_type: str, limits: Limits) -> Question:
    """Return what `:predict` asks for: JSON; a plain text, a picture or a sound as one instance; lines of
    JSON, one each; or a form with the inputs' values."""
    if is_raw(content_type):
        return _rows([body])
    if content_type == FORM:
        return _rows(form_rows(body, limits))
    if content_type == TEXT:
        return _rows([_plain(body, limits)])
    if content_type in LINES:
        return _rows(_lines(body, limits))
    document = parse(body, limits)
    refuse_others(document, ("instances", "inputs", "signature_name"))
    question = begin(document)
    if ("instances" in document) == ("inputs" in document):
        raise bad_input("the request must have either 'instances' or 'inputs'")
    if document.get("signature_name") not in (None, "", "serving_default"):
        raise bad_input(f"'signature_name' must be serving_default, got {quoted(document['signature_name'])}")
    by_row = "instances" in document
    content = document["instances" if by_row else "inputs"]
    if by_row and (not isinstance(content, list) or not content):
        raise bad_input(f"'instances' of the request must be a list of rows, got {quoted(content)}")
    question.content, question.form = content, {"rows": by_row}
    return question


def write(
    question: Question, spec: ModelSpec, outputs: Sequence[Tensor], _tokens: int, _stamp: Stamp
) -> bytes:
    """Return `predictions`, a row each, or `outputs`, a batch of each output. A model with one output has its
    values there, a model with several an object with all of them."""
    batches = {each.name: nested(each) for each in outputs}
    only = next(iter(batches.values())) if len(spec.outputs) == 1 else None
    if not question.form["rows"]:
        return orjson.dumps({"outputs": batches if only is None else only}, option=_JSON)
    if only is not None:
        return orjson.dumps({"predictions": only}, option=_JSON)
    rows = range(outputs[0].shape[0])
    predictions = [{name: batch[row] for name, batch in batches.items()} for row in rows]
    return orjson.dumps({"predictions": predictions}, option=_JSON)


def nested(tensor: Tensor) -> Sequence[object]:
    """Return the values of a tensor as its shape nests them; bytes that are no text as `{"b64": ...}`."""
    if tensor.datatype != "BYTES":
        values = list_elements(tensor)
        assert not isinstance(values, list)  # noqa: S101  # only BYTES are
        shaped: Sequence[object] = values.reshape(tensor.shape)  # type: ignore[assignment]  # it is indexed alike
        return shaped
    found: Sequence[object] = _texts(tensor)
    for dim in reversed(tensor.shape[1:]):
        found = [found[at : at + dim] for at in range(0, len(found), dim)] if dim else []
    return found


def _texts(tensor: Tensor) -> list[object]:
    data, at = bytes(tensor.data), 0
    found: list[object] = []
    while at < len(data):
        end = at + 4 + int.from_bytes(data[at : at + 4], "little")
        element = data[at + 4 : end]
        try:
            found.append(element.decode())
        except UnicodeDecodeError:
            found.append({"b64": b64encode(element).decode()})
        at = end
    return found


def _rows(content: list[object]) -> Question:
    return Question(content=content, form={"rows": True})


def _plain(body: bytes, limits: Limits) -> str:
    if len(body) > limits.json_bytes:
        raise too_large(
            f"the request has {len(body)} bytes of text; at most {limits.json_bytes} are accepted "
            "(limits.json_mb)"
        )
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise bad_input(f"a body of {TEXT} must be UTF-8: {error}") from None


def _lines(body: bytes, limits: Limits) -> list[object]:
    """Return the value in each line that is not blank."""
    check_bounds(body, limits)
    found: list[object] = []
    for number, line in enumerate(body.splitlines(), 1):
        if not line.strip():
            continue
        if len(found) == limits.rows_per_request:
            most = f"at most {len(found)} rows are accepted (limits.rows_per_request)"
            raise too_large(f"the request has more than {len(found)} lines; {most}")
        try:
            found.append(orjson.loads(line))
        except orjson.JSONDecodeError as error:
            raise bad_input(f"line {number} of the request is not valid JSON: {error}") from None
    if not found:
        raise bad_input("the request has no lines; expected one instance a line, as JSON")
    return found
