import re
from pathlib import Path

import grpc
import orjson
import pytest

from router.protocol.outcomes import ANSWERS, error_body, unknown_model, worded
from serving.values.vocabulary import ALL_OUTCOMES, COMPLETED, QUEUE_FULL, Outcome

CODES = {
    "ok": (200, "OK", False),
    "bad_input": (400, "INVALID_ARGUMENT", False),
    "too_large": (413, "RESOURCE_EXHAUSTED", False),
    "unknown_model": (404, "NOT_FOUND", False),
    "unauthenticated": (401, "UNAUTHENTICATED", False),
    "forbidden": (403, "PERMISSION_DENIED", False),
    "queue_full": (503, "RESOURCE_EXHAUSTED", True),
    "memory_full": (503, "RESOURCE_EXHAUSTED", True),
    "overload": (503, "RESOURCE_EXHAUSTED", True),
    "quota": (429, "RESOURCE_EXHAUSTED", True),
    "rate_limited": (429, "RESOURCE_EXHAUSTED", True),
    "deadline_unreachable": (503, "RESOURCE_EXHAUSTED", True),
    "no_replica": (503, "UNAVAILABLE", True),
    "not_loaded": (503, "UNAVAILABLE", True),
    "draining": (503, "UNAVAILABLE", False),
    "deadline_queued": (504, "DEADLINE_EXCEEDED", False),
    "deadline_running": (504, "DEADLINE_EXCEEDED", False),
    "deadline_unmet": (504, "DEADLINE_EXCEEDED", True),
    "worker_lost": (503, "UNAVAILABLE", False),
    "model_error": (500, "INTERNAL", False),
    "sequence_lost": (409, "ABORTED", False),
    "client_gone": (499, "CANCELLED", False),
}
"""HTTP status, gRPC code, and whether the client is told when to come back."""


def test_every_outcome_has_its_one_answer() -> None:
    assert tuple(ANSWERS) == ALL_OUTCOMES
    assert {outcome.reason.value for outcome in ALL_OUTCOMES} == set(CODES)


@pytest.mark.parametrize("outcome", ALL_OUTCOMES, ids=lambda outcome: outcome.reason.value)
def test_an_outcome_is_the_same_verdict_over_rest_and_grpc(outcome: Outcome) -> None:
    status, code, retry = CODES[outcome.reason.value]
    answer = ANSWERS[outcome]
    assert (answer.http_status, answer.grpc_code, answer.retry) == (status, grpc.StatusCode[code], retry)


def test_the_documentation_has_the_same_table() -> None:
    text = (Path(__file__).parents[3] / "docs" / "protocol.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (\w+)[^|]* \| (\d+) \| (\w+) \| (yes|no) \|$", text, re.MULTILINE)
    assert [
        (reason, kind, int(status), code, retry == "yes") for reason, kind, status, code, retry in rows
    ] == [
        (outcome.reason.value, outcome.kind.value, *CODES[outcome.reason.value])
        for outcome in ALL_OUTCOMES
        if outcome != COMPLETED
    ]


@pytest.mark.parametrize(
    "outcome", [outcome for outcome in ALL_OUTCOMES if outcome != COMPLETED], ids=lambda o: o.reason.value
)
def test_an_error_body_has_a_sentence_and_the_reason(outcome: Outcome) -> None:
    body = orjson.loads(error_body(outcome))
    assert body["reason"] == outcome.reason.value
    assert body["error"]


def test_a_detail_replaces_the_sentence_of_the_table() -> None:
    body = orjson.loads(error_body(QUEUE_FULL, "256 rows are waiting"))
    assert body == {"error": "256 rows are waiting", "reason": "queue_full"}


@pytest.mark.parametrize("detail", ["", "m is not loaded, and loading it takes 9.0 s"])
@pytest.mark.parametrize("outcome", ALL_OUTCOMES, ids=lambda outcome: outcome.reason.value)
def test_a_deadline_that_is_not_met_is_told_in_the_words_of_grpc(outcome: Outcome, detail: str) -> None:
    told = worded(outcome, detail)
    assert told.startswith(detail)
    assert ("Deadline Exceeded" in told) == outcome.reason.value.startswith("deadline_")


@pytest.mark.parametrize(
    ("name", "served", "sentence"),
    [
        ("digit", ["digits", "minilm"], "'digit' is not found; did you mean 'digits'?"),
        ("resnet", ["minilm", "digits"], "'resnet' is not found; served are 'digits', 'minilm'"),
        ("resnet", [], "'resnet' is not found; no models are served"),
        ("x" * 1000, ["digits"], "…' is not found; served are 'digits'"),
    ],
)
def test_an_unknown_model_is_told_what_is_served(name: str, served: list[str], sentence: str) -> None:
    message = unknown_model(name, served)
    assert message.startswith("Request for unknown model: '")
    assert message.endswith(sentence)
