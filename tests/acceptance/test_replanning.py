"""A gateway that loses what its placement needs makes another plan, and shows it or carries it out."""

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.gateway import PATIENT_MS, ROOT, TALK_S, GatewayProcess, await_true, serving
from tests.acceptance.holding import simple_to_hold, write_core_profiles

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="takes two cores, of which one is lost"),
]

CONFIG = f"""
slices: [{{name: cpu-a, cores: 1}}, {{name: cpu-b, cores: 1, spot: true}}]
models:
  - {{path: {ROOT}/models/simple, slo_ms: {PATIENT_MS}, slices: [cpu-a]}}
  - {{path: held, slo_ms: {PATIENT_MS}, slices: [cpu-b]}}
profiles: {{folder: profiles, remeasure: false}}
cache: false
"""
INPUT = {"shape": [1, 16], "datatype": "INT32", "data": [*range(16)]}
REQUEST = json.dumps({"inputs": [{"name": name} | INPUT for name in ("INPUT0", "INPUT1")]}).encode()
BEFORE, AFTER = {"cpu-a": ["simple"], "cpu-b": ["held"]}, {"cpu-a": ["simple", "held"]}


def home(tmp_path: Path, more: str = "") -> Path:
    """The settings file: each model was measured on one core, and one core carries both at a low rate."""
    simple_to_hold(tmp_path / "held")
    config = tmp_path / "penstock.yaml"
    config.write_text(CONFIG + more)
    write_core_profiles(tmp_path / "profiles", "simple", "held")
    return config


def ask(gateway: GatewayProcess) -> None:
    """Both models have a load from now on."""
    for model in ("simple", "held"):
        for _ in range(5):
            status, told = gateway.post(f"/v2/models/{model}/infer", REQUEST)
            assert status == 200, told


def lose(gateway: GatewayProcess) -> None:
    """Take the spot slice away."""
    status, told = gateway.change("POST", "/v2/slices/cpu-b/lost", b'{"reason": "reclaimed"}')
    assert status == 202, told


def proposal(gateway: GatewayProcess, so: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """What the status says of another plan, once it is so."""
    found: list[dict[str, Any]] = []

    def holds() -> object:
        found.append(json.loads(gateway.get("/v2/status")[1]).get("proposal", {}))
        return found[-1] and so(found[-1])

    await_true(holds, gateway)
    return found[-1]


def slices(gateway: GatewayProcess) -> dict[str, list[str]]:
    """The models on each slice."""
    found = json.loads(gateway.change("GET", "/v2/placement")[1])
    return {
        each["name"]: [name for name, model in found["models"].items() if each["name"] in model["slices"]]
        for each in found["slices"]
    }


def penstock(*words: str) -> "subprocess.CompletedProcess[str]":
    """What the command line says."""
    command = [sys.executable, "-m", "router.cli", *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=TALK_S, check=False)


def test_a_lost_slice_brings_a_plan_without_it_and_its_command_applies_it(tmp_path: Path) -> None:
    with serving(home(tmp_path)) as gateway:
        ask(gateway)
        lose(gateway)
        found = proposal(gateway, lambda told: told["state"] != "planning")
        assert (found["state"], found["slices"]) == ("proposed", AFTER), found
        assert found["reason"] == "spot cpu-b is lost: reclaimed"
        assert found["sentence"].startswith("as it is today, held is predicted to answer 0 % in time")
        assert found["attainment"]["held"] > 0.99
        assert slices(gateway) == BEFORE  # nothing is done without the operator
        assert found["command"] in penstock("status", "--url", f"http://{gateway.rest}").stdout
        assert found["command"] in gateway.output
        first, *words = shlex.split(found["command"])
        assert first == "penstock"
        assert words[words.index("--without") :][:2] == ["--without", "cpu-b"]
        ended = penstock(*words)
        assert ended.returncode == 0, f"{ended}\n{gateway.output}"
        assert slices(gateway) == AFTER
        assert gateway.post("/v2/models/held/infer", REQUEST)[0] == 200
        assert "proposal" not in json.loads(gateway.get("/v2/status")[1])  # it was for what is no more
        assert 'penstock_replans_total{outcome="proposed"} 1' in gateway.read_metrics()


def test_a_gateway_that_may_apply_plans_serves_again_by_itself(tmp_path: Path) -> None:
    with serving(home(tmp_path, "placement: {replan: apply}\n")) as gateway:
        ask(gateway)
        lose(gateway)
        found = proposal(gateway, lambda told: told["state"] not in ("planning", "proposed"))
        assert found["state"] == "applied", f"{found}\n{gateway.output}"
        assert slices(gateway) == AFTER
        assert gateway.post("/v2/models/held/infer", REQUEST)[0] == 200
        assert 'penstock_replans_total{outcome="applied"} 1' in gateway.read_metrics()
        assert (tmp_path / ".penstock" / "penstock.placement.json").exists()


def test_a_model_that_loads_nowhere_leaves_a_sentence(tmp_path: Path) -> None:
    with serving(home(tmp_path)) as gateway:
        ask(gateway)
        (tmp_path / "held" / "broken").touch()
        (pid,) = (
            each["pid"]
            for each in json.loads(gateway.get("/v2/status")[1])["slices"]
            if each["name"] == "cpu-b"
        )
        os.kill(pid, signal.SIGKILL)
        found = proposal(gateway, lambda told: told["state"] != "planning")
        assert found["state"] == "none", found
        assert "its weights are not there" in found["reason"]
        assert found["sentence"] == "nothing that is left can run held"
        assert found["command"] == ""
        assert slices(gateway) == BEFORE
        (tmp_path / "held" / "broken").unlink()
        await_true(lambda: "proposal" not in json.loads(gateway.get("/v2/status")[1]), gateway)
        assert gateway.post("/v2/models/held/infer", REQUEST)[0] == 200


def test_a_gateway_that_is_to_make_no_plan_only_says_why(tmp_path: Path) -> None:
    with serving(home(tmp_path, "placement: {replan: off}\n")) as gateway:
        ask(gateway)
        lose(gateway)
        await_true(lambda: 'penstock_replans_total{outcome="off"} 1' in gateway.read_metrics(), gateway)
        assert "`penstock place` may find another: spot cpu-b is lost: reclaimed" in gateway.output
        assert "proposal" not in json.loads(gateway.get("/v2/status")[1])


def test_a_placement_that_does_not_load_leaves_a_plan_without_it(tmp_path: Path) -> None:
    with serving(home(tmp_path)) as gateway:
        ask(gateway)
        (tmp_path / "held" / "broken").touch()
        moved = {
            "slices": [{"name": "cpu-a", "cores": 1}, {"name": "new", "cores": 1}],
            "models": {"simple": {"slices": ["cpu-a"]}, "held": {"slices": ["new"]}},
        }
        assert gateway.change("PUT", "/v2/placement", json.dumps(moved).encode())[0] == 202
        found = proposal(gateway, lambda told: told["state"] != "planning")
        assert "slice new: " in found["reason"]
        assert found["state"] == "none"  # held is loaded on another slice of that share, which stays
        assert found["sentence"].startswith("what is left in place stays: ")
        assert slices(gateway) == BEFORE
        assert gateway.post("/v2/models/held/infer", REQUEST)[0] == 200
