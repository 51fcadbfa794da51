"""What `GpuReader` reads, with NVIDIA's Python binding over a stand-in for the driver's library."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.live, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[3]
READ = """
import dataclasses, json, os, sys
from serving.runtime.slicing.health import GpuReader
reader, found = GpuReader(), []
for changes in json.loads(sys.argv[1]):
    for line in changes.pop("xids", ()):
        with open(os.environ["NVML_XIDS"], "a") as file:
            file.write(line + "\\n")
    os.environ.update(changes)
    found.append([dataclasses.asdict(each) for each in reader.read()])
reason = reader.reason
reader.close()
print(json.dumps([found, reason]))
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nvml")
    output, source = folder / "libnvidia-ml.so.1", Path(__file__).with_name("nvml.c")
    flags = ["-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-DNOW"]
    subprocess.run(["gcc", *flags, "-o", str(output), str(source)], check=True)
    return folder


def read(
    library: Path | None, xids: Path, *moments: dict[str, Any]
) -> tuple[list[list[dict[str, Any]]], str]:
    """The readings of a process at these moments, with what changes before each; why there are none."""
    found = {"PYTHONPATH": str(ROOT), "LD_LIBRARY_PATH": str(library or ""), "NVML_XIDS": str(xids)}
    done = subprocess.run(
        [sys.executable, "-c", READ, json.dumps(moments)],
        env={**os.environ, "NVML_GPUS": "2", **found}, text=True, stdout=subprocess.PIPE, check=True,
    )  # fmt: skip
    readings, reason = json.loads(done.stdout)
    return readings, reason


def test_each_fault_is_read_once_for_its_gpu_and_its_mig_device(library: Path, tmp_path: Path) -> None:
    whole, instance = "1 31 4294967295", "0 13 20"
    readings, _ = read(
        library, tmp_path / "xids", {"NVML_MIG": "1"}, {"xids": [whole, instance]}, {}, {"xids": [whole]}
    )
    heard = [[gpu["xids"] for gpu in each] for each in readings]
    page = [{"number": 31, "instance": ""}]
    assert heard == [[[], []], [[{"number": 13, "instance": "MIG-0-2"}], page], [[], []], [[], page]]


def test_memory_clocks_and_power_are_read_and_silence_is_none(library: Path, tmp_path: Path) -> None:
    readings, _ = read(
        library,
        tmp_path / "xids",
        {"NVML_PIDS": "7,8", "NVML_THROTTLE": str(0x20 | 0x4), "NVML_ECC": "3", "NVML_ROWS": "pending"},
        {"NVML_FAIL": "nvmlDeviceGetTotalEccErrors:3,nvmlDeviceGetPowerUsage:3"},
    )
    first, second = (each[0] for each in readings)
    assert first["process_bytes"] == {"7": 600 << 20, "8": 600 << 20}
    assert (first["throttled"], first["uncorrected"], first["rows_pending"]) == (
        ["heat", "power limit"],
        3,
        True,
    )
    assert (first["power_w"], first["power_limit_w"], first["energy_j"]) == (76.543, 700.0, 5.0)
    assert first["temperature_c"] == 41
    assert (second["uncorrected"], second["power_w"], second["power_limit_w"]) == (None, None, 700.0)


def test_a_gpu_off_the_bus_is_lost_and_comes_back(library: Path, tmp_path: Path) -> None:
    lost = {"NVML_FAIL": "nvmlDeviceGetMemoryInfo:15"}
    readings, _ = read(library, tmp_path / "xids", {}, lost, {"NVML_FAIL": ""})
    assert [[gpu["lost"] for gpu in each] for each in readings] == [[False] * 2, [True] * 2, [False] * 2]
    assert [gpu["uuid"] for gpu in readings[1]] == ["GPU-0", "GPU-1"]


def test_a_driver_that_reports_no_faults_is_told_from_one_without_any(library: Path, tmp_path: Path) -> None:
    readings, _ = read(library, tmp_path / "xids", {"NVML_FAIL": "nvmlDeviceRegisterEvents:3"})
    assert [gpu["xids"] for gpu in readings[0]] == [None, None]


def test_without_a_library_the_reason_is_said(tmp_path: Path) -> None:
    readings, reason = read(None, tmp_path / "xids", {})
    assert readings == [[]]
    assert reason.startswith("NVML: ")


def test_a_driver_that_was_reloaded_is_read_again_faults_included(library: Path, tmp_path: Path) -> None:
    readings, _ = read(
        library,
        tmp_path / "xids",
        {},
        {"NVML_FAIL": "nvmlDeviceGetCount_v2:9"},
        {"NVML_FAIL": "", "xids": ["0 48 4294967295"]},
    )
    assert readings[1] == []
    assert [gpu["xids"] for gpu in readings[2]] == [[{"number": 48, "instance": ""}], []]
