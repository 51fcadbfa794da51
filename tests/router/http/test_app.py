"""Health, metadata and documentation, as an ASGI application on its own."""

import httpx
import pytest

from router.http.app import create_app
from router.payloads.bulk.pool import Bulk
from router.protocol.outcomes import ANSWERS
from serving.values.specs import Limits
from serving.values.vocabulary import ALL_OUTCOMES, CLIENT_GONE
from tests.router.fakes import FakeServing


@pytest.fixture
def serving() -> FakeServing:
    return FakeServing()


@pytest.fixture
def client(serving: FakeServing) -> httpx.AsyncClient:
    statistics = serving.telemetry.statistics
    app = create_app(serving, statistics, name="penstock", version="0.1.0", bulk=Bulk(Limits()))
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://test")


@pytest.mark.parametrize("path", ["/v2", "/v2/"])
async def test_the_server_states_its_name_and_only_extensions_that_it_serves(
    client: httpx.AsyncClient, path: str
) -> None:
    answer = await client.get(path)
    assert answer.json() == {
        "name": "penstock",
        "version": "0.1.0",
        "extensions": [
            "binary_tensor_data",
            "classification",
            "logging",
            "model_configuration",
            "model_repository",
            "model_repository(unload_dependents)",
            "parameters",
            "sequence",
            "sequence(string_id)",
            "statistics",
        ],
    }


@pytest.mark.parametrize("model", ["simple", "identity"])
async def test_the_example_of_a_model_is_a_request_that_it_answers(
    client: httpx.AsyncClient, model: str
) -> None:
    example = await client.get(f"/v2/models/{model}/example")
    answer = await client.post(f"/v2/models/{model}/infer", content=example.content)
    assert (example.status_code, answer.status_code) == (200, 200)
    assert (await client.get("/v2/models/nobody/example")).status_code == 404


@pytest.mark.parametrize("path", ["/v2/health/live", "/livez", "/healthz"])
async def test_it_is_live_even_when_it_is_not_ready(
    client: httpx.AsyncClient, serving: FakeServing, path: str
) -> None:
    serving.ready = False
    assert (await client.get(path)).json() == {"live": True}
    assert (await client.head(path)).status_code == 200


async def test_where_an_edge_cannot_be_had_again_it_is_neither_live_nor_ready(serving: FakeServing) -> None:
    statistics, why = serving.telemetry.statistics, "the grpc edge has ended"
    app = create_app(serving, statistics, name="p", version="1", bulk=Bulk(Limits()), why_dead=lambda: why)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        live, ready = await client.get("/livez"), await client.get("/readyz")
    assert (live.status_code, live.json()) == (503, {"live": False, "error": why})
    assert (ready.status_code, ready.json()) == (400, {"ready": False, "error": why})


@pytest.mark.parametrize("path", ["/v2/health/ready", "/readyz"])
async def test_readiness_names_the_models_that_are_not(
    client: httpx.AsyncClient, serving: FakeServing, path: str
) -> None:
    assert (await client.get(path)).json() == {"ready": True}
    serving.unready_models, serving.ready = {"simple"}, False
    serving.model_ready = lambda name: name != "simple"  # type: ignore[method-assign]
    answer = await client.get(path)
    assert answer.status_code == 400
    assert answer.json() == {"ready": False, "error": "no replica is ready for simple"}
    serving.model_ready = lambda name: True  # type: ignore[method-assign]
    assert "shutting down" in (await client.get(path)).json()["error"]
    assert (await client.head(path)).status_code == 400


@pytest.mark.parametrize("path", ["/v2/models/simple/ready", "/v2/models/simple/versions/1/ready"])
async def test_a_model_is_ready_or_400(client: httpx.AsyncClient, serving: FakeServing, path: str) -> None:
    assert (await client.get(path)).status_code == 200
    serving.unready_models = {"simple"}
    answer = await client.get(path)
    assert answer.status_code == 400
    assert "'simple'" in answer.json()["error"]


async def test_the_models_are_listed(client: httpx.AsyncClient) -> None:
    assert (await client.get("/v2/models")).json() == {"models": ["simple", "identity", "crash"]}


@pytest.mark.parametrize("path", ["/v2/models/simple", "/v2/models/simple/versions/1"])
async def test_metadata_has_the_protocols_shape_and_the_variants(
    client: httpx.AsyncClient, path: str
) -> None:
    stated = (await client.get(path)).json()
    assert {key: stated[key] for key in ("name", "versions", "platform")} == {
        "name": "simple",
        "versions": ["1"],
        "platform": "penstock_python",
    }
    assert stated["inputs"] == [
        {"name": name, "datatype": "INT32", "shape": [-1, 16]} for name in ("INPUT0", "INPUT1")
    ]
    assert [output["name"] for output in stated["outputs"]] == ["OUTPUT0", "OUTPUT1"]
    assert stated["parameters"]["default_variant"] == "exact"
    assert stated["parameters"]["variants"] == [
        {"name": "exact", "accuracy": 1.0, "deterministic": True, "served": True}
    ]
    own = {
        "slo_ms": 100,
        "slo_rows": None,
        "percentile": 99,
        "accuracy_min": 0,
        "cost_max": None,
        "optimize": "most_accurate",
        "variants": ["exact"],
    }
    assert stated["parameters"]["objective"] == own
    assert stated["parameters"]["tiers"] == {
        "gold": own | {"slo_ms": 20, "accuracy_min": 0.9},
        "cheap": own | {"optimize": "cheapest"},
    }


