"""How much of this machine's memory a process may use."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from router.settings.cgroups import CGROUPS, PROC, groups, lines

_LIMIT_FILES: Final = {1: "memory.limit_in_bytes", 2: "memory.max"}


def usable_memory_bytes(proc: Path = PROC, cgroups: Path = CGROUPS) -> int:
    """The machine's memory or the least limit of the control groups that this process is in (a container's),
    whichever is less; 0 where nothing tells."""
    limits = [
        int(limit)
        for version, group in groups("memory", proc, cgroups)
        for limit in lines(group / _LIMIT_FILES[version])
        if limit.isdecimal()  # not "max"
    ]
    return min([*_installed(proc / "meminfo"), *limits], default=0)


def _installed(meminfo: Path) -> Iterator[int]:
    for line in lines(meminfo):
        name, _, value = line.partition(":")
        if name == "MemTotal":
            yield int(value.split()[0]) << 10
