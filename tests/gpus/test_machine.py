"""What the machine of stand-ins promises: its programs agree with each other at each moment."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.gpus.machine import ROOT, Machine, standing_in

pytestmark = [pytest.mark.live, pytest.mark.slow]

FLEET = ("h200", "h200:", "a100:3g.20gb@4#7", "h200/used=140000/mode=2")
TELL = """
import dataclasses, json
from serving.runtime.slicing.inventory import take_inventory
print(json.dumps(dataclasses.asdict(take_inventory())))
"""


@pytest.fixture
def machine() -> Iterator[Machine]:
    with standing_in(*FLEET) as machine:
        yield machine


def run(machine: Machine, *argv: str, **more: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, **machine.environment(), "PYTHONPATH": str(ROOT), **more}
    return subprocess.run(argv, env=environment, capture_output=True, text=True, check=False, timeout=60)


def smi(machine: Machine, index: int, *argv: str) -> tuple[int, str]:
    done = run(machine, "nvidia-smi", "mig", "-i", str(index), *argv)
    return done.returncode, done.stdout + done.stderr


def gpus(machine: Machine) -> list[dict[str, Any]]:
    """The GPUs as NVML tells them."""
    found: list[dict[str, Any]] = json.loads(run(machine, sys.executable, "-c", TELL).stdout)["gpus"]
    return found


def test_an_instance_that_nvidia_smi_makes_is_one_that_nvml_lists(machine: Machine) -> None:
    assert smi(machine, 1, "-lgi") == (6, "No GPU instances found: Not Found\n")
    code, said = smi(machine, 1, "-cgi", "9:4,14:0", "-C")
    assert (code, "Successfully created GPU instance ID 1 on GPU  1" in said) == (0, True)
    (first, second) = gpus(machine)[1]["mig_devices"]
    assert (first["uuid"], first["gpu_instance"], first["profile"]) == ("MIG-1-1", 1, "3g.71gb")
    assert (second["uuid"], second["sms"], second["memory_bytes"]) == ("MIG-1-2", 32, 33024 << 20)
    assert machine.layouts == [[], ["2g.35gb@0", "3g.71gb@4"], ["3g.20gb@4"], []]
    assert smi(machine, 1, "-dci", "-gi", "1")[0] == 0
    assert [each["uuid"] for each in gpus(machine)[1]["mig_devices"]] == ["MIG-1-2"]
    assert smi(machine, 1, "-dgi", "-gi", "1")[0] == 0
    assert "3g.71gb" not in smi(machine, 1, "-lgi")[1]
    assert machine.take_ran() == ["mig -i 1 -cgi 9:4,14:0 -C", "mig -i 1 -dci -gi 1", "mig -i 1 -dgi -gi 1"]
    assert machine.take_ran() == []


def test_what_a_process_computes_on_is_not_destroyed_and_its_mode_not_switched(machine: Machine) -> None:
    wait = "import sys; print('on', flush=True); sys.stdin.read()"

    def computing(uuid: str) -> "subprocess.Popen[str]":
        environment = {**os.environ, **machine.environment(), "CUDA_VISIBLE_DEVICES": uuid}
        process = subprocess.Popen(
            [sys.executable, "-c", wait], env=environment, stdin=-1, stdout=-1, text=True
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "on\n"
        return process

    with computing("MIG-2-7") as on_instance, computing("GPU-0") as on_gpu:
        assert smi(machine, 2, "-dci", "-gi", "7")[0] == 19
        assert run(machine, "nvidia-smi", "-i", "0", "-mig", "1").returncode == 19
        assert len(machine.processes()) == 2
        on_instance.communicate()
        on_gpu.communicate()
    assert smi(machine, 2, "-dci", "-gi", "7")[0] == 0
    assert run(machine, "nvidia-smi", "-i", "0", "-mig", "1").returncode == 0
    assert gpus(machine)[0]["mig"] is True
    assert smi(machine, 3, "-cgi", "9:4", "-C") == (6, "No MIG-enabled devices found.\n")


def test_a_gpu_that_is_gone_is_in_no_list_and_the_others_keep_their_names(machine: Machine) -> None:
    machine.set(0, "-h200")
    there = gpus(machine)
    assert [each["uuid"] for each in there] == ["GPU-1", "GPU-2", "GPU-3"]
    assert there[2]["memory_used_bytes"] == 140000 << 20
    assert smi(machine, 0, "-cgi", "0:0", "-C")[0] == 0
    assert machine.layouts[1] == ["7g.141gb@0"]
