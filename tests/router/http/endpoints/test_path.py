"""All endpoints take the same path: deadlines, tenants, tiers, outcomes, compression, limits, metrics."""

import gzip
from dataclasses import replace
from typing import Any

import httpx
import pytest

from serving.values.specs import Limits
from serving.values.vocabulary import (
    DEADLINE_QUEUED,
    DRAINING,
    MODEL_ERROR,
    NO_REPLICA,
    OVERLOAD,
    QUOTA,
    RATE_LIMITED,
    TOO_LARGE,
    UNKNOWN_MODEL,
    Outcome,
)
from tests.router.http.endpoints.worlds import TextServing

ASKED: dict[str, dict[str, Any]] = {
    "/v1/embeddings": {"model": "letters", "input": "cat"},
    "/embed": {"model": "letters", "inputs": "cat"},
    "/v1/rerank": {"model": "cross", "query": "a", "documents": ["b"]},
    "/rerank": {"model": "cross", "query": "a", "texts": ["b"]},
    "/score": {"model": "cross", "text_1": "a", "text_2": "b"},
    "/classify": {"model": "mood", "input": "cat"},
    "/predict": {"model": "mood", "inputs": "cat"},
    "/v1/models/letters:predict": {"instances": ["cat"]},
}


def sentence(answer: httpx.Response) -> str:
    """The message of an error, where its dialect has it."""
    error = answer.json()["error"]
    found = error["message"] if isinstance(error, dict) else error
    assert isinstance(found, str)
    return found


@pytest.mark.parametrize("path", ASKED)
async def test_header_fields_count_as_for_the_open_inference_protocol(
    client: httpx.AsyncClient, serving: TextServing, path: str
) -> None:
    fields = {
        "x-request-timeout-ms": "12",
        "x-tenant": "batch.jobs",
        "x-tier": "gold",
        "cache-control": "no-store",
        "x-request-id": "mine",
    }
    answer = await client.post(path, json=ASKED[path], headers=fields)
    assert answer.status_code == 200, answer.text
    (call,) = serving.calls
    assert (call.timeout_us, call.tenant, call.objective.tier, call.store) == (
        12_000,
        "batch.jobs",
        "gold",
        False,
    )
    assert answer.headers["x-request-id"] == "mine"
    assert answer.headers["x-penstock-deadline-ms"] == "12"
    assert answer.headers["x-penstock-variant"] == "exact"
    assert "request;dur=" in answer.headers["server-timing"]


@pytest.mark.parametrize("path", ASKED)
async def test_parameters_of_the_protocol_count_too(
    client: httpx.AsyncClient, serving: TextServing, path: str
) -> None:
    body = {**ASKED[path], "parameters": {"timeout": 5_000, "variant": "exact"}}
    assert (await client.post(path, json=body)).status_code == 200
    assert (serving.calls[0].timeout_us, serving.calls[0].variant) == (5_000, "exact")


@pytest.mark.parametrize("path", ASKED)
@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        (DEADLINE_QUEUED, 504),
        (QUOTA, 429),
        (RATE_LIMITED, 429),
        (OVERLOAD, 503),
        (NO_REPLICA, 503),
        (DRAINING, 503),
        (MODEL_ERROR, 500),
    ],
)
async def test_each_outcome_has_its_status_and_the_form_of_the_dialect(
    client: httpx.AsyncClient, serving: TextServing, path: str, outcome: Outcome, status: int
) -> None:
    serving.outcome, serving.detail, serving.retry_us = outcome, "it is so", 1_500_000
    answer = await client.post(path, json=ASKED[path])
    tei = path in ("/embed", "/predict", "/rerank")
    assert answer.status_code == (429 if tei and outcome is OVERLOAD else status)
    assert answer.headers["x-penstock-reason"] == outcome.reason
    assert sentence(answer).startswith("it is so")
    told = answer.json()
    if tei:
        kind = {429: "Overloaded", 503: "Unhealthy"}.get(answer.status_code, "Backend")
        assert told["error_type"] == kind
    elif path.endswith(":predict"):
        assert told["reason"] == outcome.reason
    else:
        kind = {429: "rate_limit_error", 504: "timeout_error"}.get(status, "server_error")
        assert told["error"]["type"] == kind
        assert told["error"]["code"] == ("rate_limit_exceeded" if status == 429 else outcome.reason)
        assert told["error"]["param"] is None
    retried = outcome in (QUOTA, RATE_LIMITED, OVERLOAD, NO_REPLICA)
    assert answer.headers.get("retry-after") == ("2" if retried else None)
    if retried and path.startswith("/v1/e"):
        assert answer.headers["retry-after-ms"] == answer.headers["x-retry-after-ms"] == "1500"


