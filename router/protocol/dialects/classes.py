"""Classes and their probabilities: vLLM's `/classify`, and the `/predict` of text-embeddings-inference."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import orjson

from router.protocol.dialects.question import Question, Stamp
from router.protocol.dialects.reading import Object, begin, flag, parse, refuse_others, truncation, whole
from router.protocol.dialects.values import Matrix, activated, floats
from router.tensors.parts.errors import bad_input
from router.tensors.parts.wording import quoted
from serving.values.specs import Limits, ModelSpec
from serving.values.tensor import Tensor

_JSON: Final = orjson.OPT_SERIALIZE_NUMPY

_CLASSIFY: Final = ("input", "use_activation", "truncate_prompt_tokens", "user")
_PREDICT: Final = ("inputs", "raw_scores", "truncate", "truncation_direction")
_UNREAD: Final = ("priority", "prompt_name")


def read_classify(body: bytes, _content_type: str, limits: Limits) -> Question:
    """Return what `/classify` asks for: a text or a list of texts, or the values of a row or of several."""
    document = parse(body, limits)
    refuse_others(document, _CLASSIFY, _UNREAD)
    question = begin(document)
    _take(question, document, "input")
    most = document.get("truncate_prompt_tokens")
    question.truncate = most is not None
    question.tokens_most = 0 if most == -1 else whole(document, "truncate_prompt_tokens", 0, least=1)
    question.form = {"raw": not flag(document, "use_activation", True)}
    return question


def read_predict(body: bytes, _content_type: str, limits: Limits) -> Question:
    """Return what `/predict` asks for: a text, or a batch `[["first"], ["second"]]`."""
    document = parse(body, limits)
    refuse_others(document, _PREDICT, _UNREAD)
    question = begin(document)
    value = document.get("inputs")
    first = value[0] if isinstance(value, list) and value else None
    batch = isinstance(first, list)
    if isinstance(value, list) and isinstance(first[0] if isinstance(first, list) and first else first, str):
        question.texts = _sequences(value)
    else:
        _take(question, document, "inputs")
    question.truncate = truncation(document)
    question.form = {"raw": flag(document, "raw_scores", False), "batch": batch}
    return question


def write_classify(
    question: Question, spec: ModelSpec, outputs: Sequence[Tensor], tokens: int, stamp: Stamp
) -> bytes:
    """Return the likeliest label of each row, with the probabilities of all classes."""
    rows = _probabilities(question, spec, outputs)
    labels = labels_of(spec, rows.shape[1])
    data = [
        {"index": index, "label": labels[_best(row)], "probs": row, "num_classes": len(row)}
        for index, row in enumerate(rows)
    ]
    answer = {
        "id": f"classify-{stamp.id}",
        "object": "list",
        "created": stamp.created_s,
        "model": spec.name,
        "data": data,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens, "completion_tokens": 0},
    }
    return orjson.dumps(answer, option=_JSON)


def write_predict(
    question: Question, spec: ModelSpec, outputs: Sequence[Tensor], _tokens: int, _stamp: Stamp
) -> bytes:
    """Return the classes of each row, the likeliest first; of a single text its classes alone."""
    rows = _probabilities(question, spec, outputs)
    labels = labels_of(spec, rows.shape[1])
    listed = [
        [{"score": row[place], "label": labels[place]} for place in np.argsort(-row, kind="stable")]
        for row in rows
    ]
    return orjson.dumps(listed if question.form["batch"] else listed[0], option=_JSON)


def labels_of(spec: ModelSpec, count: int) -> Sequence[str]:
    """Return the label of each class: the model's own, else `LABEL_0` and so on, as others name them."""
    assert spec.application is not None  # noqa: S101  # the endpoint has looked
    output = next(each for each in spec.outputs if each.name == spec.application.output)
    if output.labels is not None and len(output.labels.names) == count:
        return output.labels.names
    return [f"LABEL_{place}" for place in range(count)]


def _take(question: Question, document: Object, key: str) -> None:
    """Take texts, or other values as they are: what they have to be depends on the model."""
    value = document.get(key)
    if isinstance(value, str):
        question.texts = [value]
    elif isinstance(value, list) and value and all(isinstance(each, str) for each in value):
        question.texts = value
    elif isinstance(value, list) and value:
        question.content = value
    else:
        said = "a text, a list of texts, or the values of rows"
        raise bad_input(f"'{key}' of the request must be {said}, got {quoted(value)}")


def _sequences(value: list[object]) -> list[str]:
    """Return the texts of a batch. A pair of texts is one row there; no model of task classify takes it."""
    batch = value if isinstance(value[0], list) else [value]
    found: list[str] = []
    for place, each in enumerate(batch):
        if not isinstance(each, list) or len(each) != 1 or not isinstance(each[0], str):
            said = "a list of one text: send a batch as [['first'], ['second']]"
            raise bad_input(f"inputs[{place}] must be {said}")
        found.append(each[0])
    return found


def _probabilities(question: Question, spec: ModelSpec, outputs: Sequence[Tensor]) -> Matrix:
    assert spec.application is not None  # noqa: S101  # the endpoint has looked
    activation = "none" if question.form["raw"] else spec.application.activation
    return activated(floats(outputs, spec), activation)


def _best(row: Matrix) -> int:
    return int(np.argsort(-row, kind="stable")[0])
