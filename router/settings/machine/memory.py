"""How much of this machine's memory a process may use."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from router.settings.machine.cgroups import CGROUPS, PROC, groups, lines

_LIMIT_FILES: Final = {1: "memory.limit_in_bytes", 2: "memory.max"}
_USAGE_FILES: Final = {1: "memory.usage_in_bytes", 2: "memory.current"}
_CACHED: Final = {1: "total_inactive_file", 2: "inactive_file"}
"""The part of the usage that the kernel gives back when memory is short (memory.stat)."""


def usable_memory_bytes(proc: Path = PROC, cgroups: Path = CGROUPS) -> int:
    """Return the bytes of the machine's memory or of the least control group limit, whichever is less.

    The control groups are those that this process is in (a container's). The result is 0 if no source tells.
    """
    limits = [
        int(limit)
        for version, group in groups("memory", proc, cgroups)
        for limit in lines(group / _LIMIT_FILES[version])
        if limit.isdecimal()  # not "max"
    ]
    return min([*_meminfo(proc / "meminfo", "MemTotal"), *limits], default=0)


def free_memory_bytes(proc: Path = PROC, cgroups: Path = CGROUPS) -> int:
    """Return the memory that processes may still take of the machine, and within each control group's limit.

    It is 0 if nothing tells.
    """
    rooms = [
        int(limit) - int(usage) + _cached(group, version)
        for version, group in groups("memory", proc, cgroups)
        for limit in lines(group / _LIMIT_FILES[version])
        for usage in lines(group / _USAGE_FILES[version])
        if limit.isdecimal()  # not "max"
    ]
    return max(min([*_meminfo(proc / "meminfo", "MemAvailable"), *rooms], default=0), 0)


def _cached(group: Path, version: int) -> int:
    found = (line.split() for line in lines(group / "memory.stat"))
    return sum(int(value) for name, value in found if name == _CACHED[version])


def _meminfo(meminfo: Path, field: str) -> Iterator[int]:
    for line in lines(meminfo):
        name, _, value = line.partition(":")
        if name == field:
            yield int(value.split()[0]) << 10
