"""What the checks say of memory that workers share."""

import errno
from pathlib import Path

from router.verbs.doctor.shared_memory import check_areas, check_memfd, check_shm
from serving.worker.frames.shared import SharedArea
from tests.router.verbs.doctor.roots import deployment, is_fault, is_ok, is_warning, machine, on_gpus


def refused(name: str) -> SharedArea:
    raise OSError(errno.EPERM, "Operation not permitted", name)


def test_memory_is_shared_for_a_moment_and_nothing_is_left() -> None:
    before = sorted(Path("/proc/self/fd").iterdir())
    assert is_ok(check_memfd())
    assert sorted(Path("/proc/self/fd").iterdir()) == before


def test_memory_that_cannot_be_shared_is_a_fault() -> None:
    found = check_memfd(refused)
    assert is_fault(found)
    assert "memfd_create: Operation not permitted" in found.sentence


def test_areas_that_could_outgrow_the_memory_are_warned_of(tmp_path: Path) -> None:
    large = machine(tmp_path, {"proc/meminfo": "MemTotal: 16777216 kB\n"})
    found = check_areas(large, deployment(tmp_path))
    assert is_ok(found)
    assert found.sentence == "workers' areas take at most 1024 MB of 16384 MB of memory"
    small = machine(tmp_path, {"proc/meminfo": "MemTotal: 1000000 kB\n"})
    assert is_warning(check_areas(small, deployment(tmp_path)))


def gone(_: Path) -> int:
    raise OSError(errno.ENOENT, "No such file or directory")


def test_dev_shm_matters_where_cuda_is_used(tmp_path: Path) -> None:
    here, cores, gpus = machine(tmp_path), deployment(tmp_path), on_gpus(tmp_path, "mps:50")
    assert is_ok(check_shm(here, gpus, lambda _: 1 << 30))
    assert is_warning(check_shm(here, gpus, lambda _: 1 << 20))
    assert is_fault(check_shm(here, gpus, gone))
    assert is_ok(check_shm(here, cores, lambda _: 1 << 20))
    assert is_ok(check_shm(here, cores, gone))
    assert is_ok(check_shm(here, cores))  # the folder is not there
