"""Memory that the gateway shares with its workers: anonymous files, which /dev/shm does not bound."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from router.settings import Settings
from router.settings.machine.memory import usable_memory_bytes
from router.verbs.doctor.finding import Finding, fault, ok, warning
from router.verbs.doctor.machine import Machine, gpu_slices
from serving.worker.frames.shared import SHARED_BYTES_MAX, SharedArea

SHM_MB_MIN: Final = 64
"""What Docker gives a container; CUDA and MPS keep their own areas there."""
_AREAS: Final = 2  # one each way


def check_memfd(create: Callable[[str], SharedArea] = SharedArea.create) -> Finding:
    """Return whether an area can be made, sealed and written: it is gone again at once."""
    try:
        area = create("penstock-doctor")
        try:
            area.write([b"doctor"], 6)
        finally:
            os.close(area.fd)
    except OSError as error:
        sentence = f"memory cannot be shared with workers: memfd_create: {error.strerror or error}"
        return fault("memfd", sentence, "allow memfd_create and sealing (seccomp profile of the container)")
    return ok("memfd", "memory can be shared with workers (memfd_create)")


def check_areas(machine: Machine, settings: Settings | None) -> Finding:
    """Return whether the areas of all workers fit into memory if each grows to its bound."""
    most = len(settings.slices if settings else ()) * _AREAS * SHARED_BYTES_MAX
    usable = usable_memory_bytes(machine.proc, machine.cgroups)
    sentence = f"workers' areas take at most {most >> 20} MB of {usable >> 20} MB of memory"
    if usable and most > usable:
        cure = "lower limits.body_mb, take fewer slices, or give the container more memory"
        return warning("areas", sentence, cure)
    return ok("areas", sentence)


def check_shm(
    machine: Machine, settings: Settings | None, room: Callable[[Path], int] | None = None
) -> Finding:
    """Return whether /dev/shm has room for what CUDA keeps there. `room`: bytes that are free in a folder."""
    folder = machine.dev / "shm"
    try:
        free_mb = (room or _room)(folder) >> 20
    except OSError as error:
        if gpu_slices(settings):
            return fault("shm", f"{folder} cannot be used: {error.strerror or error}", "mount a tmpfs there")
        return ok("shm", f"{folder} is not there, and nothing that is served needs it")
    if free_mb < SHM_MB_MIN and gpu_slices(settings):
        sentence = f"{folder} has {free_mb} MB free, and CUDA's processes share memory there"
        return warning("shm", sentence, "make it larger (docker --shm-size 1g, an emptyDir of medium Memory)")
    return ok("shm", f"{folder} has {free_mb} MB free; workers' areas are not there")


def _room(folder: Path) -> int:
    about = os.statvfs(folder)
    return about.f_bavail * about.f_frsize
