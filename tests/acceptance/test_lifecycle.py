"""How `penstock serve` starts, is disturbed and ends, seen from outside."""

import asyncio
import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as grpc_client
from tritonclient.utils import InferenceServerException

from loadtests.harness.gateway import free_ports
from serving.values.specs import Limits
from tests.acceptance.gateway import PATIENT_MS, PORTS, ROOT, SAMPLE, TALK_S, GatewayProcess, await_true
from tests.acceptance.holding import LIMITS, held, identity_to_hold

pytestmark = pytest.mark.slow

CONFIG = f"""
slices: [{{name: a}}]
models:
  # Their own SLOs are of milliseconds: a machine that stands still for longer makes 504 the right answer
  # to what was queued, which is not the loss meant.
  - {{path: {ROOT}/models/simple, slo_ms: {PATIENT_MS}}}
  - {{path: identity, slo_ms: {PATIENT_MS}}}
cache: false
{LIMITS}
"""
GRACE_S = Limits().drain_grace_s


def written(folder: Path) -> Path:
    path = folder / "penstock.yaml"
    path.write_text(CONFIG)
    identity_to_hold(folder / "identity")
    return path


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return written(tmp_path)


@pytest.fixture
def gateway(config: Path, tmp_path: Path) -> Iterator[GatewayProcess]:
    started = GatewayProcess.start(config, tmp_path / "log")
    yield started
    started.kill()
    started.process.wait()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the gateway that is `kept`."""
    return tmp_path_factory.mktemp("kept")


@pytest.fixture(scope="module")
def kept(home: Path) -> Iterator[GatewayProcess]:
    """One gateway for the tests that leave it as it was."""
    started = GatewayProcess.start(written(home), home / "log")
    yield started
    assert started.stop() == 0, started.output


def identity(delay_ms: int) -> bytes:
    tensor = {"name": "INPUT0", "shape": [1, 2], "datatype": "INT32", "data": [4, 2]}
    return json.dumps({"inputs": [tensor], "parameters": {"execute_delay_ms": delay_ms}}).encode()


def simple() -> bytes:
    numbers = list(range(16))
    inputs = [
        {"name": name, "shape": [1, 16], "datatype": "INT32", "data": numbers}
        for name in ("INPUT0", "INPUT1")
    ]
    return json.dumps({"inputs": inputs}).encode()


def penstock(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "router.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=TALK_S, check=False)


SLOS_MS = {"digits": 25, "simple": 25, "mlp": 50, "identity": 100, "minilm": 250}
"""Of the sample settings, which say those of `digits` and `minilm`; the others are of their model.yaml."""


def test_the_sample_settings_are_served_as_they_are(tmp_path: Path) -> None:
    gateway = GatewayProcess.start(SAMPLE, tmp_path / "log")
    try:
        models = json.loads(gateway.get("/v2/status")[1])["models"]
        assert {each["name"]: each["slo_us"] / 1000 for each in models} == SLOS_MS
        await_true(lambda: is_answered(gateway), gateway)
    finally:
        assert gateway.stop() == 0, gateway.output


def is_answered(gateway: GatewayProcess) -> bool:
    """Or refused with a reason, as is right where the machine is too slow for the SLO of `simple`."""
    status, body = gateway.post("/v2/models/simple/infer", simple())
    told = json.loads(body)
    if status == 200:
        assert told["outputs"][0]["data"] == list(range(0, 32, 2))
        return True
    assert status in (429, 503, 504), body
    assert told["reason"]
    return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_ready_turns_false_accepted_requests_are_answered_exit_0(
    gateway: GatewayProcess, config: Path, number: signal.Signals
) -> None:
    answers: list[tuple[int, bytes]] = []
    asking = threading.Thread(
        target=lambda: answers.append(gateway.post("/v2/models/identity/infer", identity(0)))
    )
    with held(config.with_name("identity")):
        asking.start()
        while not gateway.open_requests():
            time.sleep(0.02)
        told = time.monotonic()
        gateway.process.send_signal(number)
        while "draining" not in gateway.output:
            time.sleep(0.02)
        assert status_in_grace(gateway, "/v2/health/ready", told) != 200
        assert status_in_grace(gateway, "/v2/health/live", told) in (200, CLOSED)
        while status_in_grace(gateway, "/v2/health/live", told) != CLOSED:
            time.sleep(0.02)
        assert gateway.process.poll() is None
    assert gateway.process.wait(TALK_S) == 0
    asking.join()
    assert [status for status, _ in answers] == [200]
    assert "penstock has ended\n" in gateway.output


CLOSED = 0


def status_in_grace(gateway: GatewayProcess, path: str, told: float) -> int:
    """CLOSED where it listens no more, which it does at least for the grace."""
    try:
        return gateway.get(path)[0]
    except OSError:
        assert time.monotonic() - told > GRACE_S
        return CLOSED


def test_a_second_signal_ends_the_gateway_at_once_with_1(gateway: GatewayProcess, config: Path) -> None:
    asking = threading.Thread(target=lambda: ask_and_lose(gateway))
    worker = worker_of(gateway)
    with held(config.with_name("identity")):
        asking.start()
        while not gateway.open_requests():
            time.sleep(0.02)
        gateway.process.send_signal(signal.SIGINT)
        while "draining" not in gateway.output:
            time.sleep(0.02)
        assert gateway.stop(signal.SIGINT) == 1
        asking.join()
    assert gateway.output.endswith("penstock ends at once\n")
    await_gone(worker)


def ask_and_lose(gateway: GatewayProcess) -> None:
    with contextlib.suppress(OSError, http.client.HTTPException):
        gateway.post("/v2/models/identity/infer", identity(0))


def worker_of(gateway: GatewayProcess) -> int:
    (worker,) = json.loads(gateway.get("/v2/status")[1])["slices"]
    return int(worker["pid"])


def await_gone(pid: int) -> None:
    end = time.monotonic() + TALK_S
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.parametrize("orphan_s", [0, 0.5])
def test_no_worker_outlives_a_gateway_that_is_killed_for_longer_than_it_may(
    config: Path, tmp_path: Path, orphan_s: float
) -> None:
    config.write_text(f"{CONFIG}workers: {{orphan_s: {orphan_s}}}\n")
    gateway = GatewayProcess.start(config, tmp_path / "log")
    worker = worker_of(gateway)
    gateway.process.kill()
    gateway.process.wait()
    await_gone(worker)


def test_the_next_gateway_goes_on_with_the_workers_of_one_that_was_killed(
    config: Path, tmp_path: Path
) -> None:
    gateway = GatewayProcess.start(config, tmp_path / "log")
    worker = worker_of(gateway)
    gateway.process.kill()
    gateway.process.wait()
    gateway = GatewayProcess.start(config, tmp_path / "again")
    assert "slice a: the worker of an earlier gateway was taken over" in gateway.output
    assert worker_of(gateway) == worker
    assert gateway.post("/v2/models/simple/infer", simple())[0] == 200
    metrics = gateway.read_metrics()
    assert 'penstock_model_loads_total{model="simple"} 0\n' in metrics
    assert 'penstock_model_takeovers_total{model="simple"} 1\n' in metrics
    assert gateway.stop() == 0
    await_gone(worker)


def test_a_taken_port_is_one_clear_line_and_exit_1(config: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        for option in PORTS:
            ports = dict.fromkeys(PORTS, "0") | {option: port}
            ended = penstock(
                "serve", "--config", str(config), *(word for pair in ports.items() for word in pair)
            )
            assert ended.returncode == 1
            assert f"127.0.0.1:{port}" in ended.stdout + ended.stderr
            assert "Traceback" not in ended.stderr


def test_a_bad_settings_file_is_refused_with_every_mistake_and_its_place(config: Path) -> None:
    wrong = CONFIG.replace("models/simple", "models/simpel").replace(LIMITS, "limits: {queue_row: 5}")
    config.write_text(wrong)
    for verb in (["serve", "--config"], ["check"]):
        ended = penstock(*verb, str(config))
        assert ended.returncode == 1
        assert f"{config}:6:12: models[0].path" in ended.stderr
        assert "did you mean" in ended.stderr
        assert f"{config}:9:10: limits.queue_row" in ended.stderr


def test_check_says_what_would_be_served(config: Path) -> None:
    ended = penstock("check", str(config))
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "simple" in ended.stdout


def test_status_shows_models_and_slices_and_says_when_there_is_no_gateway(kept: GatewayProcess) -> None:
    kept.post("/v2/models/simple/infer", simple())
    ended = penstock("status", "--once", "--url", f"http://{kept.rest}")
    assert ended.returncode == 0
    assert "simple" in ended.stdout
    assert "ready" in ended.stdout
    (free,) = free_ports(1)
    ended = penstock("status", "--once", "--url", f"http://127.0.0.1:{free}")
    assert ended.returncode == 1
    assert "penstock serve" in ended.stderr


def test_a_client_deadline_fires_on_time_while_the_model_runs(kept: GatewayProcess, home: Path) -> None:
    with held(home / "identity"), grpc_client.InferenceServerClient(kept.grpc) as client:
        start = time.monotonic()
        hasty = {"x-request-timeout-ms": "2000"}  # as long as a batch may take to begin
        status, body = kept.post("/v2/models/identity/infer", identity(0), hasty)
        assert (status, json.loads(body)["reason"]) == (504, "deadline_running")
        assert 2 <= time.monotonic() - start < 10
        tensor = grpc_client.InferInput("INPUT0", [1, 1], "FP32")
        tensor.set_data_from_numpy(np.zeros((1, 1), np.float32))
        for how in ({"client_timeout": 0.2}, {"timeout": 200_000}):
            with pytest.raises(InferenceServerException) as caught:
                client.infer("identity", [tensor], **how)
            assert caught.value.status() == "StatusCode.DEADLINE_EXCEEDED"


def samples(gateway: GatewayProcess) -> dict[str, float]:
    """The metrics, by name and labels."""
    lines = [line for line in gateway.read_metrics().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_metrics_count_what_happened(kept: GatewayProcess) -> None:
    before = samples(kept)
    for _ in range(3):
        assert kept.post("/v2/models/simple/infer", simple())[0] == 200
    assert kept.post("/v2/models/simple/infer", b"{}")[0] == 400
    assert kept.post("/v2/models/nobody/infer", b"{}")[0] == 404
    after = samples(kept)
    own = 'model="simple",tenant="default"'
    nobody = 'model="unknown",tenant="default",outcome="rejected",reason="unknown_model"'
    for name, count in (
        (f'penstock_requests_total{{{own},outcome="completed",reason="ok"}}', 3),
        (f'penstock_requests_total{{{own},outcome="rejected",reason="bad_input"}}', 1),
        (f"penstock_requests_total{{{nobody}}}", 1),
        (f"penstock_request_duration_seconds_count{{{own}}}", 3),
        ('penstock_request_parse_seconds_count{model="simple"}', 3),
        ('nv_inference_request_success{model="simple",version="1"}', 3),
        ('penstock_batch_rows_sum{model="simple",variant="default"}', 3),
    ):
        assert after[name] - before.get(name, 0) == count, name


def test_the_phases_of_an_answer_fit_into_what_its_client_waited_and_add_up_in_the_statistics(
    kept: GatewayProcess,
) -> None:
    host, port = kept.rest.split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=TALK_S)
    for _ in range(5):
        asked_s = time.perf_counter()
        connection.request("POST", "/v2/models/simple/infer", simple())
        answer = connection.getresponse()
        assert (answer.status, len(answer.read()) > 0) == (200, True)
        waited_ms = (time.perf_counter() - asked_s) * 1000
        timing = answer.headers["Server-Timing"]
        phases_ms = {name: float(span) for name, span in (each.split(";dur=") for each in timing.split(", "))}
        assert all(phases_ms[name] > 0 for name in ("request", "input", "infer", "output", "answer"))
        assert sum(phases_ms.values()) <= waited_ms
    connection.close()
    (model,) = json.loads(kept.get("/v2/models/simple/stats")[1])["model_stats"]
    spans_ns = {kind: each["ns"] for kind, each in model["inference_stats"].items()}
    parts = ("queue", "compute_input", "compute_infer", "compute_output")
    assert sum(spans_ns[part] for part in parts) == spans_ns["success"] > 0
    text = kept.read_metrics()
    for part in parts:
        name = f'nv_inference_{part}_duration_us{{model="simple",version="1"}}'
        assert f"{name} {spans_ns[part] // 1000}\n" in text


async def _flood(gateway: GatewayProcess, statuses: Counter[int], stop: asyncio.Event) -> None:
    """Ask on one connection until it is to stop, and count each status, 0 for no answer."""
    host, port = gateway.rest.split(":")
    body = simple()
    head = f"POST /v2/models/simple/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    reader, writer = await asyncio.open_connection(host, int(port))
    while not stop.is_set():
        writer.write(head.encode() + body)
        try:
            answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), TALK_S)
            length = int(answer.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            await reader.readexactly(length)
            statuses[int(answer.split()[1])] += 1
        except (asyncio.IncompleteReadError, TimeoutError):
            statuses[0] += 1
            break
        await asyncio.sleep(0.002)
    writer.close()


async def _answered(statuses: Counter[int], count: int) -> None:
    while statuses[200] < count:
        assert 0 not in statuses
        await asyncio.sleep(0.02)


async def test_kill_9_of_the_worker_under_load_requests_wait_for_the_next_one(
    gateway: GatewayProcess,
) -> None:
    """The SLO leaves time for a restart, so none is refused, those in the killed batch included."""
    (worker,) = json.loads(gateway.get("/v2/status")[1])["slices"]
    statuses, stop = Counter[int](), asyncio.Event()
    clients = [asyncio.create_task(_flood(gateway, statuses, stop)) for _ in range(16)]
    await _answered(statuses, 200)
    os.kill(worker["pid"], signal.SIGKILL)
    back = worker
    while (back["state"], back["restarts"]) != ("ready", 1):
        (back,) = json.loads((await asyncio.to_thread(gateway.get, "/v2/status"))[1])["slices"]
        assert back["restarts"] <= 1
    await _answered(statuses, statuses[200] + 200)
    stop.set()
    await asyncio.gather(*clients)
    assert set(statuses) == {200}
