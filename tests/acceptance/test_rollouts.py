"""Guarded rollouts of a running gateway: under load a slow candidate is rolled back, a good one promoted."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.acceptance.gateway import ROOT, GatewayProcess, await_true, serving

pytestmark = pytest.mark.slow

SLO_MS = 300
MODEL = f"""\
name: NAME
inputs: [{{name: x, datatype: FP32, shape: [-1, 1]}}]
outputs: [{{name: y, datatype: FP32, shape: [-1, 1]}}]
batch_max: 4
slo_ms: {SLO_MS}
default_variant: default
variants: [{{name: default}}]
"""
CODE = """\
import time
from pathlib import Path

import numpy as np


class Model:
    def predict(self, inputs, parameters):
        if Path(SLOW).exists():
            time.sleep(1.0)
        return {"y": inputs["x"] + NUMBER}

    def sample(self, rows, size):
        return {"x": np.zeros((rows, 1), np.float32)}
"""
SETTINGS = """\
slices: [{name: a}, {name: b}]
models:
  - {path: m-1, slices: [a], cache: false}
  - path: m-2
    slices: [b]
    cache: false
    rollout:
      {of: m-1, steps: [50], hold_s: 2, sticky: request,
       margins: {attainment: 0.3, errors: 0.3, latency: false}}
"""
BODY = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 1], "data": [0]}]}).encode()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with two models; the second sleeps while the file `slow` is there."""
    codes = [
        CODE.replace("SLOW", repr(str(tmp_path / file))).replace("NUMBER", str(number))
        for number, file in ((1, "never"), (2, "slow"))
    ]
    return write_pair(tmp_path, MODEL, codes, SETTINGS)


def write_pair(home: Path, model: str, codes: Sequence[str], settings: str) -> Path:
    """Write m-1 and m-2 with these codes, and settings; return the folder of all."""
    for number, code in enumerate(codes, start=1):
        folder = home / f"m-{number}"
        folder.mkdir()
        (folder / "model.yaml").write_text(model.replace("NAME", folder.name))
        (folder / "model.py").write_text(code)
    (home / "penstock.yaml").write_text(settings)
    return home


@pytest.fixture
def gateway(home: Path) -> Iterator[GatewayProcess]:
    started = GatewayProcess.start(home / "penstock.yaml", home / "log")
    yield started
    started.kill()
    started.process.wait()


@contextmanager
def asked(gateway: GatewayProcess) -> Iterator[list[tuple[str, int, bytes]]]:
    """Twelve clients ask m-1 all the time, each request by a name of its own; what they got."""
    answers: list[tuple[str, int, bytes]] = []
    over = threading.Event()

    def ask(client: int) -> None:
        number = 0
        while not over.is_set():
            number += 1
            name = f"{client}-{number}"
            status, body = gateway.post("/v2/models/m-1/infer", BODY, {"x-request-id": name})
            answers.append((name, status, body))
            time.sleep(0.02)

    clients = [threading.Thread(target=ask, args=(each,)) for each in range(12)]
    for each in clients:
        each.start()
    try:
        yield answers
    finally:
        over.set()
        for each in clients:
            each.join()


def state(gateway: GatewayProcess) -> tuple[str, float]:
    (found,) = json.loads(gateway.get("/v2/rollouts")[1])["rollouts"]
    return found["state"], found["share"]


def penstock(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "router.cli", "rollout", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)


