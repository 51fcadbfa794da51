"""A gateway whose models look for secrets, leave processes behind, take memory and answer nonsense."""

import json
import os
import select
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from serving.worker.process.tree import children, descendants
from tests.acceptance.gateway import PATIENT_MS, GatewayProcess, await_true, serving

pytestmark = pytest.mark.slow

GONE_S = 10.0
"""It takes some milliseconds; a machine that others use may stand still for longer."""
SECRETS = ("AWS_SECRET_ACCESS_KEY", "PENSTOCK_KEY", "REDIS_PASSWORD")
MODEL_YAML = f"""
name: NAME
inputs: [{{name: X, datatype: BYTES, shape: [-1, 1]}}]
outputs: [{{name: Y, datatype: FP32, shape: [-1, 1]}}]
batch_max: 4
slo_ms: {PATIENT_MS}
deterministic: true
"""
MODEL_PY = """
import os
import subprocess

import numpy as np


class Model:
    def predict(self, inputs, parameters):
        return {"Y": np.array([[self.do(*x.decode().split())] for x in inputs["X"][:, 0]], np.float32)}

    def do(self, order, argument):
        if order == "say":
            return float(argument)
        if order == "has":
            return argument in os.environ
        if order == "hold":
            self.held = np.ones(int(argument) << 17)  # MB
        if order == "start":
            subprocess.Popen(["sleep", argument], start_new_session=True)
        if order == "orphan":
            subprocess.Popen(["sh", "-c", f"setsid sleep {argument} & exit"]).wait()
        if order == "raise":
            raise ValueError(f"cannot open {argument}: " + "x" * 5000)
        return 0

    def sample(self, rows, size):
        return {"X": np.full((rows, 1), b"say 0.5", object)}


def load(artifact, options):
    return Model()
"""


def settings(folder: Path, **sections: object) -> Path:
    """`wild` on slice a and `sound` on slice b, of the same code; `wild` has a guard."""
    entries: list[dict[str, object]] = []
    for name, place in (("wild", "a"), ("sound", "b")):
        (folder / name).mkdir()
        (folder / name / "model.yaml").write_text(MODEL_YAML.replace("NAME", name))
        (folder / name / "model.py").write_text(MODEL_PY)
        entries.append({"path": name, "slices": [place]})
    entries[0] |= {
        "guards": {"Y": {"finite": True, "min": 0, "max": 1}},
        "batching": {"policy": "static", "size": 4, "delay_ms": 5000},
    }
    slices = [{"name": name, "cores": 1} for name in "ab"]
    path = folder / "penstock.yaml"
    path.write_text(yaml.safe_dump({"slices": slices, "models": entries, **sections}))
    return path


def ask(gateway: GatewayProcess, model: str, *orders: str) -> tuple[int, dict[str, object]]:
    """Status and body. Four orders are a batch of `wild`, which waits for no more."""
    rows = [*orders]
    tensor = {"name": "X", "shape": [len(rows), 1], "datatype": "BYTES", "data": rows}
    status, body = gateway.post(f"/v2/models/{model}/infer", json.dumps({"inputs": [tensor]}).encode())
    return status, json.loads(body)


def answer(gateway: GatewayProcess, model: str, *orders: str) -> list[float]:
    status, body = ask(gateway, model, *orders)
    assert status == 200, body
    outputs = body["outputs"]
    assert isinstance(outputs, list)
    return list(outputs[0]["data"])


def commands(gateway: GatewayProcess) -> list[str]:
    """The command lines of all processes below it."""
    found = []
    for pid in descendants(gateway.process.pid):
        with suppress(OSError):  # it has just ended
            found.append(Path(f"/proc/{pid}/cmdline").read_text())
    return found


def test_no_secret_of_the_gateways_environment_reaches_a_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (*SECRETS, "LICENCE", "OMP_WAIT_POLICY"):
        monkeypatch.setenv(name, "hunter2")
    workers = {"environment": {"MODE": "fast"}, "inherit": ["LICENCE"]}
    with serving(settings(tmp_path, workers=workers)) as gateway:
        asked = [*SECRETS, "LICENCE", "MODE", "OMP_WAIT_POLICY", "PATH"]
        found = answer(gateway, "sound", *(f"has {name}" for name in asked[:4]))
        found += answer(gateway, "sound", *(f"has {name}" for name in asked[4:]))
        assert dict(zip(asked, found, strict=True)) == dict.fromkeys(asked, 1.0) | dict.fromkeys(SECRETS, 0.0)
        seen = [Path(f"/proc/{pid}/environ").read_bytes() for pid in descendants(gateway.process.pid)]
        assert len(seen) >= 5  # two workers, their keepers, a bulk process
        for each in seen:
            assert not any(name.encode() in each for name in SECRETS)


