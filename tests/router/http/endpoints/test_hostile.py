"""No JSON makes an endpoint fail in the gateway: it answers, or says what is wrong."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from router.protocol.dialects.catalogue import ENDPOINTS
from router.protocol.dialects.preparing import prepare
from router.tensors.parts.errors import RequestError
from serving.values.specs import Limits
from tests.router.http.endpoints.worlds import world
from tests.seeds import drawn

T = TypeVar("T")

LIMITS = Limits()
KEYS = (
    "model", "input", "inputs", "query", "documents", "texts", "text_1", "text_2", "top_n", "instances",
    "encoding_format", "dimensions", "truncate", "truncate_prompt_tokens", "return_documents", "parameters",
    "use_activation", "raw_scores", "max_tokens_per_doc", "normalize", "rank_fields", "truncation_direction",
)  # fmt: skip
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["float", "X"])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["X", "b64", "text"]), inner),
    max_leaves=8,
)
DOCUMENTS = st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=5)
MODELS = ("letters", "guess", "cross", "mood", "pixels", "simple")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Any:
    home: Path = tmp_path_factory.mktemp("world")
    return world(home)


def _refused(work: Callable[[], T]) -> T | None:
    """What the work returns; None where it refuses the request."""
    try:
        return work()
    except RequestError:
        return None


@settings(max_examples=drawn(400), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from([*ENDPOINTS.values()]), DOCUMENTS, st.sampled_from(MODELS))
def test_any_json_is_read_or_refused(served: Any, endpoint: Any, document: dict[str, Any], name: str) -> None:
    body = json.dumps(document).encode()
    question = _refused(lambda: endpoint.read(body, "application/json", LIMITS))
    if question is None or not endpoint.serves(served[name].spec):
        return
    prepared = _refused(lambda: prepare(question, served[name], LIMITS))
    if prepared is not None:
        assert [each[0] for each in prepared.tensors] == [each.name for each in served[name].spec.inputs]


@settings(max_examples=drawn(200), deadline=None)
@given(
    st.sampled_from([*ENDPOINTS.values()]),
    st.binary(max_size=60),
    st.sampled_from(["text/plain", "application/x-ndjson", ""]),
)
def test_any_bytes_are_read_or_refused(endpoint: Any, body: bytes, content_type: str) -> None:
    _refused(lambda: endpoint.read(body, content_type, LIMITS))
