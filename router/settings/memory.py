"""How much of this machine's memory a process may use."""

from collections.abc import Iterator
from pathlib import Path

_PROC, _CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")


def usable_memory_bytes(proc: Path = _PROC, cgroups: Path = _CGROUPS) -> int:
    """The machine's memory or the least limit of the control groups that this process is in (a container's),
    whichever is less; 0 where nothing tells."""
    found = [*_installed(proc / "meminfo"), *_limits(proc / "self" / "cgroup", cgroups)]
    return min(found, default=0)


def _installed(meminfo: Path) -> Iterator[int]:
    for line in _lines(meminfo):
        name, _, value = line.partition(":")
        if name == "MemTotal":
            yield int(value.split()[0]) << 10


def _limits(membership: Path, cgroups: Path) -> Iterator[int]:
    """Of this process's groups and all above them: memory.max of version 2, memory.limit_in_bytes of 1."""
    for line in _lines(membership):
        _, controllers, path = line.split(":", 2)
        if not controllers:
            root, file = cgroups, "memory.max"
        elif "memory" in controllers.split(","):
            root, file = cgroups / "memory", "memory.limit_in_bytes"
        else:
            continue
        folder = root / path.lstrip("/")  # in a container it may be the host's path, and then not be there
        for group in (folder, *folder.parents):
            yield from (int(limit) for limit in _lines(group / file) if limit.isdecimal())  # not "max"
            if group == root:
                break


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except OSError:
        return []
