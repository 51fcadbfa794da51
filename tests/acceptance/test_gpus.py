"""A real gateway with slices on GPUs, on stand-ins of the driver's library and of the MPS daemon."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.acceptance.gateway import PATIENT_MS, ROOT, GatewayProcess, await_true, serving

pytestmark = pytest.mark.slow

SLICING = ROOT / "tests" / "runtime" / "slicing"
WHOLE_GPU = 0xFFFFFFFF


@pytest.fixture
def faults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine of two H200s, one of them hot. Lines in this file are faults: "GPU XID instance"."""
    folder = tmp_path / "machine"
    folder.mkdir()
    library = folder / "libnvidia-ml.so.1"
    subprocess.run(["gcc", "-shared", "-fPIC", "-DNOW", "-o", library, SLICING / "nvml.c"], check=True)
    control = folder / "nvidia-cuda-mps-control"
    control.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "{SLICING / "mps_twin.py"}" "$@"\n')
    control.chmod(0o755)
    there = folder / "faults"
    monkeypatch.setenv("LD_LIBRARY_PATH", str(folder))
    monkeypatch.setenv("PATH", f"{folder}:{Path(sys.executable).parent}:/usr/bin:/bin")
    monkeypatch.setenv("NVML_GPUS", "2")
    monkeypatch.setenv("NVML_THROTTLE", str(0x20))
    monkeypatch.setenv("NVML_XIDS", str(there))
    monkeypatch.setenv("MPS_CLIENTS", str(there.with_name("clients")))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return there


@pytest.fixture
def gateway(faults: Path, tmp_path: Path) -> Iterator[GatewayProcess]:
    """With a slice of each of the two GPUs."""
    config = tmp_path / "penstock.yaml"
    settings = {
        "slices": [{"name": "g", "device": "all", "share": "mps:30"}],
        "models": [{"path": str(ROOT / "models" / "simple"), "slo_ms": PATIENT_MS}],
        "profiles": str(tmp_path / "profiles"),
        "limits": {"stall_s": 1},
    }
    config.write_text(yaml.safe_dump(settings))
    with serving(config) as found:
        yield found


def status(gateway: GatewayProcess) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(gateway.get("/v2/status")[1])
    return found


def states(gateway: GatewayProcess) -> dict[str, tuple[str, int]]:
    """State and restarts of each slice."""
    return {each["name"]: (each["state"], each["restarts"]) for each in status(gateway)["slices"]}


def answers(gateway: GatewayProcess) -> bool:
    example = gateway.get("/v2/models/simple/example")[1]
    return gateway.post("/v2/models/simple/infer", example)[0] == 200


def test_faults_end_a_worker_or_lose_a_gpu_and_the_other_gpu_answers(
    gateway: GatewayProcess, faults: Path
) -> None:
    await_true(lambda: states(gateway) == {"g-1": ("ready", 0), "g-2": ("ready", 0)}, gateway)
    assert answers(gateway)

    faults.write_text(f"1 31 {WHOLE_GPU}\n")
    await_true(lambda: states(gateway)["g-2"] == ("ready", 1), gateway)
    assert states(gateway)["g-1"] == ("ready", 0)

    with faults.open("a") as file:
        file.write(f"1 48 {WHOLE_GPU}\n")
    await_true(lambda: states(gateway)["g-2"][0] == "lost with its device", gateway)
    assert answers(gateway)
    assert "GPU 1: XID 48, double bit ECC error; reset it with `nvidia-smi -i 1 -r`" in gateway.output

    told = {each["uuid"]: (each["state"], each["reason"]) for each in status(gateway)["gpus"]}
    assert told["GPU-0"] == ("throttled", "heat")
    assert told["GPU-1"][0] == "lost"
    metrics = gateway.read_metrics()
    assert 'penstock_gpu_usable{gpu_uuid="GPU-1"} 0\n' in metrics
    assert 'nv_gpu_power_limit{gpu_uuid="GPU-0"} 700.0\n' in metrics
    assert gateway.stop() == 0


def test_the_daemon_ends_the_work_of_a_worker_that_is_stuck(gateway: GatewayProcess, faults: Path) -> None:
    clients = faults.with_name("clients")
    pids = [int(each["pid"]) for each in status(gateway)["slices"]]
    clients.write_text("\n".join(map(str, pids)))
    os.kill(pids[0], signal.SIGSTOP)
    example = gateway.get("/v2/models/simple/example")[1]

    def is_ended_and_back() -> bool:
        """Have both slices asked, so that a stop is noticed: by a late batch, or by a late measurement."""
        gateway.post("/v2/models/simple/infer", example)
        return states(gateway)["g-1"] == ("ready", 1)

    await_true(is_ended_and_back, gateway)
    assert clients.read_text().split() == [str(pids[1])]
    assert states(gateway)["g-2"] == ("ready", 0)
    assert re.search("the worker of slice g-1 was ended: (a )?simple", gateway.output)
