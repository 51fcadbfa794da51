import re
from pathlib import Path

import grpc
import orjson
import pytest

from router.outcomes import ANSWERS, error_body, unknown_model
from serving.vocabulary import ALL_OUTCOMES, COMPLETED, QUEUE_FULL, Outcome

CODES = {
    "ok": (200, "OK"),
    "bad_input": (400, "INVALID_ARGUMENT"),
    "too_large": (413, "RESOURCE_EXHAUSTED"),
    "unknown_model": (404, "NOT_FOUND"),
    "queue_full": (503, "RESOURCE_EXHAUSTED"),
    "memory_full": (503, "RESOURCE_EXHAUSTED"),
    "no_replica": (503, "UNAVAILABLE"),
    "draining": (503, "UNAVAILABLE"),
    "deadline_queued": (504, "DEADLINE_EXCEEDED"),
    "deadline_running": (504, "DEADLINE_EXCEEDED"),
    "deadline_unmet": (504, "DEADLINE_EXCEEDED"),
    "worker_lost": (503, "UNAVAILABLE"),
    "model_error": (500, "INTERNAL"),
    "client_gone": (499, "CANCELLED"),
}


def test_every_outcome_has_its_one_answer() -> None:
    assert tuple(ANSWERS) == ALL_OUTCOMES
    assert {outcome.reason.value for outcome in ALL_OUTCOMES} == set(CODES)


@pytest.mark.parametrize("outcome", ALL_OUTCOMES, ids=lambda outcome: outcome.reason.value)
def test_an_outcome_is_the_same_verdict_over_rest_and_grpc(outcome: Outcome) -> None:
    status, code = CODES[outcome.reason.value]
    assert ANSWERS[outcome][:2] == (status, grpc.StatusCode[code])


def test_the_documentation_has_the_same_table() -> None:
    text = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (\w+)[^|]* \| (\d+) \| (\w+) \|$", text, re.MULTILINE)
    assert [(reason, kind, int(status), code) for reason, kind, status, code in rows] == [
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