@pytest.mark.parametrize("path", ASKED)
async def test_an_answer_says_what_the_tenant_has_left(
    client: httpx.AsyncClient, serving: TextServing, path: str
) -> None:
    serving.said = {"limits": '\r\nratelimit: "requests";r=3;t=1'}
    answer = await client.post(path, json=ASKED[path])
    assert (answer.status_code, answer.headers["ratelimit"]) == (200, '"requests";r=3;t=1')


@pytest.mark.parametrize("path", [path for path in ASKED if not path.endswith(":predict")])
async def test_a_request_may_leave_out_a_model_that_only_one_could_be(
    client: httpx.AsyncClient, serving: TextServing, path: str
) -> None:
    body = {key: value for key, value in ASKED[path].items() if key != "model"}
    refused = await client.post(path, json=body)
    assert refused.status_code == 400
    assert "model" in sentence(refused)
    if path == "/v1/embeddings":
        return  # OpenAI's clients always say it
    only = {name: serving.models[name] for name in (ASKED[path]["model"], "simple")}
    serving.models = only
    assert (await client.post(path, json=body)).status_code == 200


@pytest.mark.parametrize("path", [path for path in ASKED if not path.endswith(":predict")])
async def test_an_unknown_model_is_404_and_counted(
    client: httpx.AsyncClient, serving: TextServing, path: str
) -> None:
    answer = await client.post(path, json={**ASKED[path], "model": "nobody"})
    assert answer.status_code == 404
    assert "'nobody' is not found" in sentence(answer)
    assert serving.turned_away == [("nobody", UNKNOWN_MODEL, "default")]


@pytest.mark.parametrize("path", [path for path in ASKED if not path.endswith(":predict")])
async def test_no_other_method_and_no_other_path(client: httpx.AsyncClient, path: str) -> None:
    wrong = await client.get(path)
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")
    assert "Method Not Allowed" in sentence(wrong)
    missing = await client.post("/v1/nothing", json={})
    assert missing.status_code == 404
    assert missing.json()["error"]["type"] == "invalid_request_error"


async def test_bodies_and_answers_may_be_compressed(client: httpx.AsyncClient) -> None:
    many = {"model": "letters", "input": ["cat"] * 300}
    plain = await client.post("/v1/embeddings", json=many, headers={"accept-encoding": "identity"})
    packed = gzip.compress(plain.request.content)
    fields = {"content-encoding": "gzip", "accept-encoding": "gzip"}
    answer = await client.post("/v1/embeddings", content=packed, headers=fields)
    assert answer.headers["content-encoding"] == "gzip"
    assert answer.json() == plain.json()
    odd = await client.post("/v1/embeddings", content=packed, headers={"content-encoding": "br"})
    assert odd.status_code == 415
    assert odd.json()["error"]["type"] == "invalid_request_error"