def test_nothing_is_left_of_a_gateway_that_is_killed(tmp_path: Path) -> None:
    with serving(settings(tmp_path, workers={"orphan_s": 0})) as gateway:
        answer(gateway, "sound", "start 600", "orphan 600")
        await_true(lambda: commands(gateway).count("sleep\x00600\x00") == 2, gateway)
        pids, told = descendants(gateway.process.pid), commands(gateway)
        assert any("router.payloads.bulk" in each for each in told)
        pidfds = [os.pidfd_open(pid) for pid in pids]
        gateway.process.send_signal(signal.SIGKILL)
        for pidfd in pidfds:
            ended, _, _ = select.select([pidfd], [], [], GONE_S)
            os.close(pidfd)
            assert ended, told


def test_nothing_is_left_of_a_worker_whose_keeper_is_killed_and_it_is_started_again(tmp_path: Path) -> None:
    with serving(settings(tmp_path)) as gateway:
        answer(gateway, "sound", "start 600", "orphan 600")
        await_true(lambda: commands(gateway).count("sleep\x00600\x00") == 2, gateway)
        slices = json.loads(gateway.get("/v2/status")[1])["slices"]
        (worker,) = [each["pid"] for each in slices if each["name"] == "b"]
        (keeper,) = [pid for pid in children(gateway.process.pid) if worker in children(pid)]
        pidfds = [os.pidfd_open(pid) for pid in (keeper, *descendants(keeper))]
        assert len(pidfds) == 4
        os.kill(keeper, signal.SIGKILL)
        for pidfd in pidfds:
            ended, _, _ = select.select([pidfd], [], [], GONE_S)
            os.close(pidfd)
            assert ended
        await_true(lambda: ask(gateway, "sound", "say 0.5")[0] == 200, gateway)


def test_a_worker_above_its_memory_is_ended_and_other_slices_serve_on(tmp_path: Path) -> None:
    with serving(settings(tmp_path, workers={"memory_mb": 300})) as gateway:
        assert answer(gateway, "wild", *["hold 10"] * 4) == [0.0] * 4
        with suppress(AssertionError):  # it may be ended before it answers
            answer(gateway, "wild", "hold 500", *["say 0"] * 3)
        await_true(lambda: "more than workers.memory_mb, 300" in gateway.output, gateway)
        assert answer(gateway, "sound", "say 0.25") == [0.25]
        await_true(lambda: ask(gateway, "wild", *["say 1"] * 4)[0] == 200, gateway)
        assert "the worker of slice a, with wild, was ended: its processes held" in gateway.output
        metrics = gateway.read_metrics()
        assert 'penstock_worker_memory_ended_total{model="wild"} 1\n' in metrics
        assert 'penstock_worker_restarts_total{slice="b"} 0\n' in metrics


def test_a_refused_answer_fails_its_request_alone_and_is_not_kept(tmp_path: Path) -> None:
    with serving(settings(tmp_path, cache={})) as gateway:
        orders = ["say 0.5", "say nan", "say 1", "say 0"]
        for _ in range(2):
            with ThreadPoolExecutor(4) as clients:  # the four of a batch
                told = [*clients.map(lambda order: ask(gateway, "wild", order), orders)]
            assert [status for status, _ in told] == [200, 500, 200, 200]
            assert "the answer of wild is refused: row 0 of output 'Y' holds nan" in str(told[1][1]["error"])
            orders = ["say 0.25", "say nan", "say 0.75", "say 0.125"]  # the same bad one, among new ones
        status, body = ask(gateway, "wild", "say 0.1", "say 0.2", "say 7", "say 0.3")
        assert status == 500
        expected = "row 2 of output 'Y' holds 7, expected finite, at least 0, at most 1"
        assert expected in str(body["error"])
        assert answer(gateway, "sound", "say 7") == [7.0]  # it has no guard
        metrics = gateway.read_metrics()
        assert 'penstock_output_refused_total{model="wild",output="Y"} 3\n' in metrics
        assert 'penstock_batch_rows_count{model="wild",variant="default"} 3\n' in metrics


def test_a_client_hears_little_of_what_a_model_raises(tmp_path: Path) -> None:
    with serving(settings(tmp_path)) as gateway:
        status, body = ask(gateway, "sound", "raise /srv/private/weights.bin")
        assert status == 500
        said = str(body["error"])
        assert "ValueError: cannot open weights.bin: xxx" in said
        assert "/srv" not in said
        assert len(said) < 300
        await_true(lambda: "/srv/private/weights.bin" in gateway.output, gateway)
