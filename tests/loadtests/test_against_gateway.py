"""Both load tools against a real gateway: what they send is understood, what they report adds up."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from loadtests.harness.gateway import ROOT, Gateway, model_entry, started
from tests.acceptance.gateway import SAMPLE, GatewayProcess
from tests.loadtests.patience import PATIENT_MS

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.in_turn(2)]


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    with started([model_entry(name, slo_ms=PATIENT_MS) for name in ("simple", "identity")]) as running:
        yield running


def run(*command: str) -> "subprocess.CompletedProcess[str]":
    arguments = [sys.executable, "-m", *command]
    return subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)


SCENARIOS = {"digits", "simple", "mlp", "minilm", "minilm, 2 rows"}
"""What the scenario users ask for."""


@pytest.fixture
def sample(tmp_path: Path) -> Iterator[GatewayProcess]:
    """The sample settings as they are, SLOs and all."""
    running = GatewayProcess.start(SAMPLE, tmp_path / "log")
    yield running
    assert running.stop() == 0, running.output


def test_the_scenarios_as_shipped_meet_no_failure_on_the_sample_settings(
    sample: GatewayProcess, tmp_path: Path
) -> None:
    """What a first run shows: answers of every model, perhaps refusals, and nothing that is red."""
    done = run(
        "locust", "-f", "loadtests/locustfile.py", "-H", f"http://{sample.rest}", "--headless",
        "--only-summary", "--json-file", str(tmp_path / "stats"), "-u", "10", "-r", "10", "-t", "8s",
    )  # fmt: skip
    rows = {row["name"]: row for row in json.loads((tmp_path / "stats.json").read_text())}
    assert not [row for row in rows.values() if row["num_failures"]], done.stdout
    assert done.returncode == 0, done.stderr
    assert {name for name in rows if "refused" not in name} == SCENARIOS, "some are never answered"
    assert {name.split(" refused (")[0] for name in rows} == SCENARIOS


def test_an_open_loop_run_is_answered_and_reported(gateway: Gateway, tmp_path: Path) -> None:
    kept, drawn = tmp_path / "new" / "run.json", tmp_path / "new" / "run.png"
    done = run(
        "loadtests.openloop", "--port", str(gateway.rest_port), "--load", "simple=100:1+200:1,identity=50",
        "--seconds", "2", "--slo", "simple=15000", "--json", str(kept), "--png", str(drawn),
    )  # fmt: skip
    report = json.loads(kept.read_text())
    assert done.returncode == report["void"], done.stderr  # a busy machine may make the client late
    assert ("THIS RUN IS VOID" in done.stdout) == report["void"]
    simple, identity = report["loads"]
    assert (simple["name"], simple["slo_ms"], identity["slo_ms"]) == ("simple", 15_000, PATIENT_MS)
    assert simple["offered"] == simple["ok"] == simple["good"] > 200
    assert identity["offered"] == identity["ok"]
    assert report["total"]["offered"] == simple["offered"] + identity["offered"]
    assert drawn.read_bytes().startswith(b"\x89PNG")


def test_a_model_that_is_not_served_is_named(gateway: Gateway) -> None:
    done = run("loadtests.openloop", "--port", str(gateway.rest_port), "--load", "nosuch=5")
    assert done.returncode == 2
    assert "/v2/models/nosuch answers 404" in done.stderr


@pytest.mark.parametrize(
    "options",
    [
        ["--open-loop", "simple=100,identity=20", "--open-seconds", "2"],
        ["SumUser", "-u", "4", "-r", "40", "-t", "5s"],
    ],
    ids=["open loop", "scenario"],
)
def test_locust_asks_what_the_gateway_answers(gateway: Gateway, options: list[str], tmp_path: Path) -> None:
    host = f"http://{gateway.host}:{gateway.rest_port}"
    done = run(
        "locust", "-f", "loadtests/locustfile.py", "-H", host, "--headless", "--only-summary",
        "--json-file", str(tmp_path / "stats"), *options,
    )  # fmt: skip
    stats = {row["name"]: row for row in json.loads((tmp_path / "stats.json").read_text())}
    assert stats["simple"]["num_requests"] > 10
    assert not any(row["num_failures"] for row in stats.values()), done.stderr
    assert done.returncode == ("THIS RUN IS VOID" in done.stderr), done.stderr
    assert ("open loop:" in done.stderr) == ("--open-loop" in options)
