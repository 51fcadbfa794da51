"""What the checks say of the driver, its files and torch, on machines with and without GPUs."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from router.verbs.doctor.cuda import (
    NO_ANSWER,
    TorchBuild,
    check_device_files,
    check_driver,
    check_torch,
    torch_build,
    version_text,
)
from router.verbs.doctor.finding import Finding
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

Verdict = Callable[[Finding], bool]
MODULE = {
    "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun Jul 27\n"
}
FILES = {f"dev/{name}": "" for name in ("nvidiactl", "nvidia-uvm", "nvidia0", "nvidia1")}
EIGHT = inventory(*(gpu(index) for index in range(8)))
TWO = inventory(gpu(0), gpu(1))


def test_a_driver_with_its_gpus_is_described(tmp_path: Path) -> None:
    found = check_driver(machine(tmp_path), EIGHT, wanted=False)
    assert is_ok(found)
    assert found.sentence == "driver 580.65.06, CUDA 13.1, 8 x NVIDIA H200"


def test_without_gpus_it_depends_on_what_is_asked(tmp_path: Path) -> None:
    here = machine(tmp_path)
    assert is_ok(check_driver(here, NO_GPU, wanted=False))
    absent = check_driver(here, NO_GPU, wanted=True)
    assert is_fault(absent)
    assert absent.cure.startswith("install NVIDIA's driver; in a container, start it with --gpus all")
    unpacked = check_driver(machine(tmp_path, MODULE), NO_GPU, wanted=True)
    assert is_fault(unpacked)
    assert unpacked.cure.startswith("install the libraries of driver 580.65.06: its module is loaded")


def test_a_lost_gpu_is_a_fault_where_slices_need_gpus(tmp_path: Path) -> None:
    lost = inventory(gpu(0), reason="GPU 1: GPU is lost")
    assert is_warning(check_driver(machine(tmp_path), lost, wanted=False))
    found = check_driver(machine(tmp_path), lost, wanted=True)
    assert is_fault(found)
    assert found.sentence.endswith("1 x NVIDIA H200; GPU 1: GPU is lost")


def test_a_driver_that_takes_too_long_is_warned_of(tmp_path: Path) -> None:
    found = check_driver(machine(tmp_path), inventory(reason=NO_ANSWER), wanted=True)
    assert is_warning(found)
    assert "nvidia-smi -pm 1" in found.cure


def test_device_files_have_to_be_there(tmp_path: Path) -> None:
    assert is_ok(check_device_files(machine(tmp_path, FILES), TWO, wanted=True))
    (tmp_path / "dev" / "nvidia-uvm").unlink()
    found = check_device_files(machine(tmp_path), TWO, wanted=True)
    assert is_fault(found)
    assert found.sentence == f"not in {tmp_path / 'dev'}: nvidia-uvm"
    assert is_warning(check_device_files(machine(tmp_path), TWO, wanted=False))


def test_device_files_have_to_be_open_to_this_user(tmp_path: Path) -> None:
    here = replace(machine(tmp_path, FILES), may=lambda path, _: path.name != "nvidia1")
    found = check_device_files(here, TWO, wanted=True)
    assert is_fault(found)
    assert found.sentence == f"may not be opened: {tmp_path / 'dev' / 'nvidia1'}"


def test_mig_needs_its_capabilities(tmp_path: Path) -> None:
    cut = inventory(gpu(0), gpu(1, mig=True))
    without = check_device_files(machine(tmp_path, FILES), cut, wanted=True)
    assert is_fault(without)
    assert "nvidia-caps" in without.sentence
    caps = FILES | {"dev/nvidia-caps/nvidia-cap1": "", "dev/nvidia-caps/nvidia-cap21": ""}
    assert is_ok(check_device_files(machine(tmp_path, caps), cut, wanted=True))
    here = replace(machine(tmp_path), may=lambda path, _: path.name != "nvidia-cap21")
    denied = check_device_files(here, cut, wanted=True)
    assert is_fault(denied)
    assert denied.sentence.endswith("nvidia-cap21")


CORES_ONLY, CUDA_12, CUDA_14 = (
    TorchBuild("2.9.0+cpu"),
    TorchBuild("2.9.0", "12.8"),
    TorchBuild("3.0.0", "14.0"),
)


@pytest.mark.parametrize(
    ("build", "unasked", "asked"),
    [
        (None, is_ok, is_fault),
        (CORES_ONLY, is_ok, is_fault),
        (CUDA_12, is_ok, is_ok),
        (TorchBuild("2.9.0", "13.2"), is_ok, is_ok),  # of the same major version: compatible
        (CUDA_14, is_warning, is_fault),
    ],
)
def test_torch_has_to_fit_the_driver_where_models_use_it(
    tmp_path: Path, build: TorchBuild | None, unasked: Verdict, asked: Verdict
) -> None:
    settings = on_gpus(tmp_path, "whole:1")
    (settings.models[0].spec.folder / "model.py").write_text("import numpy\nimport torch\n")
    assert unasked(check_torch(build, TWO, deployment(tmp_path)))
    assert asked(check_torch(build, TWO, settings))


def test_torch_does_not_matter_to_models_that_do_without_it(tmp_path: Path) -> None:
    settings = on_gpus(tmp_path, "whole:1")
    (settings.models[0].spec.folder / "model.py").write_text("import cupy  # not torch\n")
    assert is_ok(check_torch(None, TWO, settings))
    assert is_warning(check_torch(CORES_ONLY, TWO, settings))


def test_torch_is_read_and_not_imported(tmp_path: Path) -> None:
    file = tmp_path / "version.py"
    file.write_text("__version__ = '2.9.0+cu128'\ndebug = False\ncuda: Optional[str] = '12.8'\nhip = None\n")
    assert torch_build(file) == TorchBuild("2.9.0+cu128", "12.8")
    file.write_text("__version__ = '2.9.0+cpu'\ncuda: Optional[str] = None\n")
    assert torch_build(file) == TorchBuild("2.9.0+cpu")
    here = torch_build()
    assert here is not None
    assert here.version[0].isdecimal()


@pytest.mark.parametrize(
    ("cuda", "text"), [(13010, "13.1"), (12080, "12.8"), (11000, "11.0"), (None, "unknown")]
)
def test_cudas_number_is_a_version(cuda: int | None, text: str) -> None:
    assert version_text(cuda) == text
