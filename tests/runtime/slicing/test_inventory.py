"""What the inventory promises, with NVIDIA's Python binding over a stand-in for the driver's library."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from router.verbs.place.question.fleet import geometries, pools, this_machine
from serving.policy.placement.terms.geometry import A100_40, H200_141, MigProfile, known_geometry, plain
from serving.policy.placement.terms.problem import Instances, Parts
from serving.profile.device import gpu_kind
from serving.runtime.slicing.choice import gpu_actuator, visible_devices
from serving.runtime.slicing.inventory import Gpu, Inventory, MigDevice, take_inventory
from tests.runtime.slicing.smi import table

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
TELL = """
import dataclasses, json
from serving.runtime.slicing.inventory import take_inventory
print(json.dumps(dataclasses.asdict(take_inventory())))
"""


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders with libnvidia-ml.so.1: as of now, of an older driver, and of something else."""
    built = {}
    for name, define in {"now": "NOW", "old": "OLD_DRIVER", "else": "nvmlInitWithFlags=other"}.items():
        folder = tmp_path_factory.mktemp(name)
        source = Path(__file__).with_name("nvml.c")
        output = folder / "libnvidia-ml.so.1"
        command = [
            "gcc",
            "-shared",
            "-fPIC",
            "-Wall",
            "-Wextra",
            "-Werror",
            f"-D{define}",
            "-o",
            str(output),
            str(source),
        ]
        subprocess.run(command, check=True)
        built[name] = folder
    return built


