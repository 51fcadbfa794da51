"""Embeddings, as OpenAI's `/v1/embeddings` and the `/embed` of text-embeddings-inference have them.

https://platform.openai.com/docs/api-reference/embeddings and
https://huggingface.github.io/text-embeddings-inference describe both.
"""

from base64 import b64encode
from collections.abc import Sequence
from typing import Final

import numpy as np
import orjson

from router.protocol.dialects.question import Question, Stamp
from router.protocol.dialects.reading import (
    Object,
    begin,
    flag,
    one_of,
    parse,
    refuse_others,
    texts,
    truncation,
    whole,
)
from router.protocol.dialects.values import Matrix, floats, unit_rows
from router.tensors.parts.errors import bad_input
from router.tensors.parts.wording import quoted
from serving.values.specs import Limits, ModelSpec
from serving.values.tensor import Tensor

_JSON: Final = orjson.OPT_SERIALIZE_NUMPY

_OPENAI: Final = ("input", "encoding_format", "dimensions", "user", "truncate_prompt_tokens")
_TEI: Final = ("inputs", "truncate", "truncation_direction", "normalize", "dimensions")
_UNREAD: Final = ("prompt_name", "priority")


def read_openai(body: bytes, _content_type: str, limits: Limits) -> Question:
    """Return what `/v1/embeddings` asks for: texts, or lists of token ids."""
    document = parse(body, limits)
    refuse_others(document, _OPENAI, _UNREAD)
    question = begin(document)
    if not question.model:
        raise bad_input("'model' of the request must name a model, got none")
    _take_input(document, question)
    question.form = {
        "encoding": one_of(document, "encoding_format", ("float", "base64")),
        "dimensions": whole(document, "dimensions", 0, least=1),
    }
    if document.get("truncate_prompt_tokens") is not None:  # vLLM's
        question.truncate = True
        most = document["truncate_prompt_tokens"]
        question.tokens_most = 0 if most == -1 else whole(document, "truncate_prompt_tokens", 0, least=1)
    return question


def read_tei(body: bytes, _content_type: str, limits: Limits) -> Question:
    """Return what `/embed` asks for."""
    document = parse(body, limits)
    refuse_others(document, _TEI, _UNREAD)
    question = begin(document)
    question.texts = texts(document, "inputs")
    question.truncate = truncation(document)
    question.form = {
        "normalize": flag(document, "normalize", True),
        "dimensions": whole(document, "dimensions", 0, least=1),
    }
    return question


def write_openai(
    question: Question, spec: ModelSpec, outputs: Sequence[Tensor], tokens: int, _stamp: Stamp
) -> bytes:
    """Return the list of embeddings, as numbers or as base64 of FP32."""
    rows = _cut(floats(outputs, spec), question)
    written: list[object] = [*rows]
    if question.form["encoding"] == "base64":
        written = [b64encode(row.astype("<f4").tobytes()).decode() for row in rows]
    data = [{"object": "embedding", "index": index, "embedding": each} for index, each in enumerate(written)]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    answer = {"object": "list", "data": data, "model": spec.name, "usage": usage}
    return orjson.dumps(answer, option=_JSON)


def write_tei(
    question: Question, spec: ModelSpec, outputs: Sequence[Tensor], _tokens: int, _stamp: Stamp
) -> bytes:
    """Return the embeddings as a list of lists."""
    rows = _cut(floats(outputs, spec), question)
    if question.form["normalize"]:
        rows = unit_rows(rows)
    return orjson.dumps([*rows], option=_JSON)


def _take_input(document: Object, question: Question) -> None:
    """Take `input`: a string, a list of strings, a list of token ids, or a list of such lists."""
    value = document.get("input")
    first = value[0] if isinstance(value, list) and value else None
    if type(first) is int:
        question.ids = [_ids(value, "input")]
    elif isinstance(first, list) and isinstance(value, list):
        question.ids = [_ids(each, f"input[{place}]") for place, each in enumerate(value)]
    else:
        question.texts = texts(document, "input")


def _ids(value: object, where: str) -> list[int]:
    if not isinstance(value, list) or not value:
        raise bad_input(f"{where} must be a list of token ids, got {quoted(value)}")
    for each in value:
        if type(each) is not int or not 0 <= each < 1 << 31:
            raise bad_input(f"{where} must hold token ids, which are whole numbers, got {quoted(each)}")
    return value


def _cut(rows: Matrix, question: Question) -> Matrix:
    """Return the embeddings in the length that the client asks for, of length one again."""
    wanted = question.form["dimensions"]
    if not isinstance(wanted, int) or not 0 < wanted < rows.shape[1]:
        return rows
    return unit_rows(np.ascontiguousarray(rows[:, :wanted]))
