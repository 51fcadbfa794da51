"""Clients that ask for long batches hold up neither the other models of their slices nor end a worker."""

import json
import threading
import time
from pathlib import Path

import pytest
import yaml

from tests.acceptance.gateway import PATIENT_MS, ROOT, GatewayProcess, serving
from tests.acceptance.test_isolation import workers

pytestmark = pytest.mark.slow

STALL_S = 1.0
DELAY_MS = 450
ASKED_S = 8.0
PAUSE_S = 0.02
SLO_MS = 100


def settings(folder: Path) -> Path:
    """`simple`, of an SLO of 100 ms, and `identity`, which takes its time, on two slices."""
    path = folder / "penstock.yaml"
    slos_ms = {"simple": SLO_MS, "identity": PATIENT_MS}
    entries = [{"path": str(ROOT / "models" / name), "slo_ms": slo_ms} for name, slo_ms in slos_ms.items()]
    slices = [{"name": "a", "cores": 1}, {"name": "b", "cores": 1}]
    path.write_text(yaml.safe_dump({"slices": slices, "models": entries, "limits": {"stall_s": STALL_S}}))
    return path


def ask(gateway: GatewayProcess, model: str, question: dict[str, object]) -> tuple[int, float]:
    """The status, and how long the answer took."""
    began_s = time.monotonic()
    status, _ = gateway.post(f"/v2/models/{model}/infer", json.dumps(question).encode())
    return status, time.monotonic() - began_s


def identity(delay_ms: int) -> dict[str, object]:
    tensor = {"name": "INPUT0", "shape": [1, 1], "datatype": "INT32", "data": [4]}
    return {"inputs": [tensor], "parameters": {"execute_delay_ms": delay_ms}}


SIMPLE: dict[str, object] = {
    "inputs": [
        {"name": name, "shape": [1, 16], "datatype": "INT32", "data": list(range(16))}
        for name in ("INPUT0", "INPUT1")
    ]
}


def test_clients_that_ask_for_long_batches_on_all_slices_leave_one_to_who_is_in_a_hurry(
    tmp_path: Path,
) -> None:
    with serving(settings(tmp_path)) as gateway:
        slow: list[tuple[int, float]] = []
        over = threading.Event()

        def delay(by_ms: int) -> None:
            while not over.is_set():
                slow.append(ask(gateway, "identity", identity(by_ms)))

        quick = [ask(gateway, "simple", SIMPLE) for _ in range(20)]
        clients = [threading.Thread(target=delay, args=(DELAY_MS + number,)) for number in range(3)]
        for client in clients:  # of other values, which share no batch
            client.start()
        end_s = time.monotonic() + ASKED_S
        while time.monotonic() < end_s:
            quick.append(ask(gateway, "simple", SIMPLE))
            time.sleep(PAUSE_S)
        over.set()
        for client in clients:
            client.join()
        assert {status for status, _ in slow} == {200}
        assert len(slow) >= ASKED_S / 2, "one after the other"
        late = [took_s for status, took_s in quick if status != 200 or took_s > SLO_MS / 1000]
        assert len(late) < 0.1 * len(quick), late
        assert len(quick) > ASKED_S / SLO_MS * 1000 / 2
        assert {each["restarts"] for each in workers(gateway).values()} == {0}


def test_a_delay_that_its_deadline_has_no_room_for_is_refused_at_once(tmp_path: Path) -> None:
    with serving(settings(tmp_path)) as gateway:
        question = identity(DELAY_MS)
        question["parameters"] = {"execute_delay_ms": DELAY_MS, "timeout": 200_000}
        status, body = gateway.post("/v2/models/identity/infer", json.dumps(question).encode())
        told = json.loads(body)
        assert (status, told["reason"]) == (503, "deadline_unreachable")
        assert f"as it asks for {DELAY_MS} ms itself" in told["error"]
