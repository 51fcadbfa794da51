"""Over the wire: members vote within one deadline, and feedback teaches a gateway which of them to ask."""

import json
import re
import shutil
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any  # JSON

import numpy as np
import pytest
import tritonclient.grpc as grpc_client

from tests.acceptance.gateway import PATIENT_MS, ROOT, TALK_S, GatewayProcess
from tests.acceptance.holding import LIMITS, held

pytestmark = pytest.mark.slow

PANEL = ROOT / "tests" / "models" / "panel"
POLICIES = {"ensemble": "ensemble", "hasty": "ensemble", "exp3": "exp3", "exp4": "exp4"}
HASTY_MS = 3000
"""The SLO of "hasty": what two members that do not stall may take, however slow the machine is."""
NOBODY = -1


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("selection")


@pytest.fixture(scope="module")
def gateway(home: Path) -> Iterator[GatewayProcess]:
    """The same members four times, by policy."""
    entries = []
    for name, policy in POLICIES.items():
        model = shutil.copytree(PANEL, home / name)
        described = model / "model.yaml"
        described.write_text(described.read_text().replace("name: panel", f"name: {name}"))
        slo_ms = HASTY_MS if name == "hasty" else PATIENT_MS
        members = f"selection: {{policy: {policy}, members: [zero, one, two], output: SCORES}}"
        entries.append(f"  - {{path: {model}, slo_ms: {slo_ms}, cache: false, {members}}}")
    config = home / "penstock.yaml"
    config.write_text(
        "\n".join(["slices: [{name: a}, {name: b}, {name: c}]", "models:", *entries, LIMITS, ""])
    )
    started = GatewayProcess.start(config, home / "log")
    yield started
    assert started.stop() == 0, started.output


def ask(gateway: GatewayProcess, model: str, label: int, stalls: int = NOBODY) -> tuple[int, dict[str, str]]:
    """(the class that is answered, the header fields)."""
    tensor = {"name": "ROW", "datatype": "INT32", "shape": [1, 2], "data": [label, stalls]}
    body = json.dumps({"inputs": [tensor]}).encode()
    with urllib.request.urlopen(
        f"http://{gateway.rest}/v2/models/{model}/infer", body, timeout=TALK_S
    ) as answer:
        scores = json.loads(answer.read())["outputs"][0]["data"]
        return scores.index(max(scores)), {name.lower(): value for name, value in answer.headers.items()}


def teach(gateway: GatewayProcess, model: str, said: dict[str, Any]) -> tuple[int, Any]:
    status, body = gateway.post(f"/v2/models/{model}/feedback", json.dumps(said).encode())
    return status, json.loads(body)


def members(gateway: GatewayProcess, model: str) -> dict[str, dict[str, Any]]:
    status, body = gateway.get(f"/v2/models/{model}/selection")
    assert status == 200
    return {each["name"]: each for each in json.loads(body)["members"]}


def test_together_members_are_right_where_each_alone_errs(gateway: GatewayProcess) -> None:
    for label in range(6):
        named, fields = ask(gateway, "ensemble", label)
        assert named == label
        assert fields["x-penstock-variant"] == "ensemble(zero+one+two)"
        assert (fields["x-penstock-votes"], fields["x-penstock-accuracy"]) == ("3/3", "1")
        assert 0.5 < float(fields["x-penstock-confidence"]) < 1
        assert "x-penstock-query" not in fields


def test_grpc_gets_the_same_answer_and_clients_requests_are_counted_once(gateway: GatewayProcess) -> None:
    asked = grpc_client.InferInput("ROW", [2, 2], "INT32")
    asked.set_data_from_numpy(np.array([[3, NOBODY], [5, NOBODY]], np.int32))
    before = selected(gateway)
    with grpc_client.InferenceServerClient(gateway.grpc) as client:
        scores = client.infer("ensemble", [asked]).as_numpy("SCORES")
    assert scores.argmax(1).tolist() == [3, 5]
    assert selected(gateway) == before + 1


def selected(gateway: GatewayProcess) -> int:
    told = gateway.read_metrics()
    found = re.findall(r'penstock_selected_requests_total\{model="ensemble"[^}]*\} (\S+)', told)
    return int(sum(map(float, found)))


def test_a_stalled_member_costs_a_vote_and_not_the_deadline(gateway: GatewayProcess, home: Path) -> None:
    with held(home / "hasty"):  # it stalls until after the answer
        began = time.monotonic()
        named, fields = ask(gateway, "hasty", 2, stalls=1)
        assert time.monotonic() - began < 10
    assert named in (2, 3)  # `two` errs here, `zero` does not
    assert fields["x-penstock-votes"] == "2/3"
    assert fields["x-penstock-variant"] == "ensemble(zero+two)"
    assert fields["x-penstock-downgrade"] == "deadline"
    assert float(fields["x-penstock-confidence"]) < 0.5


@pytest.mark.parametrize("policy", ["exp3", "exp4"])
def test_feedback_teaches_whom_to_trust(gateway: GatewayProcess, policy: str) -> None:
    """Of labels 1 and 2 alone `zero` is always right."""
    for place in range(300):
        label = 1 + place % 2
        _, fields = ask(gateway, policy, label)
        assert teach(gateway, policy, {"query": fields["x-penstock-query"], "label": label}) == (
            200,
            {"taken": 1},
        )
    known = members(gateway, policy)
    if policy == "exp3":
        assert known["zero"]["probability"] > max(known[name]["probability"] for name in ("one", "two"))
        assert sum(each["plays"] for each in known.values()) == 300
    else:
        assert known["zero"]["weight"] > 0.9
        named, fields = ask(gateway, policy, 2)
        assert named == 2
        assert float(fields["x-penstock-confidence"]) > 0.9


def test_feedback_is_taken_once_and_only_where_something_learns(
    gateway: GatewayProcess, tmp_path: Path
) -> None:
    _, fields = ask(gateway, "exp4", 1)
    said = {"query": fields["x-penstock-query"], "label": 1}
    assert teach(gateway, "exp4", said)[0] == 200
    assert teach(gateway, "exp4", said)[0] == 409
    assert teach(gateway, "ensemble", said)[0] == 409
    assert teach(gateway, "nobody", said)[0] == 404
