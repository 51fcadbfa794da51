"""All endpoints of applications: their paths, which models serve them, and in which form they answer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from router.protocol.dialects import classes, embeddings, kserve, scoring
from router.protocol.dialects.forms import COHERE, KSERVE, OPENAI, TEI
from router.protocol.dialects.question import Question, Stamp
from serving.values.applications import CLASSIFY, EMBED, RERANK
from serving.values.specs import Limits, ModelSpec
from serving.values.tensor import Tensor

Read = Callable[[bytes, str, Limits], Question]
Write = Callable[[Question, ModelSpec, Sequence[Tensor], int, Stamp], bytes]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """`tasks`: the tasks whose models serve it, () if every model does. `errors`: the form of its errors.
    `summary`: what the OpenAPI document says of it."""

    name: str
    paths: tuple[str, ...]
    tasks: tuple[str, ...]
    read: Read
    write: Write
    errors: str
    summary: str

    def serves(self, spec: ModelSpec) -> bool:
        """Return whether a model serves it."""
        return not self.tasks or (spec.application is not None and spec.application.task in self.tasks)

    def returns(self, spec: ModelSpec, output: str) -> bool:
        """Return whether its answer is made of that output."""
        return not self.tasks or (spec.application is not None and output == spec.application.output)

    def is_packed(self, question: Question) -> bool:
        """Return whether its answer writes no number for each value: it is short beside the output, or
        base64."""
        return self.name in ("rerank", "score") or question.form.get("encoding") == "base64"

    def form_of(self, body: bytes) -> str:
        """Return the form of its errors to that request; a rerank speaks two dialects."""
        return COHERE if self.name == "rerank" and b'"documents"' in body[:1024] else self.errors


_ALL: Final = (
    Endpoint(
        "embeddings", ("/v1/embeddings",), (EMBED,), embeddings.read_openai, embeddings.write_openai, OPENAI,
        "Return the embedding of each text (OpenAI).",
    ),
    Endpoint(
        "embed", ("/embed",), (EMBED,), embeddings.read_tei, embeddings.write_tei, TEI,
        "Return the embedding of each text (text-embeddings-inference).",
    ),
    Endpoint(
        "rerank", ("/rerank", "/v1/rerank", "/v2/rerank"), (EMBED, RERANK), scoring.read_rerank,
        scoring.write_rerank, TEI,
        "Return documents by how well they answer a query (Cohere, Jina, vLLM, text-embeddings-inference).",
    ),
    Endpoint(
        "score", ("/score", "/v1/score"), (EMBED, RERANK), scoring.read_score, scoring.write_score, OPENAI,
        "Return the score of each pair of texts (vLLM).",
    ),
    Endpoint(
        "classify", ("/classify", "/v1/classify"), (CLASSIFY,), classes.read_classify, classes.write_classify,
        OPENAI, "Return the label of each row and the probabilities of all classes (vLLM).",
    ),
    Endpoint(
        "predict", ("/predict",), (CLASSIFY,), classes.read_predict, classes.write_predict, TEI,
        "Return the classes of each text, the likeliest first (text-embeddings-inference).",
    ),
    Endpoint(
        "kserve", ("/v1/models/{model}:predict",), (), kserve.read, kserve.write, KSERVE,
        "Return the model's outputs for instances, a row each (KServe v1).",
    ),
)  # fmt: skip

ENDPOINTS: Final = MappingProxyType({each.name: each for each in _ALL})
"""By name, which metrics have as a label."""

PATHS: Final = MappingProxyType({path: each for each in _ALL for path in each.paths if "{" not in path})
"""By path, those that have no model in it."""


def endpoints_of(task: str) -> list[Endpoint]:
    """Return the endpoints that models of a task serve, without those that every model serves."""
    return [each for each in _ALL if task in each.tasks]