def told(library: Path | None, **scenario: str) -> dict[str, Any]:
    """The inventory of a process that finds this library, or none."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "LD_LIBRARY_PATH": str(library or ""), **scenario}
    done = subprocess.run(
        [sys.executable, "-c", TELL], env=environment, text=True, stdout=subprocess.PIPE, check=True
    )
    inventory = json.loads(done.stdout)
    assert inventory["cores"] == sorted(os.sched_getaffinity(0))
    assert isinstance(inventory, dict)
    return inventory


def gpus_of(inventory: dict[str, Any]) -> tuple[Gpu, ...]:
    """Return the GPUs as values again."""
    return tuple(
        Gpu(
            **{
                **each,
                "capability": tuple(each["capability"]),
                "mig_devices": tuple(MigDevice(**mig) for mig in each["mig_devices"]),
                "geometry": tuple(
                    MigProfile(**{**one, "starts": tuple(one["starts"])}) for one in each["geometry"]
                ),
            }
        )
        for each in inventory["gpus"]
    )


def test_an_h200_is_read(libraries: dict[str, Path]) -> None:
    inventory = told(libraries["now"], NVML_USED="37", NVML_PIDS="7,5,6")
    assert (inventory["driver"], inventory["cuda"], inventory["reason"]) == ("580.65.06", 13010, "")
    assert inventory["gpus"] == [
        {
            "index": 0, "uuid": "GPU-0", "name": "NVIDIA H200", "memory_bytes": 143771 << 20,
            "memory_used_bytes": 1 << 30, "capability": [9, 0], "sms": 132, "mig": False,
            "mig_devices": [], "power_w": 76.543, "power_limit_w": 700.0,
            "used_percent": 37, "processes": [5, 6, 7], "geometry": [], "cores": [0],
            "compute_mode": 0,
        }
    ]  # fmt: skip


def test_mig_devices_are_read_with_the_instance_that_each_is_of(libraries: dict[str, Path]) -> None:
    (gpu,) = told(libraries["now"], NVML_MIG="1")["gpus"]
    assert gpu["mig"] is True
    assert gpu["mig_devices"] == [
        {
            "uuid": "MIG-0-1",
            "gpu_instance": 10,
            "memory_bytes": 71168 << 20,
            "sms": 60,
            "compute_instance": 0,
            "profile": "3g.71gb",
        },
        {
            "uuid": "MIG-0-2",
            "gpu_instance": 20,
            "memory_bytes": 71168 << 20,
            "sms": 60,
            "compute_instance": 0,
            "profile": "3g.71gb",
        },
    ]


MIXED = "a100:3g.20gb@4,2g.10gb@2,1g.5gb@0;a100:7g.40gb@0;a100:;a100:1g.5gb@6,1g.10gb@4,4g.20gb@0"
FLEET = ";".join(["h200"] * 8 + [MIXED])


def test_the_drivers_geometry_is_that_of_the_tables(libraries: dict[str, Path]) -> None:
    gpus = gpus_of(told(libraries["now"], NVML_FLEET="h200:;a100:"))
    assert [each.geometry for each in gpus] == [table("h200"), table("a100")]
    assert [plain(each.geometry) for each in gpus] == [H200_141, A100_40]
    assert all(each.geometry == () for each in gpus_of(told(libraries["now"], NVML_FLEET="h200;a100")))


@pytest.mark.parametrize(
    ("library", "scenario"),
    [
        ("old", {}),
        ("now", {"NVML_FAIL": "nvmlDeviceGetGpuInstanceProfileInfoV:3"}),
        ("now", {"NVML_FAIL": "nvmlDeviceGetGpuInstancePossiblePlacements_v2:4"}),
    ],
)
def test_a_driver_that_tells_no_geometry_leaves_it_to_the_tables(
    libraries: dict[str, Path], library: str, scenario: dict[str, str]
) -> None:
    (one,) = gpus_of(told(libraries[library], NVML_MIG="1", **scenario))
    assert (one.mig, one.geometry) == (True, ())
    assert known_geometry(gpu_kind(one.name)) is H200_141


def test_a_mixed_fleet_is_read_whole(libraries: dict[str, Path]) -> None:
    gpus = gpus_of(told(libraries["now"], NVML_FLEET=FLEET))
    assert [each.name for each in gpus] == ["NVIDIA H200"] * 8 + ["NVIDIA A100-SXM4-40GB"] * 4
    assert [each.sms for each in gpus] == [132] * 8 + [108] * 4
    assert [each.mig for each in gpus] == [False] * 8 + [True] * 4
    assert [[mig.profile for mig in each.mig_devices] for each in gpus[8:]] == [
        ["3g.20gb", "2g.10gb", "1g.5gb"], ["7g.40gb"], [], ["1g.5gb", "1g.10gb", "4g.20gb"],
    ]  # fmt: skip
    inventory = Inventory((0,), gpus, "580.65.06", 13010)
    fleet, notes = this_machine(inventory, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"})
    assert notes == []
    h200, a100 = (pool for pool in pools(fleet, geometries(inventory)) if pool.kind.startswith("gpu-"))
    assert (len(h200.devices), h200.division) == (8, Parts("mps", 100.0, 48))
    assert (len(a100.devices), a100.division) == (4, Instances(A100_40))
    seen = visible_devices(inventory, {"CUDA_VISIBLE_DEVICES": "3,GPU-8/10/0,MIG-11-2,GPU-9"})
    assert [each.uuid for each in seen] == ["GPU-3", "MIG-8-1", "MIG-11-2", "GPU-9"]
    assert [str(each.share) for each in seen] == ["whole:1", "mig:3g.20gb", "mig:1g.10gb", "whole:1"]


def test_the_actuator_of_instances_knows_the_drivers_geometry(libraries: dict[str, Path]) -> None:
    gpus = gpus_of(told(libraries["now"], NVML_FLEET="a100:2g.10gb@0"))
    actuator = gpu_actuator("mig", gpus[0], Inventory((0,), gpus))  # no nvidia-smi is here to be asked
    assert [share.label for share in actuator.guarantee.granularity] == [
        "1g.5gb", "1g.5gb+me", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb",
    ]  # fmt: skip


def test_several_gpus_are_told_apart_and_a_lost_one_is_named(libraries: dict[str, Path]) -> None:
    assert [gpu["uuid"] for gpu in told(libraries["now"], NVML_GPUS="3")["gpus"]] == [
        "GPU-0",
        "GPU-1",
        "GPU-2",
    ]
    inventory = told(libraries["now"], NVML_GPUS="3", NVML_FAIL="nvmlDeviceGetHandleByIndex_v2:15")
    assert [gpu["uuid"] for gpu in inventory["gpus"]] == ["GPU-0", "GPU-2"]
    assert inventory["reason"] == "GPU 1: GPU is lost"


@pytest.mark.parametrize(
    ("library", "scenario", "reason"),
    [
        (None, {}, "NVML: NVML Shared Library Not Found"),
        ("now", {"NVML_GPUS": "0"}, "NVML lists no GPU"),
        ("now", {"NVML_FAIL": "nvmlInitWithFlags:9"}, "NVML: Driver Not Loaded"),
        ("now", {"NVML_FAIL": "nvmlDeviceGetCount_v2:999"}, "NVML: Unknown Error"),
        ("now", {"NVML_FAIL": "nvmlDeviceGetUUID:4"}, "GPU 0: Insufficient Permissions"),
        ("else", {}, "NVML: Function Not Found"),
    ],
)
def test_without_gpus_it_is_empty_and_says_why(
    libraries: dict[str, Path], library: str | None, scenario: dict[str, str], reason: str
) -> None:
    if library is None and take_inventory().gpus:
        pytest.skip("this machine has GPUs: their library cannot be hidden from a process")
    inventory = told(libraries[library] if library else None, **scenario)
    assert inventory["gpus"] == []
    assert inventory["reason"] == reason


@pytest.mark.parametrize(
    ("call", "field"),
    [
        ("nvmlDeviceGetMemoryInfo", "memory_bytes"),
        ("nvmlDeviceGetMigMode", "mig"),
        ("nvmlDeviceGetPowerUsage", "power_w"),
        ("nvmlDeviceGetEnforcedPowerLimit", "power_limit_w"),
        ("nvmlDeviceGetUtilizationRates", "used_percent"),
        ("nvmlDeviceGetComputeRunningProcesses_v3", "processes"),
        ("nvmlDeviceGetCudaComputeCapability", "sms"),
    ],
)
def test_what_a_driver_does_not_tell_is_none_and_the_rest_is_there(
    libraries: dict[str, Path], call: str, field: str
) -> None:
    (gpu,) = told(libraries["now"], NVML_FAIL=f"{call}:3")["gpus"]
    together = {"memory_bytes": {"memory_used_bytes"}, "sms": {"capability"}}
    silent = {field} | together.get(field, set())
    assert {name for name, value in gpu.items() if value is None} == silent


def test_an_older_driver_without_newer_functions_is_read_as_far_as_it_goes(
    libraries: dict[str, Path],
) -> None:
    (gpu,) = told(libraries["old"], NVML_PIDS="9")["gpus"]
    assert {name for name, value in gpu.items() if value is None} == {"sms"}
    assert gpu["processes"] == [9]


def gpu(used_percent: int | None, processes: tuple[int, ...] | None) -> Gpu:
    return Gpu(0, "GPU-0", "NVIDIA H200", 1, 0, (9, 0), 132, False, (), 70.0, 700.0, used_percent, processes)


@pytest.mark.parametrize(
    ("used_percent", "processes", "said"),
    [
        (0, (), ""),
        (3, None, ""),
        (None, None, ""),
        (90, (11,), ""),  # only ours: what it is busy with
        (0, (11, 13, 12), "GPU 0 is used by process 12, 13"),
        (90, (), "GPU 0 is busy at 90 % with processes that cannot be seen"),
        (90, None, "GPU 0 is busy at 90 % with processes that cannot be seen"),
    ],
)
def test_others_on_a_gpu_are_noticed(
    used_percent: int | None, processes: tuple[int, ...] | None, said: str
) -> None:
    assert gpu(used_percent, processes).used_by_others(ours=[11]) == said


def test_an_inventory_can_be_taken_again_and_again() -> None:
    first = take_inventory()
    assert isinstance(first, Inventory)
    assert take_inventory().reason == first.reason
