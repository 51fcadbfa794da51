"""Both load tools against a real gateway: what they send is understood, what they report adds up."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from loadtests.gateway import ROOT, Gateway, model_entry, started
from tests.loadtests.patience import PATIENT_MS

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    with started([model_entry(name, slo_ms=PATIENT_MS) for name in ("simple", "identity")]) as running:
        yield running


def run(*command: str) -> "subprocess.CompletedProcess[str]":
    arguments = [sys.executable, "-m", *command]
    return subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)


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