def test_a_good_candidate_is_promoted_by_itself_and_an_operator_takes_it_back(
    gateway: GatewayProcess,
) -> None:
    with asked(gateway) as answers:
        await_true(lambda: state(gateway)[0] == "canary", gateway)
        predicted = penstock("predict", "m-1", "--rates", "m-1=100", "--url", f"http://{gateway.rest}")
        assert predicted.stdout.startswith("100 requests a second for m-1, 1 row each: "), predicted
        assert "\nat 50 %: m-2 needs " in predicted.stdout
        await_true(lambda: state(gateway) == ("promoted", 1.0), gateway)
    assert {status for _, status, _ in answers} == {200}
    given = [json.loads(body) for _, _, body in answers]
    assert {each["outputs"][0]["data"][0] for each in given} == {1, 2}
    assert {each["model_name"] for each in given} == {"m-1"}  # clients see the model that they asked for
    shown = penstock("status", "--url", f"http://{gateway.rest}")
    assert shown.stdout.startswith("m-2 gets 100 % of the requests for m-1 (promoted)"), shown
    command = [sys.executable, "-m", "router.cli", "explain", "m-1", "--url", f"http://{gateway.rest}"]
    explained = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert "rollout\n  m-2 gets 100 % of the requests for m-1 (promoted)" in explained.stdout, explained
    assert 'penstock_rollout_share{model="m-1",candidate="m-2"} 1' in gateway.read_metrics()
    shown = penstock("abort", "m-1", "--url", f"http://{gateway.admin}")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert state(gateway) == ("aborted", 0.0)
    answer = json.loads(gateway.post("/v2/models/m-1/infer", BODY)[1])
    assert answer["outputs"][0]["data"] == [1.0]
    shown = penstock("promote", "none", "--url", f"http://{gateway.admin}")
    assert shown.returncode == 1
    assert "none has no candidate" in shown.stderr


def test_a_slow_candidate_is_rolled_back_and_breaks_no_promise_beyond_its_share(
    gateway: GatewayProcess, home: Path
) -> None:
    await_true(lambda: state(gateway)[0] == "canary", gateway)
    (home / "slow").touch()
    with asked(gateway) as answers:
        await_true(lambda: state(gateway)[0] == "rolled back", gateway)
        before = len(answers)
        await_true(lambda: len(answers) > before + 200, gateway)
    sent_before, bad = {name.partition("-")[0] for name, _, _ in answers}, []
    for name, status, _ in answers[before:]:
        client = name.partition("-")[0]
        if client not in sent_before and status != 200:
            bad.append(name)
        sent_before.discard(client)  # its next request was sent after the rollback
    assert bad == []
    assert "it answers in time for" in json.loads(gateway.get("/v2/rollouts")[1])["rollouts"][0]["why"]
    events = json.loads(gateway.get("/v2/events?limit=500")[1])["events"]
    assert [each["level"] for each in events if "rolled back" in each["text"]] == ["warning"]


def test_a_candidate_that_answers_otherwise_is_found_by_copies_and_serves_nobody(home: Path) -> None:
    (home / "penstock.yaml").write_text(SETTINGS.replace("hold_s: 2", "hold_s: 2, shadow: 100"))
    with serving(home / "penstock.yaml") as gateway:
        await_true(lambda: state(gateway) == ("shadow", 0.0), gateway)
        with asked(gateway) as answers:
            await_true(lambda: state(gateway)[0] == "rolled back", gateway)
        given = [json.loads(body)["outputs"][0]["data"] for _, _, body in answers]
        assert given == [[1.0]] * len(given)
        why = json.loads(gateway.get("/v2/rollouts")[1])["rollouts"][0]["why"]
        assert why.startswith("it agrees on 0.00% of ")


def test_an_edit_of_the_file_begins_changes_and_ends_a_rollout(gateway: GatewayProcess, home: Path) -> None:
    await_true(lambda: state(gateway)[0] == "canary", gateway)
    file = home / "penstock.yaml"
    file.write_text(SETTINGS.replace("steps: [50]", "steps: [20]"))
    await_true(lambda: state(gateway) == ("canary", 0.2), gateway)
    file.write_text(SETTINGS[: SETTINGS.index("  - path: m-2")])
    await_true(lambda: json.loads(gateway.get("/v2/rollouts")[1])["rollouts"] == [], gateway)
    answer = json.loads(gateway.post("/v2/models/m-1/infer", BODY)[1])
    assert answer["outputs"][0]["data"] == [1.0]