class TestSmall:
    """With small limits."""

    @pytest.fixture
    def limits(self) -> Limits:
        small = replace(Limits(), body_bytes=4096, rows_per_request=3, json_bytes=2048, element_count=64)
        return replace(small, json_depth=6, bytes_count=3)

    @pytest.mark.parametrize(
        ("body", "named"),
        [
            ({"input": "a" * 5000}, "limits.body_mb"),
            ({"input": "a" * 3000}, "limits.json_mb"),
            ({"input": ["a"] * 70}, "limits.element_count"),
            ({"input": ["a"] * 5}, "limits.rows_per_request"),
            ({"input": ["a"] * 4}, "limits.rows_per_request"),
        ],
    )
    async def test_what_a_client_makes_grow_is_bounded(
        self, client: httpx.AsyncClient, serving: TextServing, body: dict[str, object], named: str
    ) -> None:
        answer = await client.post("/v1/embeddings", json={"model": "letters", **body})
        assert answer.status_code == 413
        assert named in sentence(answer)
        assert [outcome for _, outcome, _ in serving.turned_away] == [TOO_LARGE]

    async def test_deep_json_is_refused_before_it_is_parsed(self, client: httpx.AsyncClient) -> None:
        body = b'{"model":"letters","input":' + b"[" * 30 + b"]" * 30 + b"}"
        answer = await client.post("/v1/embeddings", content=body)
        assert (answer.status_code, "limits.json_depth" in sentence(answer)) == (400, True)

    async def test_an_answer_has_no_more_values_than_json_may_have(self, client: httpx.AsyncClient) -> None:
        wide = {"instances": [{"INPUT0": [1] * 16, "INPUT1": [1] * 16}] * 1}
        assert (await client.post("/v1/models/simple:predict", json=wide)).status_code == 200
        three = {"inputs": {"INPUT0": [[1] * 16] * 3, "INPUT1": [[1] * 16] * 3}}
        answer = await client.post("/v1/models/simple:predict", json=three)
        assert answer.status_code == 413


class TestHeld:
    """Where the gateway may hold little."""

    @pytest.fixture
    def limits(self) -> Limits:
        return replace(Limits(), held_bytes=8192)

    async def test_bodies_that_are_read_are_counted_and_refused(
        self, client: httpx.AsyncClient, serving: TextServing
    ) -> None:
        answer = await client.post("/v1/embeddings", json={"model": "guess", "input": "a" * 3000})
        assert (answer.status_code, answer.headers["x-penstock-reason"]) == (503, "memory_full")
        assert answer.headers["retry-after"] == "1"
        for _ in range(3):  # what was held is let go of
            small = await client.post("/v1/embeddings", json={"model": "guess", "input": "a" * 1500})
            assert small.status_code == 200


async def test_metrics_count_requests_and_tokens_by_endpoint(
    client: httpx.AsyncClient, serving: TextServing
) -> None:
    for path, body in ASKED.items():
        assert (await client.post(path, json=body)).status_code == 200
    await client.post("/v1/embeddings", json={"model": "letters"})
    await client.post("/v1/embeddings", json={"model": "nobody", "input": "x"})
    text = b"".join(serving.telemetry.steps()).decode()
    lines = [line for line in text.splitlines() if line.startswith("penstock_application_")]
    name = "penstock_application_requests_total"
    assert f'{name}{{model="letters",endpoint="embeddings",outcome="completed",reason="ok"}} 1' in lines
    assert (
        f'{name}{{model="letters",endpoint="embeddings",outcome="rejected",reason="bad_input"}} 1'
        not in lines
    )
    assert f'{name}{{model="unknown",endpoint="embeddings",outcome="rejected",reason="bad_input"}} 1' in lines
    assert (
        f'{name}{{model="unknown",endpoint="embeddings",outcome="rejected",reason="unknown_model"}} 1'
        in lines
    )
    assert f'{name}{{model="cross",endpoint="rerank",outcome="completed",reason="ok"}} 2' in lines
    assert 'penstock_application_tokens_total{model="letters",endpoint="embeddings"} 3' in lines


async def test_a_bug_is_500_in_the_form_of_the_dialect(
    client: httpx.AsyncClient, serving: TextServing
) -> None:
    serving.said = {"outputs": []}  # an answer without the output that the model declares
    broken = dict(serving.models)
    for name in ("letters", "guess"):
        broken[name] = replace(broken[name], spec=replace(broken[name].spec, outputs=()))
    serving.models = broken
    answer = await client.post("/v1/embeddings", json={"model": "letters", "input": "cat", "dimensions": 2})
    assert answer.status_code == 500
    assert answer.json()["error"]["type"] == "server_error"


async def test_the_openapi_document_lists_them(client: httpx.AsyncClient) -> None:
    paths = (await client.get("/openapi.json")).json()["paths"]
    listed = {
        path for path, methods in paths.items() if "applications" in next(iter(methods.values()))["tags"]
    }
    assert listed == {
        "/v1/embeddings", "/embed", "/rerank", "/v1/rerank", "/v2/rerank", "/score", "/v1/score", "/classify",
        "/v1/classify", "/predict", "/v1/models", "/v1/models/{model}", "/v1/models/{model}:predict",
    }  # fmt: skip
