"""Why a running gateway's variants answer: `penstock explain`, `penstock status` and metrics agree."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tritonclient import grpc

from tests.acceptance.gateway import PATIENT_MS, ROOT, GatewayProcess

pytestmark = pytest.mark.slow

SETTINGS = f"""\
slices: [{{name: a}}]
tiers: [{{name: frugal, percentile: 95}}]
models:
  - path: {ROOT / "models/digits"}
    slo_ms: {PATIENT_MS}
    percentile: 99.5
    accuracy_min: 0.97
    tiers: {{frugal: {{accuracy_min: 0.9, optimize: cheapest}}}}
    cache: false
  - {{path: {ROOT / "models/simple"}, slo_ms: {PATIENT_MS}}}
"""
DIGIT = {"name": "PIXELS", "datatype": "FP32", "shape": [1, 64], "data": [0.5] * 64}
ASKED = {"": 6, "frugal": 4}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """One that was asked for ASKED digits, by tier."""
    folder: Path = tmp_path_factory.mktemp("explain")
    config = folder / "penstock.yaml"
    config.write_text(SETTINGS)
    started = GatewayProcess.start(config, folder / "log")
    for tier, count in ASKED.items():
        for _ in range(count):
            body = json.dumps({"inputs": [DIGIT]}).encode()
            headers = {"x-tier": tier} if tier else {}
            assert started.post("/v2/models/digits/infer", body, headers)[0] == 200
    yield started
    assert started.stop() == 0, started.output


def penstock(gateway: GatewayProcess, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "router.cli", *words, "--url", f"http://{gateway.rest}"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)


def test_it_says_who_may_answer_and_by_what_figures_that_changes(gateway: GatewayProcess) -> None:
    shown = penstock(gateway, "explain", "digits")
    assert (shown.returncode, shown.stderr) == (0, "")
    lines = shown.stdout.splitlines()
    assert lines[0].startswith(
        f"digits: 99.5 % of requests within {PATIENT_MS:,} ms, the most accurate answer"
    )
    assert "  pooled (0.9146) is below the floor of 0.97" in lines
    assert any("a row" in line and line.startswith("  ") for line in lines[lines.index("now") + 1 :])
    replicas = lines.index("replicas")
    assert lines[replicas - 2].endswith("requests are turned away, as pooled is below the floor of 0.97")
    assert lines[replicas + 1].startswith("  one on ")
    assert lines[-1] == "other promises, by --tier: frugal"
    frugal = penstock(gateway, "explain", "digits", "--tier", "frugal").stdout
    assert frugal.startswith(
        f"digits, tier frugal: 95 % of requests within {PATIENT_MS:,} ms, the cheapest answer"
    )


def test_a_model_of_which_nothing_is_stated_says_what_would_let_it_choose(gateway: GatewayProcess) -> None:
    shown = penstock(gateway, "explain", "simple").stdout
    assert "answers, whatever the load, as nothing is stated by which to choose" in shown


def test_the_figures_are_json_and_count_what_was_answered_by_tier(gateway: GatewayProcess) -> None:
    told = json.loads(penstock(gateway, "explain", "digits", "--json").stdout)
    assert told == json.loads(json.dumps(told, allow_nan=False))
    answered = {tier: sum(counts.values()) for tier, counts in told["counters"]["answers"].items()}
    assert answered == ASKED
    assert told["counters"]["measured_rows"] == sum(ASKED.values())
    assert [each["tier"] for each in told["promises"]] == ["", "frugal"]
    assert all(each["ladders"][0]["rungs"] for each in told["promises"])


def test_metrics_and_status_say_what_answered(gateway: GatewayProcess) -> None:
    metrics = gateway.read_metrics()
    assert 'penstock_slo_objective_ratio{model="digits"} 0.995' in metrics
    assert f'penstock_answer_measured_rows_total{{model="digits",tier="frugal"}} {ASKED["frugal"]}' in metrics
    for name in ("penstock_slo_pressure", "penstock_desired_replicas"):  # by which docs/kubernetes scales
        assert f'{name}{{model="simple"}} ' in metrics
    rows = penstock(gateway, "status", "--once").stdout.splitlines()
    row = next(line for line in rows if line.strip().startswith("digits"))
    assert any(f" {variant} " in row for variant in ("ensemble", "cnn", "mlp", "linear", "pooled"))


def test_what_is_not_there_is_one_line_with_what_is(gateway: GatewayProcess) -> None:
    for words, part in (
        (("digit",), "Request for unknown model: 'digit' is not found; did you mean 'digits'?"),
        (("digits", "--tier", "frugl"), "digits has no tier 'frugl'; did you mean 'frugal'?"),
    ):
        shown = penstock(gateway, "explain", *words)
        assert (shown.returncode, shown.stdout, shown.stderr.count("\n")) == (1, "", 1)
        assert part in shown.stderr


def test_a_request_is_explained_by_the_name_that_its_client_gave(gateway: GatewayProcess) -> None:
    body = json.dumps({"id": "by-id", "inputs": [DIGIT]}).encode()
    assert gateway.post("/v2/models/digits/infer", body)[0] == 200
    assert gateway.post("/v2/models/digits/infer", body, {"x-request-id": "by-header"})[0] == 200
    client = grpc.InferenceServerClient(gateway.grpc)
    given = grpc.InferInput("PIXELS", [1, 64], "FP32")
    given.set_data_from_numpy(np.full((1, 64), 0.5, np.float32))
    client.infer("digits", [given], request_id="by-rpc")
    client.infer("digits", [given], headers={"x-request-id": "by-metadata"})
    trace = f"00-{'ab' * 16}-{'cd' * 8}-01"
    client.infer("digits", [given], headers={"traceparent": trace})
    untraced = {"traceparent": "00-of nothing"}
    assert (
        gateway.post("/v2/models/digits/infer", json.dumps({"inputs": [DIGIT]}).encode(), untraced)[0] == 200
    )
    for name in ("by-id", "by-header", "by-rpc", "by-metadata", "ab" * 16):
        shown = penstock(gateway, "explain", "--request", name)
        assert (shown.returncode, shown.stderr) == (0, "")
        lines = shown.stdout.splitlines()
        assert lines[0].startswith(f"{name}: digits, 1 row, tenant default; it came at ")
        assert lines[1].startswith("  answered, after ")
        assert "1 row of 1 request; it took" in shown.stdout
        assert "could answer" in shown.stdout
    assert (
        penstock(gateway, "explain", "--requests").stdout
        == "no request that is kept was late, refused or failed\n"
    )
    hasty = {"x-request-id": "hasty", "x-request-timeout-ms": "0.001"}
    assert gateway.post("/v2/models/digits/infer", json.dumps({"inputs": [DIGIT]}).encode(), hasty)[0] in (
        503,
        504,
    )
    assert " hasty  digits  " in penstock(gateway, "explain", "digits", "--requests").stdout
    assert "what would have helped" in penstock(gateway, "explain", "--request", "last").stdout
    figures = json.loads(penstock(gateway, "explain", "--request", "hasty", "--json").stdout)
    assert (figures["in_time"], figures["batch"], figures["model"]) == (False, None, "digits")
    unknown = penstock(gateway, "explain", "--request", "nothing/of it")
    assert (unknown.returncode, unknown.stdout) == (1, "")
    assert "no request 'nothing/of it' is among the last that are kept" in unknown.stderr
    assert gateway.get("/v2/requests?limit=0")[0] == 422
