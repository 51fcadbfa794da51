"""What the checks say where GPUs cannot be shared as slices ask, and where they can."""

from dataclasses import replace
from pathlib import Path

import pytest

from router.verbs.doctor.sharing import check_gpu_slices, check_mig, check_mps
from serving.runtime.slicing.inventory import MigDevice
from tests.router.verbs.doctor.roots import (
    NO_GPU,
    deployment,
    gpu,
    inventory,
    is_fault,
    is_ok,
    is_warning,
    machine,
    on_gpus,
)

TWO = inventory(gpu(0), gpu(1))
INSTANCE = MigDevice("MIG-a", 1, 71 << 30, 60, 0, "3g.71gb")
CUT = inventory(gpu(0), replace(gpu(1, mig=True), mig_devices=(INSTANCE,)))


def absent(_: str) -> None:
    return None


@pytest.mark.parametrize("device", ["gpu-1", "cuda:0", "GPU-1", "MIG-a"])
def test_each_slices_gpu_has_to_be_there(tmp_path: Path, device: str) -> None:
    assert is_ok(check_gpu_slices(machine(tmp_path), CUT, on_gpus(tmp_path, "whole:1", device=device)))


def test_a_gpu_that_is_not_there_is_a_fault_that_names_its_slice(tmp_path: Path) -> None:
    found = check_gpu_slices(machine(tmp_path), TWO, on_gpus(tmp_path, "mps:30", device="gpu-4"))
    assert is_fault(found)
    assert found.sentence == "slice g0: there is no gpu-4 here; there is gpu-0, gpu-1"
    hidden = replace(machine(tmp_path), environ={"CUDA_VISIBLE_DEVICES": "0"})
    assert is_fault(check_gpu_slices(hidden, TWO, on_gpus(tmp_path, "mps:30", device="gpu-1")))


def test_unlike_gpus_are_warned_of_where_their_order_is_unclear(tmp_path: Path) -> None:
    unlike = inventory(gpu(0), gpu(1, name="NVIDIA L4"))
    assert is_warning(check_gpu_slices(machine(tmp_path), unlike, deployment(tmp_path)))
    by_bus = replace(machine(tmp_path), environ={"CUDA_DEVICE_ORDER": "PCI_BUS_ID"})
    found = check_gpu_slices(by_bus, unlike, deployment(tmp_path))
    assert is_ok(found)
    assert found.sentence == "visible: cuda:0 (gpu-0), cuda:1 (gpu-1)"


@pytest.mark.parametrize(
    ("share", "device", "sound", "said"),
    [
        ("mig:3g.71gb", "gpu-1", True, "MIG instances: GPU 1 has 1"),
        ("mps:30", "gpu-0", True, "MIG instances: GPU 1 has 1"),
        ("whole:1", "MIG-a", True, "MIG instances: GPU 1 has 1"),
        ("mig:3g.71gb", "gpu-0", False, "slices ask for MIG instances, and MIG mode is off: GPU 0"),
        ("mps:30", "gpu-1", False, "slices ask for other shares, and MIG mode is on: GPU 1"),
    ],
)
def test_mig_mode_has_to_fit_the_shares(
    tmp_path: Path, share: str, device: str, sound: bool, said: str
) -> None:
    found = check_mig(machine(tmp_path), CUT, on_gpus(tmp_path, share, device=device))
    assert is_ok(found) if sound else is_fault(found)
    assert found.sentence == said


def test_without_mig_there_is_nothing_to_say(tmp_path: Path) -> None:
    assert check_mig(machine(tmp_path), TWO, None).sentence == "MIG mode is off"
    assert is_ok(check_mig(machine(tmp_path), NO_GPU, on_gpus(tmp_path, "mig:3g.71gb")))  # the driver's fault


def test_mps_needs_its_control_program(tmp_path: Path) -> None:
    here, asked = machine(tmp_path), on_gpus(tmp_path, "mps:30", "sm:4")
    program = tmp_path / "nvidia-cuda-mps-control"
    program.write_bytes(b"\x7fELF 580.65.06 \0")
    found = check_mps(here, TWO, asked, lambda _: str(program))
    assert is_ok(found)
    assert found.sentence == f"{program} is there, of driver 580.65.06"
    assert is_fault(check_mps(here, TWO, asked, absent))
    assert is_ok(check_mps(here, TWO, on_gpus(tmp_path, "whole:1"), absent))


def test_a_daemon_of_somebody_else_is_warned_of(tmp_path: Path) -> None:
    here = machine(tmp_path, {"tmp/nvidia-mps/control": ""})
    found = check_mps(here, TWO, on_gpus(tmp_path, "mps:30"), str)
    assert is_warning(found)
    assert str(tmp_path / "tmp" / "nvidia-mps") in found.sentence
    assert is_ok(check_mps(here, TWO, deployment(tmp_path), str))
    elsewhere = replace(here, environ={"CUDA_MPS_PIPE_DIRECTORY": str(tmp_path / "mine")})
    assert is_ok(check_mps(elsewhere, TWO, on_gpus(tmp_path, "mps:30"), str))


def test_a_folder_too_long_for_sockets_is_a_fault(tmp_path: Path) -> None:
    here = replace(machine(tmp_path), environ={"TMPDIR": "/" + "t" * 80})
    assert is_fault(check_mps(here, TWO, on_gpus(tmp_path, "mps:30"), str))
