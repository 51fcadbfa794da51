"""A gateway computes a question once, says so over REST and gRPC, and forgets when it is told to."""

import json
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any  # JSON, and clients without types

import numpy as np
import pytest
import tritonclient.grpc as grpc_client
import tritonclient.http as http_client

from tests.acceptance.gateway import PATIENT_MS, ROOT, TALK_S, GatewayProcess
from tests.acceptance.holding import LIMITS, held, identity_to_hold

pytestmark = pytest.mark.slow

CONFIG = f"""
slices: [{{name: a}}]
models:
  - {{path: {ROOT}/models/simple, slo_ms: {PATIENT_MS}}}
  - {{path: identity, slo_ms: {PATIENT_MS}}}
cache:
{LIMITS}
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keeping")
    (folder / "penstock.yaml").write_text(CONFIG)
    identity_to_hold(folder / "identity")
    return folder


@pytest.fixture(scope="module")
def keeping(home: Path) -> Iterator[GatewayProcess]:
    started = GatewayProcess.start(home / "penstock.yaml", home / "log")
    yield started
    assert started.stop() == 0, started.output


@pytest.fixture
def gateway(keeping: GatewayProcess) -> GatewayProcess:
    """Nothing is kept."""
    drop(keeping, "/v2/cache")
    return keeping


def ask(gateway: GatewayProcess, model: str, asked: dict[str, Any], **fields: str) -> dict[str, str]:
    """The header fields of a good answer, by lower-case name."""
    body = json.dumps(asked).encode()
    url = f"http://{gateway.rest}/v2/models/{model}/infer"
    named = {name.replace("_", "-"): value for name, value in fields.items()}
    with urllib.request.urlopen(urllib.request.Request(url, body, named), timeout=TALK_S) as answer:
        answer.read()
        return {name.lower(): value for name, value in answer.headers.items()}


def add(gateway: GatewayProcess, number: int, **fields: str) -> dict[str, str]:
    inputs = [
        {"name": name, "datatype": "INT32", "shape": [1, 16], "data": [number] * 16}
        for name in ("INPUT0", "INPUT1")
    ]
    return ask(gateway, "simple", {"inputs": inputs}, **fields)


def drop(gateway: GatewayProcess, path: str) -> int:
    status, body = gateway.change("DELETE", path)
    assert status == 200, body
    dropped = json.loads(body)["dropped"]
    assert isinstance(dropped, int)
    return dropped


def test_the_second_answer_is_a_hit_and_says_its_age(gateway: GatewayProcess) -> None:
    began = time.monotonic()
    first, second = add(gateway, 1), add(gateway, 1)
    assert (first["x-cache"], "age" in first) == ("miss", False)
    assert second["x-cache"] == "hit"
    assert 0 <= int(second["age"]) <= time.monotonic() - began
    assert first["x-penstock-variant"] == second["x-penstock-variant"] == "default"
    assert add(gateway, 2)["x-cache"] == "miss"


def test_a_client_may_ask_for_an_answer_of_its_own(gateway: GatewayProcess) -> None:
    add(gateway, 1)
    assert add(gateway, 1, cache_control="no-cache")["x-cache"] == "miss"
    assert add(gateway, 1, cache_control="max-age=0")["x-cache"] == "miss"
    assert add(gateway, 1, cache_control="max-age=3600")["x-cache"] == "hit"
    assert "x-cache" not in add(gateway, 2, cache_control="no-store")
    assert add(gateway, 2)["x-cache"] == "miss"


def test_a_model_is_forgotten_or_all_are(gateway: GatewayProcess) -> None:
    add(gateway, 1)
    add(gateway, 2)
    assert drop(gateway, "/v2/cache/models/identity") == 0
    assert add(gateway, 1)["x-cache"] == "hit"
    assert drop(gateway, "/v2/cache/models/simple") == 2
    assert add(gateway, 1)["x-cache"] == "miss"
    assert drop(gateway, "/v2/cache") == 1


def test_equal_questions_that_come_together_are_computed_once(gateway: GatewayProcess, home: Path) -> None:
    before = statistics(gateway, "identity")
    tensor = {"name": "INPUT0", "datatype": "FP32", "shape": [1, 1], "data": [7]}
    with ThreadPoolExecutor(16) as clients:
        with held(home / "identity"):
            answers = [clients.submit(ask, gateway, "identity", {"inputs": [tensor]}) for _ in range(16)]
            while gateway.open_requests() < 16:
                time.sleep(0.01)
        told = [answer.result()["x-cache"] for answer in answers]
    after = statistics(gateway, "identity")
    assert (told.count("miss"), told.count("join")) == (1, 15)
    assert after["execution_count"] - before["execution_count"] == 1
    stats, old = after["inference_stats"], before["inference_stats"]
    counted = {kind: stats[kind]["count"] - old[kind]["count"] for kind in stats}
    assert (counted["success"], counted["cache_hit"], counted["cache_miss"]) == (16, 15, 1)
    assert stats["cache_hit"]["ns"] > old["cache_hit"]["ns"]


def test_grpc_hits_what_rest_has_asked(gateway: GatewayProcess) -> None:
    add(gateway, 3)
    inputs = []
    for name in ("INPUT0", "INPUT1"):
        inputs.append(grpc_client.InferInput(name, [1, 16], "INT32"))
        inputs[-1].set_data_from_numpy(np.full((1, 16), 3, np.int32))
    with grpc_client.InferenceServerClient(gateway.grpc) as client:
        before = hits(client)
        result = client.infer("simple", inputs)
        client.infer("simple", inputs, headers={"cache-control": "no-cache"})
        assert hits(client) == before + 1
    assert result.as_numpy("OUTPUT0").tolist() == [[6] * 16]


def hits(client: grpc_client.InferenceServerClient) -> int:
    told = client.get_inference_statistics("simple")
    return int(told.model_stats[0].inference_stats.cache_hit.count)


def statistics(gateway: GatewayProcess, model: str) -> dict[str, Any]:
    with http_client.InferenceServerClient(gateway.rest) as client:
        (told,) = client.get_inference_statistics(model)["model_stats"]
    assert isinstance(told, dict)
    return told
