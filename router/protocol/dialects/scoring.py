"""Scores of pairs of texts: rerank of Cohere, Jina, vLLM and text-embeddings-inference, and vLLM's score.

A model of task `rerank` scores a pair itself. A model of task `embed` scores it by the cosine of two
embeddings.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import orjson

from router.protocol.dialects.question import Question, Stamp
from router.protocol.dialects.reading import (
    Object,
    begin,
    flag,
    parse,
    refuse_others,
    text,
    texts,
    truncation,
    whole,
)
from router.protocol.dialects.values import Matrix, activated, floats, unit_rows
from router.tensors.parts.errors import bad_input
from router.tensors.parts.wording import quoted
from serving.values.applications import EMBED
from serving.values.specs import Limits, ModelSpec
from serving.values.tensor import Tensor

_JSON: Final = orjson.OPT_SERIALIZE_NUMPY

_DOCUMENTS: Final = (
    "query", "documents", "top_n", "return_documents", "rank_fields", "max_tokens_per_doc", "use_activation",
    "truncate_prompt_tokens", "truncation", "user",
)  # fmt: skip
_TEXTS: Final = ("query", "texts", "raw_scores", "return_text", "truncate", "truncation_direction")
_SIDES: Final = (("text_1", "text_2"), ("queries", "documents"), ("queries", "items"), ("data_1", "data_2"))
_SCORE: Final = ("use_activation", "truncate_prompt_tokens", "user")
_UNREAD: Final = ("max_chunks_per_doc", "priority", "embedding_type", "prompt_name")


def read_rerank(body: bytes, _content_type: str, limits: Limits) -> Question:
    """Return what `/rerank` asks for: with `texts` as text-embeddings-inference, else as Cohere and Jina."""
    document = parse(body, limits)
    if "texts" in document and "documents" not in document:
        return _read_tei(document)
    refuse_others(document, _DOCUMENTS, _UNREAD)
    question = begin(document)
    documents = _documents(document)
    if document.get("rank_fields") not in (None, ["text"]):
        raise bad_input(f"'rank_fields' must be ['text'], got {quoted(document['rank_fields'])}")
    _pair(question, [text(document, "query")], documents)
    question.truncate = flag(document, "truncation", True)
    question.tokens_most = _tokens_most(document, "max_tokens_per_doc") or _tokens_most(
        document, "truncate_prompt_tokens"
    )
    question.form = {
        "top_n": whole(document, "top_n", 0),
        "documents": flag(document, "return_documents", False),
        "raw": not flag(document, "use_activation", True),
        "tei": False,
    }
    return question


def read_score(body: bytes, _content_type: str, limits: Limits) -> Question:
    """Return what vLLM's `/score` asks for: one text against many, or pairs."""
    document = parse(body, limits)
    sides = next((each for each in _SIDES if each[0] in document and each[1] in document), _SIDES[0])
    refuse_others(document, (*sides, *_SCORE), _UNREAD)
    question = begin(document)
    left, right = texts(document, sides[0]), texts(document, sides[1])
    if len(left) not in (1, len(right)):
        said = f"'{sides[0]}' must have one text, or as many as '{sides[1]}'"
        raise bad_input(f"{said}, got {len(left)} and {len(right)}")
    _pair(question, left, right)
    question.truncate = document.get("truncate_prompt_tokens") is not None
    question.tokens_most = _tokens_most(document, "truncate_prompt_tokens")
    question.form = {"raw": not flag(document, "use_activation", True)}
    return question


def write_rerank(
    question: Question, spec: ModelSpec, outputs: Sequence[Tensor], tokens: int, stamp: Stamp
) -> bytes:
    """Return the documents' scores, the best first. The object holds the fields of the answers of Cohere's v1
    and v2, of Jina and of vLLM; a question by `texts` has a list."""
    form = question.form
    scores = _scores(question, spec, outputs)
    order = [int(each) for each in np.argsort(-scores, kind="stable")]  # NaN comes last
    top_n = form.get("top_n")
    if isinstance(top_n, int) and top_n:
        order = order[:top_n]
    if form["tei"]:
        listed: list[dict[str, object]] = [{"index": place, "score": scores[place]} for place in order]
        if form["documents"]:
            listed = [
                each | {"text": _document(question, place)} for each, place in zip(listed, order, strict=True)
            ]
        return orjson.dumps(listed, option=_JSON)
    results: list[dict[str, object]] = []
    for place in order:
        result: dict[str, object] = {"index": place, "relevance_score": scores[place]}
        if form["documents"]:
            result["document"] = {"text": _document(question, place)}
        results.append(result)
    answer = {
        "id": f"rerank-{stamp.id}",
        "object": "list",
        "model": spec.name,
        "results": results,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
        "meta": {"api_version": {"version": "1"}, "billed_units": {"search_units": 1}},
    }
    return orjson.dumps(answer, option=_JSON)


def write_score(
    question: Question, spec: ModelSpec, outputs: Sequence[Tensor], tokens: int, stamp: Stamp
) -> bytes:
    """Return the score of each pair, in the client's order."""
    scores = _scores(question, spec, outputs)
    answer = {
        "id": f"score-{stamp.id}",
        "object": "list",
        "created": stamp.created_s,
        "model": spec.name,
        "data": [{"index": index, "object": "score", "score": each} for index, each in enumerate(scores)],
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }
    return orjson.dumps(answer, option=_JSON)


def _read_tei(document: Object) -> Question:
    refuse_others(document, _TEXTS, _UNREAD)
    question = begin(document)
    _pair(question, [text(document, "query")], texts(document, "texts"))
    question.truncate = truncation(document)
    question.form = {
        "top_n": 0,
        "documents": flag(document, "return_text", False),
        "raw": flag(document, "raw_scores", False),
        "tei": True,
    }
    return question


def _documents(document: Object) -> list[str]:
    """Return the documents: strings, or objects with a `text`."""
    value = document.get("documents")
    if not isinstance(value, list) or not value:
        raise bad_input(f"'documents' of the request must be a list of texts, got {quoted(value)}")
    found: list[str] = []
    for place, each in enumerate(value):
        content = each.get("text") if isinstance(each, dict) else each
        if not isinstance(content, str):
            raise bad_input(
                f"documents[{place}] must be a string, or an object with a 'text', got {quoted(each)}"
            )
        found.append(content)
    return found


def _pair(question: Question, left: list[str], right: list[str]) -> None:
    """Pair each text at the right with its text at the left, or with the only one there."""
    question.texts = [*left, *right]
    first = len(left)
    question.pairs = [(place if first > 1 else 0, first + place) for place in range(len(right))]


def _tokens_most(document: Object, key: str) -> int:
    return 0 if document.get(key) == -1 else whole(document, key, 0, least=1)


def _document(question: Question, place: int) -> str:
    return question.texts[question.pairs[place][1]]


def _scores(question: Question, spec: ModelSpec, outputs: Sequence[Tensor]) -> Matrix:
    application = spec.application
    assert application is not None  # noqa: S101  # the endpoint has looked
    values = floats(outputs, spec)
    if application.task == EMBED:
        return _cosines(unit_rows(values), question)
    activation = "none" if question.form["raw"] else application.activation
    return activated(values, activation).reshape(-1)


def _cosines(rows: Matrix, question: Question) -> Matrix:
    left = rows[[pair[0] for pair in question.pairs]]
    right = rows[[pair[1] for pair in question.pairs]]
    found: Matrix = np.einsum("ij,ij->i", left, right)
    return found