@pytest.mark.parametrize("path", ["", "/ready"])
@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        ("nobody", "Request for unknown model: 'nobody' is not found"),
        ("simple/versions/2", "Request for unknown model: 'simple' version 2 is not found"),
        ("nobody/versions/2", "Request for unknown model: 'nobody' is not found"),
    ],
)
async def test_an_unknown_model_or_version_is_404_in_tritons_words(
    client: httpx.AsyncClient, model: str, sentence: str, path: str
) -> None:
    answer = await client.get(f"/v2/models/{model}{path}")
    assert answer.status_code == 404
    assert answer.json()["error"].startswith(sentence)


async def test_kept_answers_are_dropped_for_all_models_or_for_one(
    client: httpx.AsyncClient, serving: FakeServing
) -> None:
    serving.kept = 3
    everything, simple = [await client.delete(path) for path in ("/v2/cache", "/v2/cache/models/simple")]
    assert (everything.status_code, everything.json()) == (200, {"dropped": 3})
    assert (simple.status_code, simple.json()) == (200, {"model": "simple", "dropped": 3})
    assert serving.invalidated == ["", "simple"]


async def test_nothing_is_dropped_for_an_unknown_model_or_by_reading(
    client: httpx.AsyncClient, serving: FakeServing
) -> None:
    unknown = await client.delete("/v2/cache/models/simpel")
    assert (unknown.status_code, unknown.headers["x-penstock-reason"]) == (404, "unknown_model")
    assert "did you mean 'simple'?" in unknown.json()["error"]
    assert (await client.get("/v2/cache")).status_code == 405
    assert (await client.delete("/v2/cache/models/")).status_code == 404
    assert serving.invalidated == []


async def test_no_such_path_and_wrong_methods_are_json(client: httpx.AsyncClient) -> None:
    missing = await client.get("/v3/anything")
    assert (missing.status_code, missing.json()) == (404, {"error": "Not Found: no such path: /v3/anything"})
    wrong = await client.post("/v2")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "GET")
    assert wrong.json() == {"error": "Method Not Allowed: POST /v2"}


async def test_a_bug_is_500_in_json_without_its_text(client: httpx.AsyncClient, serving: FakeServing) -> None:
    del serving.models
    answer = await client.get("/v2/models")
    assert answer.status_code == 500
    assert answer.json() == {"error": "internal error of the gateway; its log has the cause"}


async def test_the_openapi_document_describes_inference(client: httpx.AsyncClient) -> None:
    document = (await client.get("/openapi.json")).json()
    for path in ("/v2/models/{model}/infer", "/v2/models/{model}/versions/{model_version}/infer"):
        operation = document["paths"][path]["post"]
        assert set(operation["requestBody"]["content"]) == {"application/json", "application/octet-stream"}
        named = {parameter["name"] for parameter in operation["parameters"]}
        taken = {"Inference-Header-Content-Length", "X-Request-Timeout-Ms", "X-Tenant", "Cache-Control"}
        assert {"model", "X-Tier", "X-Accuracy-Min", *taken} <= named
        responses = operation["responses"]
        told = {str(ANSWERS[outcome].http_status) for outcome in ALL_OUTCOMES if outcome is not CLIENT_GONE}
        assert told | {"415"} <= set(responses)
        said = {"Server-Timing", "X-Cache", "Age"} | {
            f"X-Penstock-{each}"
            for each in ("Variant", "Batch-Rows", "Accuracy", "Downgrade", "Confidence", "Votes", "Query")
        }
        assert said == set(responses["200"]["headers"])
        for status, response in responses.items():
            retry = any(a.retry for a in ANSWERS.values() if str(a.http_status) == status)
            assert ("Retry-After" in response.get("headers", {})) is retry, status


async def test_the_docs_page_shows_every_operation_and_loads_nothing(client: httpx.AsyncClient) -> None:
    page = await client.get("/docs")
    document = (await client.get("/openapi.json")).json()
    assert page.headers["content-type"].startswith("text/html")
    for path in document["paths"]:
        assert path in page.text
    for loaded in ("<script", "<link", "src=", "http://", "https://", "@import", "url("):
        assert loaded not in page.text
