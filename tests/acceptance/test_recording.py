"""A gateway records what it was sent, and what it leaves behind can be replayed, however it ended."""

import json
import re
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as grpc_client

from router.settings import load_settings
from serving.recording import read
from serving.simulation.traffic.replay import recorded_files, replay
from tests.acceptance.gateway import PATIENT_MS, ROOT, GatewayProcess, await_true
from tests.acceptance.test_lifecycle import identity, simple

pytestmark = pytest.mark.slow

CONFIG = f"""
slices: [{{name: a}}]
models:
  - {{path: {ROOT}/models/simple, slo_ms: {PATIENT_MS}}}
  - {{path: {ROOT}/models/identity, slo_ms: 25000}}
tenants: [{{name: shop}}]
recording: {{folder: kept, file_mb: 1, files: 4}}
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "penstock.yaml"
    path.write_text(CONFIG)
    return path


def post_all(gateway: GatewayProcess) -> None:
    """One request of each kind, one after the other."""
    status, _ = gateway.post("/v2/models/simple/infer", simple())
    assert status == 200
    status, _ = gateway.post("/v2/models/simple/infer", simple(), {"x-tenant": "shop"})
    assert status == 200
    hasty = {"x-request-timeout-ms": "0.05"}
    status, _ = gateway.post("/v2/models/identity/infer", identity(100), hasty)
    assert status in (429, 503, 504)
    pinned = json.loads(simple()) | {"parameters": {"variant": "default"}}
    status, _ = gateway.post("/v2/models/simple/infer", json.dumps(pinned).encode())
    assert status == 200
    status, _ = gateway.post("/v2/models/simple/infer", b"{}")
    assert status == 400  # it never reaches the scheduler
    with grpc_client.InferenceServerClient(gateway.grpc) as client:
        tensor = grpc_client.InferInput("INPUT0", [3, 1], "FP32")
        tensor.set_data_from_numpy(np.zeros((3, 1), np.float32))
        client.infer("identity", [tensor], timeout=19_000_000)


SENT = [
    ("simple", "default", "", 1, 0),
    ("simple", "shop", "", 1, 0),
    ("identity", "default", "", 1, 50),
    ("simple", "default", "default", 1, 0),
    ("identity", "default", "", 3, 19_000_000),
]
"""Model, tenant, pinned variant, rows, timeout in us."""
APART_US = 3_000_000
"""Two clocks are read one after the other at the start, and the machine may stand still between."""


def await_recorded(gateway: GatewayProcess, count: int) -> None:
    await_true(lambda: f"penstock_recorded_requests_total {count}\n" in gateway.read_metrics(), gateway)


def test_what_was_sent_is_in_the_recording_of_a_gateway_that_was_killed(config: Path, tmp_path: Path) -> None:
    gateway = GatewayProcess.start(config, tmp_path / "log")
    try:
        before_us = time.time_ns() // 1000
        post_all(gateway)
        after_us = time.time_ns() // 1000
        await_recorded(gateway, len(SENT))
    finally:
        gateway.stop(signal.SIGKILL)
    assert f"arrivals recorded in {tmp_path}/kept" in gateway.output
    (path,) = recorded_files(tmp_path / "kept")
    recording = read(path)
    rows = recording.arrivals.tolist()
    found = [(*recording.flows[flow][:3], count, timeout_us) for _, timeout_us, flow, count, _ in rows]
    assert found == SENT
    instants_us = [recording.start_unix_us + at_us for at_us, *_ in rows]
    assert instants_us == sorted(instants_us)
    assert before_us - APART_US <= instants_us[0] <= instants_us[-1] <= after_us + APART_US
    assert {flow.model: flow.slo_us for flow in recording.flows} == {
        "simple": PATIENT_MS * 1000,
        "identity": 25_000_000,
    }


def test_the_files_of_two_runs_replay_as_one_series(config: Path, tmp_path: Path) -> None:
    for _ in range(2):
        gateway = GatewayProcess.start(config, tmp_path / "log")
        try:
            post_all(gateway)
            dropped = re.search(r"penstock_recording_dropped_total (\d+)", gateway.read_metrics())
            assert dropped is not None
            assert dropped[1] == "0"
        finally:
            assert gateway.stop() == 0  # what is not in the file yet is written at the end
    files = recorded_files(tmp_path / "kept")
    assert len(files) == 2
    played = list(replay(files, load_settings(config).models))
    assert [(each.model, each.tenant, each.rows) for each in played] == [
        (0 if model == "simple" else 1, tenant, rows) for model, tenant, _, rows, _ in SENT
    ] * 2
    assert [each.slack_us for each in played] == [None, None, 50, None, 19_000_000] * 2
    assert played[0].at_us == 0
