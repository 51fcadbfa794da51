"""What a request says of the answer that it needs, and what that says of itself; the same on both ways."""

from collections.abc import Callable

import pytest

from serving.values.vocabulary import BAD_INPUT, DEADLINE_UNMET, Downgrade
from tests.router.http.fastpath.wire import Running, binary_infer, body_of, infer, request, total


@pytest.mark.parametrize(
    ("fields", "parameters", "promised"),
    [
        ({}, {}, ("", 100_000, 0.0)),
        ({"x_tier": "gold"}, {}, ("gold", 20_000, 0.9)),
        ({"x_tier": " gold\t"}, {"tier": "gold"}, ("gold", 20_000, 0.9)),
        ({}, {"tier": "cheap"}, ("cheap", 100_000, 0.0)),
        ({"x_tenant": "batch.jobs"}, {}, ("cheap", 100_000, 0.0)),
        ({"x_tenant": "batch.jobs", "x_tier": "gold"}, {}, ("gold", 20_000, 0.9)),
        ({"x_tenant": "batch.jobs"}, {"accuracy_min": 0.5}, ("cheap", 100_000, 0.5)),
        ({"x_accuracy_min": "0.97"}, {"accuracy_min": 0.5}, ("", 100_000, 0.97)),
        ({"x_accuracy_min": "0.5", "x_tier": "gold"}, {"accuracy_min": "0.6"}, ("gold", 20_000, 0.9)),
        ({"x_accuracy_min": "", "x_tier": ""}, {}, ("", 100_000, 0.0)),
        ({"x_accuracy_min": "0.5"}, {"variant": "exact"}, ("", 100_000, 0.5)),
    ],
)
def test_a_request_is_promised_what_it_asks_for_else_what_its_tenant_has(
    running: Running,
    fields: dict[str, str],
    parameters: dict[str, object],
    promised: tuple[str, int, float],
) -> None:
    for _ in range(2):
        assert total(running.ask(request(body=body_of(1, parameters=parameters), **fields))) == 2
        objective = running.serving.calls[-1].objective
        assert (objective.tier, objective.slo_us, objective.accuracy_min) == promised
        assert objective.variants == ("exact",)


@pytest.mark.parametrize(
    ("fields", "parameters", "due_ms"),
    [
        ({}, {}, "100"),
        ({"x_tier": "gold"}, {}, "20"),
        ({"x_request_timeout_ms": "99.5"}, {}, "99.500"),
        ({"x_tier": "gold", "x_request_timeout_ms": "99.5"}, {}, "20"),
        ({"x_request_timeout_ms": "99.5"}, {"timeout": 1}, "0.001"),
        ({"x_request_timeout_ms": "10000"}, {}, "100"),
    ],
)
def test_an_answer_says_by_when_it_was_promised_whatever_became_of_it(
    running: Running, fields: dict[str, str], parameters: dict[str, object], due_ms: str
) -> None:
    asked = request(body=body_of(1, parameters=parameters), **fields)
    assert running.ask(asked).fields["x-penstock-deadline-ms"] == due_ms
    running.serving.outcome = DEADLINE_UNMET
    assert running.ask(asked).fields["x-penstock-deadline-ms"] == due_ms
    assert "x-penstock-deadline-ms" not in running.ask(request(body=b"{")).fields


@pytest.mark.parametrize(
    ("fields", "parameters", "sentence"),
    [
        ({"x_tier": "golden"}, {}, "model 'simple' has no tier 'golden'; did you mean 'gold'?"),
        ({"x_tier": "\xff" * 999}, {}, "model 'simple' has no tier '\xff\xff"),
        ({}, {"tier": 7}, "parameter 'tier' must be a string, got 7"),
        ({"x_tier": "gold"}, {"tier": "cheap"}, "a request has one tier, but x-tier says 'gold'"),
        ({"x_accuracy_min": "high"}, {}, "x-accuracy-min must be a number from 0 to 1"),
        ({}, {"accuracy_min": True}, "parameter 'accuracy_min' must be a number from 0 to 1"),
        ({}, {"accuracy_min": 95}, "from 0 to 1 (0.95 for 95 %), got 95"),
    ],
)
def test_what_cannot_be_promised_is_400_and_says_what_can(
    running: Running, fields: dict[str, str], parameters: dict[str, object], sentence: str
) -> None:
    answer = running.ask(request(body=body_of(1, parameters=parameters), **fields))
    assert answer.status == 400
    assert sentence in answer.error
    assert len(answer.error) < 300
    assert running.serving.turned_away == [("simple", BAD_INPUT, "default")]
    assert not running.serving.calls


SAID: dict[str, object] = {
    "accuracy": 0.99837, "downgrade": Downgrade.LOAD, "confidence": 2 / 3, "votes": "2/3", "query": "q-1"
}  # fmt: skip
TOLD = {
    "x-penstock-accuracy": "0.9984",
    "x-penstock-downgrade": "load",
    "x-penstock-confidence": "0.6667",
    "x-penstock-votes": "2/3",
    "x-penstock-query": "q-1",
}


@pytest.mark.parametrize("ask", [infer, binary_infer])
def test_an_answer_says_how_good_it_is_as_far_as_that_is_known(
    running: Running, ask: Callable[[int], bytes]
) -> None:
    assert not running.ask(ask(1)).fields.keys() & TOLD.keys()
    running.serving.said = SAID
    fields = running.ask(ask(1)).fields
    assert {name: fields[name] for name in TOLD} == TOLD
