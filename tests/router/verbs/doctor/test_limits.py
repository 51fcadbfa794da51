"""What the checks say where limits of the process are too low, and where they are not."""

from pathlib import Path

import pytest

from router.verbs.doctor.limits import check_locked_memory, check_open_files, check_processes
from tests.router.verbs.doctor.roots import deployment, is_fault, is_ok, is_warning, machine, on_gpus

LIMITS = """\
Limit                     Soft Limit           Hard Limit           Units
Max processes             {processes:<20} unlimited            processes
Max open files            1024                 {files:<20} files
Max locked memory         {locked:<20} unlimited            bytes
"""


def limits(files: object = 20000, processes: object = 4096, locked: object = 8388608) -> dict[str, str]:
    return {"proc/self/limits": LIMITS.format(files=files, processes=processes, locked=locked)}


@pytest.mark.parametrize(
    ("files", "sound"), [(9216, True), ("unlimited", True), (9215, False), (1024, False)]
)
def test_too_few_files_for_the_connections_are_a_fault(tmp_path: Path, files: object, sound: bool) -> None:
    found = check_open_files(machine(tmp_path, limits(files=files)), deployment(tmp_path))
    assert is_ok(found) if sound else is_fault(found)
    assert "9216 are needed" in found.sentence if sound else "4096 connections need 9216" in found.sentence


@pytest.mark.parametrize(
    ("processes", "pids", "sound"),
    [(4096, "max", True), ("unlimited", "max", True), (100, "max", False), (4096, "100", False)],
)
def test_too_few_processes_for_the_workers_are_warned_of(
    tmp_path: Path, processes: object, pids: str, sound: bool
) -> None:
    group = {"proc/self/cgroup": "0::/a\n", "cgroup/a/pids.max": pids}
    found = check_processes(machine(tmp_path, limits(processes=processes) | group), deployment(tmp_path))
    assert is_ok(found) if sound else is_warning(found)


@pytest.mark.parametrize(("locked", "sound"), [("unlimited", True), (1 << 30, True), (8 << 20, False)])
def test_memory_that_cannot_be_locked_for_gpus_is_warned_of(
    tmp_path: Path, locked: object, sound: bool
) -> None:
    here = machine(tmp_path, limits(locked=locked))
    found = check_locked_memory(here, on_gpus(tmp_path, "whole:1"))
    assert is_ok(found) if sound else is_warning(found)
    assert is_ok(check_locked_memory(here, deployment(tmp_path)))


def test_a_kernel_that_tells_no_limits_is_no_fault(tmp_path: Path) -> None:
    here = machine(tmp_path)
    assert is_ok(check_open_files(here, None))
    assert is_ok(check_processes(here, None))
